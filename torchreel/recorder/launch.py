"""Runs a program under the recorder, and writes down what it could not say itself: how it ended.

Lives here: `run_recorded`.  Not here: recording (the program does it, through the entry point that
`import torch` calls).  Called by `torchreel record`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from torchreel.errors import UsageError
from torchreel.recorder import control, environment
from torchreel.recorder.guard import fail_open
from torchreel.recorder.redaction import RedactingWriter, Redactor, Rules
from torchreel.recorder.session import MODE_VARIABLE, MODES, RUN_VARIABLE
from torchreel.recorder.settings import VARIABLES, Settings
from torchreel.store import locks
from torchreel.store.database import Store
from torchreel.store.records import Recording

# What a terminal or a job manager sends to `torchreel record` is meant for the program.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def run_recorded(
    command: Sequence[str],
    store_path: str | Path,
    *,
    mode: str = "full",
    compile_timeout: float | None = None,
    settings: Settings | None = None,
) -> int:
    """Run `command` with every compile in it recorded, and return its exit status.

    That is 128 + N for a program that signal N ended.  `compile_timeout` in seconds; the rest of
    what can be set is in `settings`.
    Raises UsageError when there is no such command or mode, StoreError when the store can't be
    used: both before anything is started.
    """
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r} of recording: use {' or '.join(MODES)}.")
    target = str(store_path) if "://" in str(store_path) else os.path.abspath(store_path)
    settings = settings or Settings()
    if compile_timeout is not None:
        settings = replace(settings, compile_timeout=compile_timeout)
    if is_shared(target):
        Store.open(target, create=True).close()
    run, started = uuid.uuid4().hex[:12], time.time_ns()
    pid, status = _run(command, _environment(target, run, mode, settings))
    with fail_open("launch"):
        if is_shared(target):
            _settle(target, run, command, pid, started, status, settings.rules)
    return status if status >= 0 else 128 - status


def is_shared(target: str) -> bool:
    """Whether all processes of a program write into one store.

    Not where its name has placeholders, and not where the file system has no locks; on one that
    other machines see, the ranks of a job don't, but a program without ranks does.
    """
    named = control.resolve(target, None) == target
    return named and ("://" in target or locks.has_locks(Path(target).absolute().parent))


def _environment(target: str, run: str, mode: str, settings: Settings) -> dict[str, str]:
    variables = {**os.environ, MODE_VARIABLE: f"{mode}:{target}", RUN_VARIABLE: run}
    for name in VARIABLES:
        variables.pop(name, None)
    return {**variables, **settings.variables()}


def _run(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, int]:
    """The process id and the status of the program, as `Popen` has it: negative for a signal."""
    try:
        child = subprocess.Popen(command, env=variables)
    except (OSError, IndexError, ValueError) as error:
        raise UsageError(f"{' '.join(command) or 'Nothing'} can't be run: {error}.") from error
    with _forwarding(child):
        return child.pid, child.wait()


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that we get go to the program; it decides what they mean."""

    def forward(number: int, frame: FrameType | None) -> None:
        # The terminal sends Ctrl-C to the program as well; it must not get it twice.
        if number != signal.SIGINT or not sys.stdin or not sys.stdin.isatty():
            child.send_signal(number)

    try:
        before = {number: signal.signal(number, forward) for number in _FORWARDED}
    except ValueError:  # not the main thread, where signals don't arrive
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settle(
    target: str,
    run: str,
    command: Sequence[str],
    pid: int,
    started: int,
    status: int,
    rules: Rules,
) -> None:
    from torchreel.store import queries

    with Store.open(target, write=True) as store:
        mine = [row for row in queries.recordings(store) if row.run == run]
        main = _main_recording(mine, pid)
        with store.writer() as direct:
            writer = RedactingWriter(direct, Redactor(rules, argv=command))
            if main is not None:
                writer.update("recordings", main.id, **_ending(main, status))
            elif not mine and not _elsewhere(target, started):
                row = _empty_recording(run, command, pid, started)
                writer.add("recordings", **row, **_how(status), status="done")
        store.settle()


def _elsewhere(target: str, started: int) -> bool:
    """Whether ranks of the program wrote files of their own beside the store."""
    return any(file.stat().st_mtime_ns >= started for file in locks.own_files(target))


def _main_recording(rows: Sequence[Recording], pid: int) -> Recording | None:
    """The recording of the program itself; of a shell's only child when that was the program."""
    own = [row for row in rows if row.pid == pid]
    return own[-1] if own else rows[0] if len(rows) == 1 else None


def _ending(recording: Recording, status: int) -> dict[str, object]:
    return {**_how(status), "ended_ns": recording.ended_ns or time.time_ns()}


def _how(status: int) -> dict[str, object]:
    """Exit status and signal; a shell reports the signal of its child as 128 + N."""
    number = -status if status < 0 else status - 128 if status > 128 else 0
    try:
        name = signal.Signals(number).name if number else None
    except ValueError:
        name = None
    return {"exit_status": status if status >= 0 else 128 - status, "exit_signal": name}


def _empty_recording(run: str, command: Sequence[str], pid: int, started: int) -> dict[str, object]:
    """The recording of a program that compiled nothing."""
    return {
        "run": run,
        "kind": "program",
        "pid": pid,
        "argv": environment.arguments(command),
        "cwd": os.getcwd(),
        "started_ns": started,
        "ended_ns": time.time_ns(),
    }
