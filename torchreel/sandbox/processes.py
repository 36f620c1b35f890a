"""Child processes: that they end with their parent, what memory they take, ending a group of them.

Lives here: what the kernel is asked for (prctl(2), /proc). Not here: what a child may reach
(`confinement`), how much time and memory it may take (who starts it says so), what it does. Called
by the children of replay and minifier, and by what watches them. Nothing torch.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

# Of <linux/prctl.h>: PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER.
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
# The id of the process that a child ends with.
_PARENT = "TORCHREEL_PARENT"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Resident memory of a process and all below it, in bytes; 0 for one that is gone."""
    return _resident_of(pid) + sum(resident(child) for child in _children(pid))


def _resident_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def available_memory() -> int:
    """Memory that could be used now, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 8 << 30


def named_parent(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that is started by this process and ends with it."""
    return {**environment, _PARENT: str(os.getpid())}


def follow_parent() -> None:
    """End with the process that started this one, if it used `named_parent`."""
    parent = os.environ.pop(_PARENT, "")
    if parent.isdecimal():
        die_with_parent(int(parent))


def die_with_parent(parent: int) -> None:
    """Let the kernel end this process when the one with the id `parent` ends (Linux only).

    The kernel looks at the thread that forked: one that ends before its children would end them.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # which ended before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)


def exit_quickly() -> NoReturn:
    """End this process with status 0, and leave its memory to the kernel.

    What Python does at the end is done (`atexit`, buffers), but for taking all modules apart: with
    torch that costs 1.6 s of a processor, which is most of what the replay of a small frame takes.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of what our children leave behind (prctl(2), Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def end_children() -> None:
    """End every child of this process, and what those leave behind, until there is none."""
    while found := _children(os.getpid()):
        for pid in found:
            kill_group(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def has_ended(pid: int) -> bool:
    """Return True if a child has ended; it stays a zombie, to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(pid: int) -> None:
    """End what a process left behind in the group that it led, and that nobody may leave."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """End a process that leads a group, and the whole group (a C++ compiler that it started)."""
    end_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def private_channel() -> IO[bytes]:
    """Keep standard output to ourselves: whatever else prints, prints to standard error."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel
