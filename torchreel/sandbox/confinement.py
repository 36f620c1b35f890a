"""Confines this process for good: what it may write, start and reach from now on.

Lives here: the order of the steps, and the limits that need no kernel feature of their own. Not
here: the rules for files (`filesystem`), for system calls (`system_calls`), and what to say where a
kernel lacks one of the two (`missing`). Called in a child before it reads anything of a store.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchreel.errors import UnsupportedError
from torchreel.sandbox import filesystem, system_calls
from torchreel.sandbox.missing import missing
from torchreel.sandbox.readable import readable

_LARGEST_FILE = 4 << 30  # bytes: a child must not fill the disk
# Of <linux/prctl.h>: PR_SET_NO_NEW_PRIVS.
_NO_NEW_PRIVILEGES = 38
# Of <linux/capability.h>: version 3 of the call, and the two that let root read any file.
_CAPABILITY_VERSION = 0x20080522
_READ_ANY_FILE = 1 << 1 | 1 << 2

_confined_to: list[Path] = []


@dataclass(frozen=True)
class Confinement:
    """The rights of a confined process."""

    folder: Path
    """The one folder that it may write to. Its temporary files go there as well."""
    programs: tuple[Path, ...] = ()
    """The programs that it may start; none by default."""


def confine(allowed: Confinement) -> list[str]:
    """Confine this process, its threads and all that it starts, for as long as they live.

    Returns a sentence for each thing that this machine can't keep it from (see `missing`). Raises
    UnsupportedError where other threads run that can't be confined, or where the kernel refuses.
    """
    folder = allowed.folder.resolve()
    _use_for_temporary_files(folder)
    platform.processor()  # starts a program the first time; the answer is kept
    lacking = missing()
    _confined_to.append(folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_file_size()
    if sys.platform != "linux":
        return lacking
    try:
        _give_up_privileges()
        if filesystem.abi():
            filesystem.restrict(folder, allowed.programs)
        if system_calls.is_available():
            may_start = bool(allowed.programs)
            system_calls.restrict(programs=may_start, signals=filesystem.scopes_signals())
    except OSError as error:
        raise UnsupportedError(
            f"The process that works on the store could not be confined: {error}. If you trust who "
            "made the store, add --trust."
        ) from error
    return lacking


def prepare() -> None:
    """Find out what `confine` needs, so that the children of a warm process need not."""
    missing()
    readable()
    platform.processor()


def is_confined() -> bool:
    """Return True if this process has confined itself, as far as its kernel can do that."""
    return bool(_confined_to)


def _use_for_temporary_files(folder: Path) -> None:
    """Use it for this process, and for the C++ compiler that it starts."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def _limit_file_size() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = _LARGEST_FILE if hard == resource.RLIM_INFINITY else min(hard, _LARGEST_FILE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    """Effective, permitted and inheritable capabilities: the low words, then the high ones."""

    _fields_ = [("words", ctypes.c_uint32 * 6)]


def _give_up_privileges() -> None:
    """No program may raise them again. Of root's own, those stay that reading takes."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    header, sets = _Header(_CAPABILITY_VERSION, 0), _Sets()
    _check(libc.capget(ctypes.byref(header), ctypes.byref(sets)), "capget")
    effective, permitted, *_ = sets.words
    sets.words[:] = [effective & _READ_ANY_FILE, permitted & _READ_ANY_FILE, 0, 0, 0, 0]
    _check(libc.capset(ctypes.byref(header), ctypes.byref(sets)), "capset")


def _check(result: int, name: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
