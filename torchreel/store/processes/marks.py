"""Marks how the compiles of a process stand, in a small file beside its store.

Lives here: the file, written by the recorder as each compile enters a stage or returns, and read
once the process is gone.  Not here: what follows from it (`post_mortem`, `queries`).

A row that says so reaches the store a moment later, by another thread, and never when the disk is
full.  A mark costs one write of 32 bytes into a file whose room is taken at the start: it is in the
page cache when the write returns, and so outlives the process, without fsync.  The file is opened
for each mark: a descriptor that stays open may be closed by the program, and its number be given to
a file of the program's.  No memory map: one of a file that is cut short ends the process.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import stat
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchreel.patterns import lazy_text
from torchreel.store.passwords import hidden
from torchreel.store.processes.liveness import machine_identity

KEY = "marks"
"""The key in `environment` under which a recording says where its marks are: `BESIDE` or `NOWHERE`.

A recording without it was made by a version that had none."""
BESIDE, NOWHERE = "file", "none"

_MAGIC = b"reelmar2"
_WITHOUT_PLACES = b"reelmark"
"""The magic of an older version, which had marks in all of its room."""
_HEADER = struct.Struct("<8sQ16s")
"""The magic, a flag (the process has ended in order), and a digest of the machine."""
_ENDED = struct.pack("<8sQ", _MAGIC, 1)
_RECORD = struct.Struct("<QQQQ")
"""The number of the mark (from 1), when it was set, when its compile began, a status."""
_SLOTS = 383
"""Marks in the file, the last ones: 12 KiB with the header.  The rows of compiles that returned
earlier are in the store."""
_PLACE = struct.Struct("<QQ112s")
"""The number of the place (from 1), when its compile began, and where it is: the stage, the
partition and the node, as UTF-8 with zero bytes between and after them."""
_PLACES = 32
"""Places in the file, the last ones: after the marks, 4 KiB."""
_PLACES_AT = _HEADER.size + _SLOTS * _RECORD.size
_SIZE = _PLACES_AT + _PLACES * _PLACE.size
"""16 KiB: a program that limits the size of its files may be ended by a write beyond."""
_STATUSES = ("running", "ok", "failed", "restarted", "stopped", "hung", "skipped")
_NAME = lazy_text(r"-marks-(\d+)-(\d+)")


def path_of(target: str, pid: int, started_ns: int) -> Path:
    """Return the file of the recording that a process began then in the store at `target`.

    Beside a file, as SQLite's own are; for a server, among the temporary files of this machine.
    """
    name = f"-marks-{pid}-{started_ns}"
    if "://" in target:
        import hashlib
        import tempfile

        digest = hashlib.sha256(hidden(target).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir(), f"torchreel-{digest}{name}")
    real = Path(target).resolve()
    return real.with_name(f"{real.name}{name}")


class Marks:
    """The file in which a recorder marks the compiles that have returned; never raises OSError.

    Any thread may mark, also in a signal handler that interrupts one: there is no lock.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._broken = False
        self._numbers, self._places = itertools.count(1), itertools.count(1)
        self._waiting: deque[tuple[int, bytes]] = deque(maxlen=_SLOTS)

    def create(self, target: str, pid: int, started_ns: int) -> str:
        """Make the file; return where the marks are, for `KEY`."""
        path = path_of(target, pid, started_ns)
        if not _create(path):
            self._broken = True
            self._waiting.clear()
            return NOWHERE
        self._path = path
        self._write()
        return BESIDE

    def mark(self, started_ns: int, status: str) -> None:
        """Mark that the compile which began then has returned with `status`, or goes on."""
        if self._broken or status not in _STATUSES:
            return
        number = next(self._numbers)
        record = _RECORD.pack(number, time.time_ns(), started_ns, _STATUSES.index(status))
        self._waiting.append((_HEADER.size + number % _SLOTS * _RECORD.size, record))
        self._write()

    def enter(self, started_ns: int, place: Place) -> None:
        """Mark that the compile which began then has come to a place."""
        if self._broken:
            return
        number = next(self._places)
        text = "\0".join(place).encode(errors="replace")
        record = _PLACE.pack(number, started_ns, text)
        self._waiting.append((_PLACES_AT + number % _PLACES * _PLACE.size, record))
        self._write()

    def end(self, *, written: bool) -> None:
        """Remove the file when the process ends (if all is `written`), or note the end in it."""
        path, self._path = self._path, None
        self._broken = True
        if path is None:
            return
        with contextlib.suppress(OSError):
            if written:
                path.unlink()
            else:
                _write_at(path, 0, _ENDED)

    def _write(self) -> None:
        path = self._path
        if path is None:
            return  # the store is not open yet: `create` writes what waits
        while self._waiting:
            try:
                at, record = self._waiting.popleft()
                _write_at(path, at, record)
            except IndexError:  # another thread was faster
                return
            except OSError:
                self._broken = True
                return


def _create(path: Path) -> bool:
    """Make the file with all its room; False, and no file, where that is impossible."""
    try:
        _check_limit(_SIZE)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except (OSError, ValueError):
        return False
    room = _HEADER.pack(_MAGIC, 0, _machine()) + bytes(_SIZE - _HEADER.size)
    try:
        whole = os.write(handle, room) == len(room)
    except OSError:
        whole = False
    finally:
        os.close(handle)
    if not whole:
        with contextlib.suppress(OSError):
            path.unlink()
    return whole


def _check_limit(size: int) -> None:
    """Raise OSError where the process may not write so far: doing so would end it (SIGXFSZ)."""
    if _limit() < size:
        raise OSError(errno.EFBIG, "the process may not write so far into a file")


def _limit() -> float:
    """Return how many bytes a file may have that this process writes.

    Not asked of Python's `resource`: the program may have a file of that name, which an import
    would execute.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/limits").read_text()
        found = text.partition("Max file size")[2].split(None, 1)[0]
        return math.inf if found == "unlimited" else int(found)
    return math.inf


def _machine() -> bytes:
    """Return a digest of boot and pid namespace, where process ids are valid; zeros if unknown."""
    import hashlib

    identity = machine_identity()
    digest = hashlib.blake2b((identity or "").encode(), digest_size=16).digest()
    return digest if identity else bytes(16)


def _write_at(path: Path, place: int, data: bytes) -> None:
    _check_limit(place + len(data))
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(handle, data, place)
    finally:
        os.close(handle)


class Place(NamedTuple):
    """The place in the pipeline that a compile has come to."""

    stage: str
    partition: str = ""
    node: str = ""
    """The node that is being lowered, if any."""


class Ends(NamedTuple):
    """The content of the marks of a process."""

    orderly: bool
    """True if the process ended in order, even if the store could not be written."""
    statuses: dict[int, str]
    """By when a compile began: the last mark of it."""
    complete_since: int
    """No mark that was set at or after this time is missing."""
    places: dict[int, Place]
    """By when a compile began: where it was last, if that is known."""

    def of(self, started_ns: int) -> str:
        """Return the status of the compile when the process ended, or 'running' or 'unknown'."""
        if started_ns in self.statuses:
            return self.statuses[started_ns]
        return "running" if started_ns >= self.complete_since else "unknown"


def read(target: str, pid: int, started_ns: int) -> Ends | None:
    """Return the marks of a process; None where there are none, or the file is something else."""
    data = _content(target, pid, started_ns)
    return None if data is None else _parsed(data)


def is_of_this_machine(target: str, pid: int, started_ns: int) -> bool:
    """Return True if the process ran in this boot and pid namespace, where its id is valid."""
    data = _content(target, pid, started_ns)
    place = None if data is None else _HEADER.unpack_from(data)[2]
    return place == _machine() != bytes(16)


_LONG = 3600.0


def may_go_on_elsewhere(target: str, pid: int, started_ns: int) -> bool:
    """Return True if a process of another machine that shares the disk may still write.

    This is so if the process wrote its marks or its store in the last hour, and after this machine
    was started. What was written before the start may be from this machine.
    """
    data = _content(target, pid, started_ns)
    place = None if data is None else _HEADER.unpack_from(data)[2]
    if place in (None, bytes(16), _machine()):
        return False
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    touched = [booted]
    for name in (path_of(target, pid, started_ns), target):
        with contextlib.suppress(OSError):
            touched.append(os.stat(name).st_mtime)
    return max(touched) > max(booted, time.time() - _LONG)


def _content(target: str, pid: int, started_ns: int) -> bytes | None:
    """Return a file of marks, if it is one: it has its size and its beginning."""
    try:
        handle = os.open(path_of(target, pid, started_ns), _READING)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        data = os.pread(handle, _SIZE, 0)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) == _SIZE and data.startswith((_MAGIC, _WITHOUT_PLACES)) else None


_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A stranger's file may be a pipe, or a link."""


def _parsed(data: bytes) -> Ends:
    end = _PLACES_AT if data.startswith(_MAGIC) else _SIZE
    marks, places = data[_HEADER.size : end], data[end:]
    found = sorted(record for record in _RECORD.iter_unpack(marks) if record[0])
    statuses = {began: _STATUSES[code] for *_, began, code in found if code < len(_STATUSES)}
    is_full = len(found) == len(marks) // _RECORD.size
    complete_since = found[0][1] if is_full else 0
    return Ends(_HEADER.unpack_from(data)[1] == 1, statuses, complete_since, _last_places(places))


def _last_places(data: bytes) -> dict[int, Place]:
    found = sorted(record for record in _PLACE.iter_unpack(data) if record[0])
    parts = {began: text.decode(errors="replace").split("\0") for _, began, text in found}
    places = {began: Place(*texts[: len(Place._fields)]) for began, texts in parts.items()}
    # A damaged file, or a stranger's, may hold anything: stages and nodes are names.
    return {
        began: place
        for began, place in places.items()
        if all(not text or text.isidentifier() for text in place)
    }


def remove(target: str, pid: int, started_ns: int) -> None:
    """Remove the marks of a process that is gone, once the store has their content."""
    with contextlib.suppress(OSError, ValueError):
        path_of(target, pid, started_ns).unlink()


def left_behind(target: str) -> Iterator[tuple[int, int]]:
    """Yield the process id and the beginning of every recording that has marks beside the store."""
    if "://" in target:
        return
    real = Path(target).resolve()
    with contextlib.suppress(OSError, ValueError):
        for name in os.listdir(real.parent):
            if name.startswith(real.name) and (found := _NAME.fullmatch(name[len(real.name) :])):
                yield int(found[1]), int(found[2])
