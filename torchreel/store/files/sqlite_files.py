"""A store as a SQLite file: what may be opened, how, and how a new one appears.

`database` calls it. Nothing of the schema is known here, only what SQLite writes into the header of
a file (https://www.sqlite.org/fileformat.html#the_database_header).
"""

import contextlib
import errno
import os
import shutil
import sqlite3
import stat
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from torchreel.errors import (
    DamagedStore,
    LockedStore,
    MissingStore,
    NotAStore,
    StoreError,
    UsageError,
)
from torchreel.store.addressing import default_store
from torchreel.store.files import locks
from torchreel.store.reading.connections import Guarded

APPLICATION_ID = 0x7265656C
"""'reel': marks the file as ours, for us and for file(1)."""

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_PAGE_BYTES = 512
_LOG_BYTES = 4 << 20
"""The log is copied into the database when it is this long: what SQLite does with its own pages."""


def path_of(target: str | Path) -> Path | None:
    """Return the file that a path or a sqlite URL means; None for the URL of a server."""
    if isinstance(target, Path) or "://" not in target:
        return Path(target)
    # Imported late: the recorder has a path, and SQLAlchemy costs it 0.3 s.
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(target)
    except ArgumentError:
        return None  # refused by SQLAlchemy itself, when it is opened
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise UsageError("A store in memory would be gone at once: give a file, or another URL.")
    return Path(url.database)


_open_here: Counter[tuple[int, int]] = Counter()
"""The number of stores of this process that have a file open, by device and inode."""


def opened(path: Path) -> tuple[int, int]:
    """Note that a store of this process has the file at `path` open; give the key to `closed`."""
    key = _identity(path)
    _open_here[key] += 1
    return key


def closed(key: tuple[int, int]) -> None:
    """Note that a store which `opened` gave that key is closed."""
    _open_here[key] -= 1


def is_open_here(path: Path, times: int = 1) -> bool:
    """Return True if at least `times` stores of this process have the file open."""
    return _open_here[_identity(path)] >= times


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return (0, 0)
    return status.st_dev, status.st_ino


def has_content(path: Path) -> bool:
    """Return True if anything is at `path` that must not be replaced (an empty file may be)."""
    return os.path.exists(path) and (not path.is_file() or path.stat().st_size > 0)


def check(path: Path, *, write: bool) -> None:
    """Refuse a file that is missing, no store, truncated, or not open to us; by reading only.

    A file that this process has open is not looked at again: closing any descriptor of a file
    drops every POSIX lock of the process on it, under the feet of the open connection, and then
    another process may reset the log that it reads (https://www.sqlite.org/howtocorrupt.html).
    """
    if is_open_here(path):
        return _check_access(path, write)
    header = _read_header(path)
    if not header.startswith(_MAGIC):
        raise NotAStore(f"{path} is {_describe(header)}: it is no torchreel store.")
    if len(header) < _HEADER_BYTES:
        raise DamagedStore(f"{path} is damaged: it ends after {len(header)} bytes.")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise NotAStore(
            f"{path} is a SQLite database of another program: it is no torchreel store."
        )
    _check_length(path, header)
    _check_access(path, write)


def _check_beside(path: Path) -> None:
    """Refuse a log that is no file of its own: SQLite would write through a link, wait for a pipe.

    A store from a stranger may come with a log that is a link to any file of ours.
    """
    for suffix in ("-wal", "-shm", "-journal"):
        other = _beside(path, suffix)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(other.lstat().st_mode):
                raise DamagedStore(
                    f"{path} has beside it {other.name}, which should be a file and is none: "
                    "nothing of ours makes such a thing. Remove it."
                )


def _check_access(path: Path, write: bool) -> None:
    if write and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LockedStore(
            f"{path} can't be written to: the file or its directory is read-only. "
            "Copy it to a place of your own."
        )


def connect(path: Path, *, write: bool, busy_timeout_ms: int) -> Guarded:
    """Return a connection with transactions left to SQLAlchemy; one for reading changes no file.

    A read-only connection to a database in WAL mode creates the log's files when they are missing.
    They are missing when the last writer has closed the store: nobody writes, and the file can be
    opened as immutable, which creates nothing and works in a read-only directory. Each connection
    decides anew, because a writer may have come since. (Where another store of this process has the
    file open, closing an immutable connection would drop its locks: see `check`.)
    """
    _check_beside(path)
    if write:
        connection = _connect(path, f"mode=rw{_unlocked(path)}", busy_timeout_ms, write=True)
        _keep_to_itself(connection, path)
        connection.execute("PRAGMA foreign_keys = ON")
        # A committed transaction outlives the process; only a power cut may take the last ones.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // _PAGE_BYTES}")
        return connection
    if not _beside(path, "-wal").exists() and not is_open_here(path, times=2):
        return _connect(path, "mode=ro&immutable=1", busy_timeout_ms)
    if not locks.has_locks(path.parent):
        # A lock that the file system can't give looks like one that somebody else has: SQLite would
        # wait for it.
        return _connect_copy(path, busy_timeout_ms)
    try:
        connection = _connect(path, "mode=ro", busy_timeout_ms)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _NO_SHARING:
            raise
        return _connect_copy(path, busy_timeout_ms)


_NO_SHARING = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""Errors of SQLite for a write-ahead log in a directory that can't be written to."""


def _unlocked(path: Path) -> str:
    return "" if locks.has_locks(path.parent) else "&vfs=unix-none"


def _keep_to_itself(connection: sqlite3.Connection, path: Path) -> None:
    """Without locks there is one process, and one connection, that writes (`locks.own_file`)."""
    if not locks.has_locks(path.parent):
        # The index of the log is then in the memory of this process.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")


def create(path: Path, write_schema: Callable[[Path], None]) -> None:
    """Make a new store at `path`, complete at the moment it appears.

    It is written under another name and linked into place, so that two processes that create the
    same store at once, or one that dies half-way, leave one whole store or none.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.touch(exist_ok=False)
    except OSError as error:
        raise _not_created(path, error) from error
    except ValueError as error:
        raise LockedStore(f"{path} can't be created: {error}.") from error
    try:
        _prepare(draft)
        write_schema(draft)
        _check_draft(draft, path)
        _put_in_place(draft, path)
    except (OSError, sqlite3.Error) as error:
        raise _not_created(path, error) from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{draft}{suffix}")


def _check_draft(draft: Path, path: Path) -> None:
    """Refuse a draft that is not whole: of a full disk, closing a connection says nothing."""
    log = _beside(draft, "-wal")
    whole = not log.exists() or log.stat().st_size == 0
    try:
        _check_length(draft, _read_header(draft))
    except DamagedStore:
        whole = False
    if not whole:
        raise OSError(errno.ENOSPC, "the log could not be moved into the file", str(path))


def _not_created(path: Path, error: OSError | sqlite3.Error) -> StoreError:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return StoreError(f"{path} can't be created: the disk is full.")
    return LockedStore(f"{path} can't be created: {getattr(error, 'strerror', None) or error}.")


def _prepare(draft: Path) -> None:
    connection = sqlite3.connect(f"{_uri(draft)}?mode=rw{_unlocked(draft)}", uri=True)
    try:
        _keep_to_itself(connection, draft)
        # Most tables of most stores are small, and each takes a page at least.
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        # Before any table is there: only so can the file be made smaller, in steps (`retention`).
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # Before WAL is on: the mark has to stand in the file itself, not in the log beside it.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # By which a process sees that another store was copied over this one (`descriptors`).
        drawn = int.from_bytes(os.urandom(4), "big") >> 1  # `secrets` may be a file of the program
        connection.execute(f"PRAGMA user_version = {drawn}")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _put_in_place(draft: Path, path: Path) -> None:
    if path.exists() and path.stat().st_size == 0:
        draft.replace(path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        return  # another process was faster: its store is as good as ours
    except OSError:  # a file system without hard links
        if not path.exists():
            draft.replace(path)


def _connect(path: Path, parameters: str, busy_timeout_ms: int, *, write: bool = False) -> Guarded:
    connection = sqlite3.connect(
        f"{_uri(path)}?{parameters}",
        uri=True,
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        factory=Guarded,
    )
    connection.guard(path, write=write)
    return connection


def _connect_copy(path: Path, busy_timeout_ms: int) -> Guarded:
    """Read a store whose log was left behind in a directory we can't write to, from a copy."""
    directory = tempfile.mkdtemp(prefix="torchreel-")
    try:
        copy = Path(directory, "copy.db")
        shutil.copyfile(path, copy)
        shutil.copyfile(_beside(path, "-wal"), _beside(copy, "-wal"))
        connection = _connect(copy, f"mode=rw{_unlocked(copy)}", busy_timeout_ms)
        _keep_to_itself(connection, copy)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection
    finally:
        # the open connection keeps the files; their names are not needed any more
        shutil.rmtree(directory, ignore_errors=True)


def _read_header(path: Path) -> bytes:
    try:
        # Waits for nobody: a pipe without a writer would keep us for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(kind):
                raise NotAStore(f"{path} is a directory: name the store's file.")
            if not stat.S_ISREG(kind):
                raise NotAStore(f"{path} is {_kind(kind)}: name the store's file.")
            return os.read(descriptor, _HEADER_BYTES)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise MissingStore(
            _written_beside(path)
            or f"There is no store at {path}: record one with 'torchreel record', or name another"
            f"{' with TORCHREEL_STORE' if path == Path(default_store()) else ''}."
        ) from None
    except NotADirectoryError:
        raise MissingStore(f"There is no store at {path}: a part of it is a file.") from None
    except ValueError:
        raise MissingStore(
            f"There can be no store at {str(path)!r}: no file has that name."
        ) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody can open a socket
            raise NotAStore(f"{path} is a socket or a device: name the store's file.") from error
        raise LockedStore(f"{path} can't be read: {error.strerror}.") from error


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a terminal or another device" if stat.S_ISCHR(mode) else "a device"


def _written_beside(path: Path) -> str:
    """Return the sentence about a store that each process wrote a part of, in a file of its own."""
    found = locks.own_files(path)
    names = ", ".join(str(file) for file in found[:8]) + (", ..." if len(found) > 8 else "")
    if not found:
        return ""
    return (
        f"There is no store at {path}: its file system can't be shared between processes, and each "
        f"wrote a file of its own. Name one: {names}."
    )


def _check_length(path: Path, header: bytes) -> None:
    """Refuse a file shorter than its header says; while a log exists, the header may be ahead."""
    page = int.from_bytes(header[16:18])
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32])
    found = path.stat().st_size
    if found < expected and not os.path.lexists(_beside(path, "-wal")):
        raise DamagedStore(
            f"{path} is damaged: it should be {expected} bytes long and has {found}. "
            "Copy it again from where it came from."
        )


def _describe(header: bytes) -> str:
    if not header:
        return "an empty file"
    return "a text file" if header.isascii() and b"\x00" not in header else "not a database"


def _uri(path: Path) -> str:
    # Not Path.as_uri: it refuses relative paths, and surrogates (undecodable names) need care.
    return "file:" + quote(os.fsencode(path.absolute()))


def _beside(path: Path, suffix: str) -> Path:
    # SQLite puts its files beside the file itself, not beside a link to it.
    real = path.resolve()
    return real.with_name(real.name + suffix)
