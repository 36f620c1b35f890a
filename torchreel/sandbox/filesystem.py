"""Rules for files, programs, TCP and signals: Landlock, which any process can apply to itself.

Lives here: which rights a confined process keeps. Not here: what it may read (`readable`). Called
by `confinement`. The library is imported late: no other system has it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from torchreel.errors import UnsupportedError
from torchreel.sandbox.readable import readable

# Opened for writing by half of all programs; what is written there is gone.
_SINKS = ("/dev/null", "/dev/zero", "/dev/full")
# Where there is a GPU, its kernels are compiled for it and run on it.
_GPUS = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")
_SIGNALS_SINCE = 6
_THREADS_SINCE = 8


@cache
def abi() -> int:
    """Return the version of Landlock in this kernel; 0 where there is none, or no library for
    it.
    """
    if sys.platform != "linux" or find_spec("landlockpy") is None:
        return 0
    import landlockpy

    try:
        return landlockpy.abi_version()
    except OSError:  # a container may forbid the call
        return 0


def scopes_signals() -> bool:
    """Return True if Landlock keeps signals from processes outside."""
    return abi() >= _SIGNALS_SINCE


def restrict(folder: Path, programs: tuple[Path, ...]) -> None:
    """Deny this process everything but reading, writing to a folder, and starting programs.

    Raises OSError where the kernel refuses, and UnsupportedError for threads that it can't reach.
    """
    from landlockpy import (
        AccessFS,
        AccessNet,
        RestrictFlag,
        Ruleset,
        Scope,
        fs_for_abi,
        net_for_abi,
    )

    # Names of files tell little, and are listed everywhere.
    everything = fs_for_abi(abi()) & ~AccessFS.READ_DIR
    # No links out of the folder, and no pipes in it that who reads it would wait for.
    special = (
        AccessFS.MAKE_SYM | AccessFS.MAKE_FIFO | AccessFS.MAKE_SOCK | AccessFS.MAKE_CHAR
        | AccessFS.MAKE_BLOCK | AccessFS.EXECUTE | AccessFS.IOCTL_DEV
    )  # fmt: skip
    network: AccessNet = net_for_abi(abi())
    scopes = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL
    device_rights = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.IOCTL_DEV
    with Ruleset(handled_fs=everything, handled_net=network, scoped=scopes) as rules:
        for path in readable():
            # Beside a home that lies in a folder of temporary files, files come and go.
            with suppress(FileNotFoundError):
                rules.allow_path(path, AccessFS.READ_FILE)
        for device in _devices():
            rules.allow_path(device, device_rights)
        for program in programs:
            rules.allow_path(program, AccessFS.EXECUTE | AccessFS.READ_FILE)
        rules.allow_path(folder, everything & ~special)
        _check_threads()
        rules.restrict(RestrictFlag.TSYNC)


def _devices() -> list[Path]:
    gpus = [path for pattern in _GPUS for path in Path("/").glob(pattern[1:])]
    return [*filter(Path.exists, map(Path, _SINKS)), *gpus]


def _check_threads() -> None:
    """Before TSYNC, Landlock confines the calling thread and those that it starts, no others."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1 and abi() < _THREADS_SINCE:
        raise UnsupportedError(
            f"The process that works on the store can't be confined, because {threads - 1} other "
            "threads run in it (a module named with --import started them) and this kernel's "
            "Landlock can't reach those. If you trust who made the store, add --trust."
        )
