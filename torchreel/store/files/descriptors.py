"""The file descriptors through which SQLite has a store open, and whether they still are that.

Lives here: what a recorder looks at before each transaction.  Not here: what is done about it
(`direct`).  A program that closes descriptors it does not know (`os.closerange`) closes those of
SQLite, and the next files that it opens get their numbers: SQLite would write pages into them.  A
program that overwrites the file in place would get our pages among its own text.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path

_SUFFIXES = ("", "-wal", "-shm")
_DIRECTORY = "/proc/self/fd"
_HEADER_BYTES = 100
_NAMES = (slice(0, 16), slice(60, 64), slice(68, 72))
"""Parts of the header that never change: the magic, the number that `sqlite_files.create` gave the
store, and the application id."""

_MOST_WAIT_S = 1.0

_in_use = threading.RLock()
"""Held while SQLite may write; entered again by a signal handler that closes descriptors."""
_closerange = os.closerange

Identity = tuple[int, int]


@contextmanager
def kept_open() -> Iterator[None]:
    """Let an `os.closerange` of another thread wait until SQLite has written.

    Between the look at its descriptors and the end of a commit they could be closed, and their
    numbers given to files of the program.  A program that closes them one by one, or in C, is not
    held up.
    """
    with _in_use:
        yield


@wraps(_closerange)
def _closerange_when_unused(fd_low: int, fd_high: int, /) -> None:
    held = _in_use.acquire(timeout=_MOST_WAIT_S)
    try:
        _closerange(fd_low, fd_high)
    finally:
        if held:
            _in_use.release()


# By which a pickle finds it: the builtin one is of `posix`, which keeps that.
_closerange_when_unused.__module__ = "os"


def watch_closerange() -> None:
    """Let `os.closerange` wait for `kept_open` from now on."""
    global _closerange
    if os.closerange is not _closerange_when_unused:
        _closerange = os.closerange
        os.closerange = _closerange_when_unused


def leave_closerange() -> None:
    """Put back what `watch_closerange` found, unless somebody has wrapped it since."""
    global _in_use
    _in_use = threading.RLock()
    if os.closerange is _closerange_when_unused:
        os.closerange = _closerange


def of_file(path: Path) -> dict[str, set[int]]:
    """Return the descriptors of this process that are open on a store's files; none where no /proc
    is.
    """
    files: dict[Identity, str] = {}
    for suffix in _SUFFIXES:
        with suppress(OSError, ValueError):
            files[_key(os.stat(f"{path}{suffix}"))] = suffix
    found: dict[str, set[int]] = {suffix: set() for suffix in _SUFFIXES}
    with suppress(OSError):
        for name in os.listdir(_DIRECTORY):
            key = identity(int(name))
            if key in files:
                found[files[key]].add(int(name))
    return found


def identity(descriptor: int) -> Identity | None:
    """Return the identity of the file that a descriptor is open on; None when it is closed."""
    try:
        return _key(os.fstat(descriptor))
    except OSError:
        return None


def _key(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


@contextmanager
def standard_ones_stay_closed() -> Iterator[None]:
    """Close again the descriptors 0, 1 and 2 that SQLite opens where the program has closed these.

    It never opens a store there, where `print` would write into it, and has /dev/null there instead
    (`robust_open` in os_unix.c).
    """
    closed = [number for number in range(3) if identity(number) is None]
    try:
        yield
    finally:
        if closed:
            null = identity_of_null()
            for number in closed:
                if null is not None and identity(number) == null and _may_be_sqlites(number):
                    os.close(number)


def _may_be_sqlites(number: int) -> bool:
    """Return False for an output that the program has opened meanwhile: SQLite only reads."""
    reading = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    return number == 0 or reading


def identity_of_null() -> Identity | None:
    """Return the identity of /dev/null; None if there is none."""
    with suppress(OSError):
        return _key(os.stat(os.devnull))
    return None


class Descriptors:
    """The file descriptors of one connection: those that were not open before it."""

    def __init__(self, path: Path, before: dict[str, set[int]]) -> None:
        after = of_file(path)
        self._held: dict[int, Identity | None] = {}
        self._main: int | None = None
        for suffix in _SUFFIXES:
            new = after[suffix] - before[suffix]
            if len(new) != 1:
                continue  # another thread opened it too, or SQLite took one that it had
            (descriptor,) = new
            self._held[descriptor] = identity(descriptor)
            if suffix == "":
                self._main = descriptor
        self._header = self._names()

    @property
    def are_open(self) -> bool:
        """Return True if all are still open, each on its file."""
        return all(identity(descriptor) == key for descriptor, key in self._held.items())

    @property
    def is_same_store(self) -> bool:
        """Return True if the header of the file is that of the store that was opened."""
        return self._main is None or self._names() == self._header

    def _names(self) -> list[bytes]:
        if self._main is None:
            return []
        # Through SQLite's own: to close another one would drop the locks of this process.
        header = os.pread(self._main, _HEADER_BYTES, 0)
        return [header[part] for part in _NAMES]

    def remove_logs(self, path: Path) -> None:
        """Delete the logs of an overwritten store: they would pass for those of the new one."""
        for suffix in _SUFFIXES[1:]:
            with suppress(OSError):
                if _key(os.stat(f"{path}{suffix}")) in self._held.values():
                    os.unlink(f"{path}{suffix}")


def leave_open(connection: object) -> None:
    """Do not close a connection, also not as the interpreter ends: it is not ours any more."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
