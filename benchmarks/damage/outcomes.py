"""What a command makes of a damaged store: an exit status, or a traceback, a hang, too much memory.

Lives here: running a command in a forked child with limits, and judging how it ended.  Not here:
which stores and which commands (`benchmarks.damaged`).  A fork of a warm process costs some
milliseconds; what the command would import is in memory already.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

STATUSES = (0, 1, 2, 3, 4)
"""The exit statuses that mean something."""
ROOM = 1 << 30
"""Bytes that a command may take."""

_LARGEST_FILE = 8 << 30
"""Bytes that a command may write into a file: one that writes without end must not fill a disk."""


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


@dataclass(frozen=True)
class Job:
    """A command, and what has to be done before it."""

    arguments: Sequence[str]
    prepare: Callable[[], None]


def run_together(
    jobs: Sequence[Job], folder: Path, *, seconds: float, room: int
) -> list[Outcome | None]:
    """Run the commands one after the other in one fork; None for each that has to be run alone.

    A fork costs more than most commands.  Nothing of a store outlives its command in a process:
    what torchreel keeps there depends on texts, never on a file.  A command that ends as none may
    is to be run alone, as is what comes after one that took the process with it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _enter(folder, room)
        for job in jobs:
            os.write(writing, json.dumps(_ended_here(job, folder)).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = [Outcome(*values) for values in _lines(pipe, seconds)]
    _end(pid)
    os.waitpid(pid, 0)
    whole = [outcome if not outcome.is_bad else None for outcome in found]
    return [*whole, *[None] * (len(jobs) - len(whole))]


def _lines(pipe: IO[bytes], seconds: float) -> Iterator[Any]:
    """The lines that come, each within so many seconds of the one before."""
    while select.select([pipe], [], [], seconds)[0]:
        line = pipe.readline()
        if not line.endswith(b"\n"):
            return
        yield json.loads(line)


def _ended_here(job: Job, folder: Path) -> tuple[str, float, int, str]:
    """Run a command in this process."""
    from torchreel.store.files import sqlite_files

    for descriptor in (1, 2):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
    os.chdir(folder)
    job.prepare()
    # A store that a command left open would make the next one skip its checks.
    sqlite_files._open_here.clear()
    base = _resident(os.getpid())
    Path("/proc/self/clear_refs").write_text("5")  # forget the most memory that there was
    began = time.monotonic()
    status = _status(job.arguments)
    lasted = time.monotonic() - began
    said = (folder / "stderr").read_text(errors="replace")
    peak = max(0, _resident(os.getpid(), "VmHWM:") - base)
    return _kind(status, said, peak), lasted, peak, said[-1500:].strip()


def run(
    arguments: Sequence[str], folder: Path, *, seconds: float, room: int | None = ROOM
) -> Outcome:
    """Run `torchreel ARGUMENTS` in a fork of this process, in the folder.

    `room` limits its address space beyond what this process has; None leaves that to the watch.
    """
    errors = folder / "stderr"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(arguments, folder, room)
    status, peak = _watch(pid, began + seconds)
    lasted = time.monotonic() - began
    said = errors.read_text(errors="replace") if errors.exists() else ""
    return Outcome(_kind(status, said, peak), lasted, peak, said[-1500:].strip())


def _child(arguments: Sequence[str], folder: Path, room: int | None) -> None:
    """Be the command; never returns."""
    _enter(folder, room)
    os._exit(_status(arguments))


def _enter(folder: Path, room: int | None) -> None:
    """Be a process of its own, with its own output and limits."""
    os.setsid()
    os.chdir(folder)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if room is not None:
        limit = _address_space() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _status(arguments: Sequence[str]) -> int:
    """Run a command; 70 after a traceback."""
    status = 70
    try:
        from torchreel.cli import main

        sys.argv = ["torchreel", *arguments]
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _watch(pid: int, deadline: float) -> tuple[int | None, int]:
    """Wait for the process, and look at the memory of its group; None for one that did not end."""
    base = _resident(os.getpid())
    peak, pause = 0, 0.004
    with _ended(pid) as looks:
        while not looks.poll(pause * 1000):
            peak = max(peak, _largest(pid, base))
            if time.monotonic() > deadline:
                _end(pid)
                os.waitpid(pid, 0)
                return None, peak
            pause = min(0.05, pause * 1.5)
    # What the kernel knows of the most that there was; what was mapped before the fork is in it.
    _, status, used = os.wait4(pid, 0)
    _end(pid)
    return os.waitstatus_to_exitcode(status), max(peak, (used.ru_maxrss << 10) - base)


@contextlib.contextmanager
def _ended(pid: int) -> Iterator[select.poll]:
    """Give what tells at once when a child has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        looks = select.poll()
        looks.register(descriptor, select.POLLIN)
        yield looks
    finally:
        os.close(descriptor)


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


def _resident(pid: int, key: str = "VmRSS:") -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith(key)]
    return int(sizes[0]) << 10 if sizes else 0


def _kind(status: int | None, said: str, peak: int) -> str:
    if status is None:
        return "HANG"
    if "MemoryError" in said or peak > ROOM or status == -signal.SIGKILL:
        return "MEMORY"
    if status not in STATUSES or "Traceback (most recent call last)" in said:
        return "TRACEBACK"
    return str(status)
