"""Runs a program under the recorder, and writes down what it could not say itself: how it ended.

The program always runs, and its exit status is its own, whatever becomes of the store.  Lives here:
`record_program`.  Not here: recording (the program does it, through the entry point that
`import torch` calls).  Called by `torchreel record`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol, Self

from torchreel.errors import TorchreelError, UsageError
from torchreel.recorder import control, environment
from torchreel.recorder.claims import claimed
from torchreel.recorder.failing_open import REPORT_VARIABLE, fail_open
from torchreel.recorder.redaction import RedactingWriter, Redactor, Rules
from torchreel.recorder.session import MODE_VARIABLE, MODES, RUN_VARIABLE
from torchreel.recorder.settings import VARIABLES, Settings
from torchreel.store.database import Store
from torchreel.store.files import locks
from torchreel.store.passwords import full, hidden
from torchreel.store.records import Recording

_NUMBER = slice(60, 64)
"""Bytes of the header of a store with the number by which it is known (`sqlite_files.create`)."""
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
_MOST_REPORTED = 1 << 16
"""Characters of what the processes say, at most."""

# What a terminal or a job manager sends to `torchreel record` is meant for the program.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
_OF_THE_KERNEL = 0x80
"""`si_code` of a signal that no process sent."""


class ProgramEnd(NamedTuple):
    """The end of a program: its exit status, and notes on its recording."""

    status: int
    """The program's own: 128 + N where signal N ended it."""
    target: str
    is_recorded: bool
    """True if the store is there, and may hold something of the program."""
    notes: tuple[str, ...] = ()
    """A sentence for each thing that could not be recorded, with the reason."""


class Process(Protocol):
    """A program that runs."""

    pid: int

    def wait(self) -> int:
        """Wait for its end; its exit status, negative for a signal."""

    def send_signal(self, sig: int) -> None:
        """Pass a signal on."""


Start = Callable[[Sequence[str], Mapping[str, str]], Process]


def _start(command: Sequence[str], variables: Mapping[str, str]) -> Process:
    # With the descriptors that it was given: a shell's `<(command)`, the jobs of make, sockets.
    return subprocess.Popen(command, env=variables, close_fds=False)


def run_recorded(
    command: Sequence[str],
    store_path: str | Path,
    *,
    mode: str = "full",
    compile_timeout: float | None = None,
    settings: Settings | None = None,
    start: Start = _start,
) -> int:
    """Run `command` with every compile in it recorded, and return its exit status.

    As `record_program`, for callers that don't need the notes on parts not recorded.
    """
    settings = settings or Settings()
    if compile_timeout is not None:
        settings = replace(settings, compile_timeout=compile_timeout)
    return record_program(command, store_path, mode, settings, start).status


def settings_of(**given: object) -> tuple[Settings, str]:
    """Return the settings of options and variables, and what is wrong with the variables, or ''.

    An invalid variable may come from anywhere, so the program runs all the same. Raises UsageError
    for an invalid option: the user has just typed it.
    """
    typed = Settings.from_environment({}, given)
    try:
        return Settings.from_environment(given=given), ""
    except UsageError as error:
        return typed, str(error)


def record_program(
    command: Sequence[str],
    store_path: str | Path,
    mode: str,
    settings: Settings,
    start: Start = _start,
    *,
    problem: str = "",
) -> ProgramEnd:
    """Run `command` with every compile in it recorded; it runs also where none can be recorded.

    `start` begins it with these environment variables; `problem` says why nothing can be recorded,
    where that is known already.
    Raises UsageError when there is no such command, mode or kind of store, before anything is
    started.  Whatever else goes wrong is in the notes.
    """
    if mode not in MODES:
        raise UsageError(f"There is no mode {mode!r} of recording: use {' or '.join(MODES)}.")
    _check_program(command)
    target = _absolute(store_path)
    is_new = not os.path.exists(target)
    problem = problem or _prepare(target)
    if problem:
        _, status = _run(start, command, _variables())
        note = f"nothing was recorded: {problem}"
        return ProgramEnd(_shown(status), target, is_recorded=False, notes=(note,))
    with claimed(target) as claim:
        before = _identity(target)
        run, started = uuid.uuid4().hex[:12], time.time_ns()
        with _report() as report:
            variables = _environment(target, run, mode, settings)
            pid, status = _run(start, command, variables | {REPORT_VARIABLE: report})
            notes = _read(report)
        if _identity(target) != before:
            gone = "replaced" if os.path.exists(target) else "deleted"
            note = f"nothing was recorded: {target} was {gone} while it was recorded into."
            return ProgramEnd(_shown(status), target, is_recorded=False, notes=(note,))
        problem, is_empty = "", False
        if is_shared(target):
            problem = _try(
                lambda: _settle(target, run, command, pid, started, status, settings.rules)
            )
            is_empty = not problem and _is_without(target, run, started)
        if is_empty and is_new:
            claim.delete_empty()
    if problem:
        notes = (f"nothing more was recorded: {problem}", *notes)
    if is_empty:
        how = f"the program ended with exit status {_shown(status)}"
        notes = (f"nothing was recorded: no compile was seen before {how}.", *notes)
    return ProgramEnd(_shown(status), target, is_recorded=not (problem or is_empty), notes=notes)


def _shown(status: int) -> int:
    """Return an exit status as a shell has it."""
    return status if status >= 0 else 128 - status


def _absolute(store_path: str | Path) -> str:
    text = str(store_path)
    if "://" in text:
        return hidden(text)
    with suppress(OSError):  # the working directory is gone
        return os.path.abspath(text)
    return text


def _identity(target: str) -> tuple[int, int, bytes] | None:
    """Return the identity of the store file that all processes share; None if there is none."""
    if "://" in target or not is_shared(target):
        return None
    with suppress(OSError, ValueError), open(target, "rb") as file:
        status = os.fstat(file.fileno())
        return status.st_dev, status.st_ino, file.read(_NUMBER.stop)[_NUMBER]
    return None


def _prepare(target: str) -> str:
    """Open the store; return the reason why that is impossible, or ''.  A missing file is made.

    Raises UsageError for a URL that means nothing.
    """
    usage: list[UsageError] = []

    def step() -> None:
        try:
            Store.open(target, write=True, create="://" not in target).close()
        except UsageError as error:
            usage.append(error)

    problem = _try(step) if is_shared(target) else ""  # else each process makes its own
    if usage:
        raise usage[0]
    return problem


def _try(step: Callable[[], None]) -> str:
    """Take a step outside of the program; return the error in one line, or ''."""
    with fail_open("launch", quiet=True) as attempt:
        step()
    if attempt.kind is None:
        return ""
    return attempt.message if issubclass(attempt.kind, TorchreelError) else _line(attempt)


def _line(attempt: fail_open) -> str:
    """Return an error that has no sentence of ours, in one line."""
    assert attempt.kind is not None
    return f"{attempt.kind.__name__}: {' '.join(attempt.message.split())[:300]}"


@contextmanager
def _report() -> Iterator[str]:
    """Yield the file in which processes report losses (`failing_open.announce`); '' without one."""
    name = ""
    with suppress(OSError):
        handle, name = tempfile.mkstemp(prefix="torchreel-")
        os.close(handle)
    try:
        yield name
    finally:
        with suppress(OSError):
            os.unlink(name)


def _read(report: str) -> tuple[str, ...]:
    """Return the lines that the processes reported, each once."""
    with suppress(OSError), open(report, encoding="utf-8", errors="replace") as file:
        lines = file.read(_MOST_REPORTED).splitlines()
        return tuple(dict.fromkeys(line for line in lines if line))
    return ()


def is_shared(target: str) -> bool:
    """Return True if all processes of a program write into one store.

    They do not if the store's name has placeholders, or if its file system has no locks. Nor do the
    ranks of a job if other machines see the file system.
    """
    named = control.filled_in(target, None) == target
    return named and ("://" in target or locks.has_locks(Path(target).absolute().parent))


def _check_program(command: Sequence[str]) -> None:
    """Raise UsageError when there is no such program, before a store is made for it."""
    name = command[0] if command else ""
    if shutil.which(name) is not None:
        return
    if not os.path.isfile(name):
        raise UsageError(f"There is no program {name!r} to run." if name else "Name a program.")
    remedy = ""
    if name.endswith(".py"):
        remedy = f": write 'torchreel record -- python {' '.join(command)}'"
    raise UsageError(f"{name} is no program that can be run{remedy}.")


def _environment(target: str, run: str, mode: str, settings: Settings) -> dict[str, str]:
    variables = {**_variables(), MODE_VARIABLE: f"{mode}:{full(target)}", RUN_VARIABLE: run}
    for name in VARIABLES:
        variables.pop(name, None)
    return {**variables, **settings.variables()}


def _variables() -> dict[str, str]:
    """Return the environment that we were started with: where there is no locale, Python, which we
    are, sets one for itself and its children (PEP 538).
    """
    found = dict(os.environ)
    if found.get("LC_CTYPE") in _COERCED:
        with suppress(OSError):
            first = Path("/proc/self/environ").read_bytes().split(b"\0")
            if not any(line.startswith(b"LC_CTYPE=") for line in first):
                del found["LC_CTYPE"]
    return found


def _run(start: Start, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the process id and the status of the program, as `Popen` has it: negative for a
    signal.
    """
    with _Forwarding() as forwarding:
        try:
            child = start(command, variables)
        except (OSError, IndexError, ValueError) as error:
            raise UsageError(f"{' '.join(command) or 'Nothing'} can't be run: {error}.") from error
        forwarding.begin(child)
        return child.pid, child.wait()


class _Forwarding:
    """Passes the signals that this process gets on to the program, which decides their meaning.

    It begins before the program starts; the program then gets the signals that came meanwhile. A
    terminal sends Ctrl-C to both processes, and the program must not get it twice. The kernel tells
    a thread that waits for a signal if a terminal sent it. Within a program that has other threads,
    or on a system without that call, this is only guessed.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._early: list[int] = []
        self._child: Process | None = None
        self._thread: threading.Thread | None = None
        self._mask: set[Any] = set()

    def __enter__(self) -> Self:
        # The program inherits it where a signal is ignored (`nohup`), but no handler.
        self._handle(one for one in _FORWARDED if signal.getsignal(one) != signal.SIG_IGN)
        return self

    def _handle(self, numbers: Iterable[int]) -> None:
        with suppress(ValueError):  # not the main thread, where signals don't arrive
            for number in numbers:
                self._before[number] = signal.signal(number, self._forward)

    def begin(self, child: Process) -> None:
        """Send from now on to this program."""
        self._child = child
        self._handle(one for one in _FORWARDED if one not in self._before)
        if self._before and hasattr(signal, "sigwaitinfo") and _is_single_threaded():
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
            self._thread = threading.Thread(target=self._wait, daemon=True)
            self._thread.start()
        for number in self._early:
            child.send_signal(number)

    def __exit__(self, *_: object) -> None:
        self._child = None
        if self._thread is not None:
            signal.pthread_kill(self._thread.ident or 0, signal.SIGUSR1)
            self._thread.join()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _wait(self) -> None:
        while (child := self._child) is not None:
            found = signal.sigwaitinfo(_FORWARDED)
            if self._child is not None and found.si_code != _OF_THE_KERNEL:
                child.send_signal(found.si_signo)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        elif number != signal.SIGINT or not sys.stdin or not sys.stdin.isatty():
            self._child.send_signal(number)


def _is_single_threaded() -> bool:
    """Return True if this process has one thread only.

    Another thread could be given a signal that the main thread blocks. It could not hand the signal
    to the main thread, which waits for the program.
    """
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


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
    from torchreel.store.post_mortem import settle

    with Store.open(target, write=True) as store:
        mine = [row for row in queries.recordings(store) if row.run == run]
        main = _main_recording(mine, pid)
        with store.writer() as direct:
            writer = RedactingWriter(direct, Redactor(rules, argv=command))
            if main is not None:
                writer.update("recordings", main.id, **_ending(main, status))
            elif not mine and not status and not _elsewhere(target, started):
                row = _empty_recording(run, command, pid, started)
                writer.add("recordings", **row, **_how(status), status="done")
        settle(store)


def _is_without(target: str, run: str, started: int) -> bool:
    """Return True if no process of the program recorded anything."""
    from torchreel.store import queries

    found: list[Recording] = []
    with fail_open("launch", quiet=True) as attempt, Store.open(target) as store:
        found = [row for row in queries.recordings(store) if row.run == run]
    return attempt.kind is None and not found and not _elsewhere(target, started)


def _elsewhere(target: str, started: int) -> bool:
    """Return True if ranks of the program wrote files of their own beside the store."""
    return any(file.stat().st_mtime_ns >= started for file in locks.own_files(target))


def _main_recording(rows: Sequence[Recording], pid: int) -> Recording | None:
    """Return the recording of the program itself; of a shell's only child when that was the
    program.
    """
    own = [row for row in rows if row.pid == pid]
    return own[-1] if own else rows[0] if len(rows) == 1 else None


def _ending(recording: Recording, status: int) -> dict[str, object]:
    return {**_how(status), "ended_ns": recording.ended_ns or time.time_ns()}


def _how(status: int) -> dict[str, object]:
    """Return exit status and signal; a shell reports the signal of its child as 128 + N."""
    number = -status if status < 0 else status - 128 if status > 128 else 0
    try:
        name = signal.Signals(number).name if number else None
    except ValueError:
        name = None
    return {"exit_status": status if status >= 0 else 128 - status, "exit_signal": name}


def _empty_recording(run: str, command: Sequence[str], pid: int, started: int) -> dict[str, object]:
    """Return the recording of a program that ended well and compiled nothing."""
    return {
        "run": run,
        "kind": "program",
        "pid": pid,
        "argv": environment.arguments(command),
        "cwd": os.getcwd(),
        "started_ns": started,
        "ended_ns": time.time_ns(),
    }
