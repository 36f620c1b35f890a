"""What a command makes of a damaged store: an exit status, or a traceback, a hang, too much memory.

Lives here: running a command in a forked child with limits, and judging how it ended.  Not here:
which stores and which commands (`benchmarks.damaged`).  A fork of a warm process costs some
milliseconds; what the command would import is in memory already.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STATUSES = (0, 1, 2, 3, 4)
"""The exit statuses that mean something."""
ROOM = 1 << 30
"""Bytes that a command may take."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended, in what time, and the most memory that one of its processes had."""

    kind: str
    """`0` to `4`, `TRACEBACK`, `HANG` or `MEMORY`."""
    seconds: float
    peak: int
    said: str
    """The last lines on stderr."""

    @property
    def is_bad(self) -> bool:
        """Whether no command may end like that."""
        return not self.kind.isdigit()


def run(
    arguments: Sequence[str], folder: Path, *, seconds: float, room: int | None = ROOM
) -> Outcome:
    """Run `torchreel ARGUMENTS` in a fork of this process, in the folder.

    `room` limits its address space beyond what this process has; None leaves that to the watch.
    """
    output, errors = folder / "stdout", folder / "stderr"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(arguments, folder, output, errors, room)
    status, peak = _watch(pid, began + seconds)
    lasted = time.monotonic() - began
    said = errors.read_text(errors="replace") if errors.exists() else ""
    return Outcome(_kind(status, said, peak), lasted, peak, said[-1500:].strip())


def _child(
    arguments: Sequence[str], folder: Path, output: Path, errors: Path, room: int | None
) -> None:
    """Be the command; never returns."""
    os.setsid()
    os.chdir(folder)
    for path, descriptor in ((output, 1), (errors, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if room is not None:
        limit = _address_space() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    status = 70
    try:
        from torchreel.cli import main

        sys.argv = ["torchreel", *arguments]
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        if status == 70:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _watch(pid: int, deadline: float) -> tuple[int | None, int]:
    """Wait for the process, and look at the memory of its group; None for one that did not end."""
    base = _resident(os.getpid())
    peak, pause = 0, 0.002
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            _end(pid)
            return os.waitstatus_to_exitcode(status), peak
        peak = max(peak, _largest(pid, base))
        if time.monotonic() > deadline:
            _end(pid)
            os.waitpid(pid, 0)
            return None, peak
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _largest(pid: int, base: int) -> int:
    """The resident bytes of the process beyond what it was forked with, or of a child of it."""
    found = _resident(pid) - base
    with contextlib.suppress(OSError, ValueError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = max([found, *(_resident(int(child)) for child in children)])
    return max(0, found)


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(sizes[0]) << 10 if sizes else 0


def _kind(status: int | None, said: str, peak: int) -> str:
    if status is None:
        return "HANG"
    if "MemoryError" in said or peak > ROOM or status == -signal.SIGKILL:
        return "MEMORY"
    if status not in STATUSES or "Traceback (most recent call last)" in said:
        return "TRACEBACK"
    return str(status)
