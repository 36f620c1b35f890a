"""Facts about running processes, from /proc; and ending a group of them.

Called by `worker`, which has to watch its children. Nothing torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Resident memory of a process and its children, in bytes; 0 for one that is gone."""
    return _resident_of(pid) + sum(_resident_of(child) for child in _children(pid))


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


def die_with_parent() -> None:
    """Let the kernel end this process when the one that forked it ends (prctl(2), Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """End a process that leads a group, and the whole group (a C++ compiler that it started)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
