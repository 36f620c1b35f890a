"""The recorder's way into a SQLite file: the same rows as `writer`, without SQLAlchemy.

To import SQLAlchemy takes 0.3 s of CPU, a tenth of a small compile, and each statement of its Core
ten times the microseconds of sqlite3.  A recorded program pays neither: it only ever inserts and
updates rows, in a file whose schema it knows.  Everything else (reading, migrations, a server)
goes through `database`; a test holds the two writers to the same rows.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from torchreel.errors import MissingStore
from torchreel.store import configs
from torchreel.store.blobs.packing import PACKED, pack
from torchreel.store.blobs.packs import MOST_IN_PACK, OpenPack
from torchreel.store.configs import ConfigEntry
from torchreel.store.documents.jsontypes import digest_of, json_text
from torchreel.store.files import driver_errors, sqlite_files
from torchreel.store.files.descriptors import (
    Descriptors,
    kept_open,
    leave_closerange,
    leave_open,
    of_file,
    standard_ones_stay_closed,
    watch_closerange,
)
from torchreel.store.reading.file_schema import ENTRIES

_BUSY_TIMEOUT_MS = 5000
_TURN_MS = 20
"""Milliseconds after which a writer begins to look for the lock in short intervals again.

SQLite waits longer and longer between two looks at a lock. So a writer that has waited long finds
the lock taken by newer ones: among eight busy writers, one waited for six seconds."""
_KEPT_DIGESTS = 20_000
"""Blobs that are known to be there, at most: 64 bytes each."""

_open: weakref.WeakSet[DirectStore] = weakref.WeakSet()


def write_schema(path: Path) -> None:
    """Make the empty file at `path` a store."""
    connection = sqlite_files.connect(path, write=True, busy_timeout_ms=_BUSY_TIMEOUT_MS)
    try:
        text = files("torchreel.store").joinpath("schema.sql").read_text()
        connection.executescript(f"BEGIN;{text}COMMIT;")
    finally:
        connection.close()


class DirectStore:
    """An open SQLite file, for writing only."""

    def __init__(self, path: Path) -> None:
        self.target = str(path)
        place = path.absolute()  # the program may change its directory
        self._release = weakref.finalize(self, sqlite_files.closed, sqlite_files.opened(place))
        self._file = place.resolve()
        self._abandoned = False
        watch_closerange()
        with self._translated(), kept_open():
            before = of_file(self._file)
            self.connection = sqlite_files.connect(
                place, write=True, busy_timeout_ms=_BUSY_TIMEOUT_MS
            )
            # A transaction writes nothing before it commits.
            self.connection.execute("PRAGMA cache_spill = OFF")
            # Only then is the log open as well.
            self.connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            self._descriptors = Descriptors(self._file, before)
        self._digests: set[str] = set()
        self._pack = OpenPack()
        self._version: object = None
        _open.add(self)

    @property
    def revision(self) -> str | None:
        """The schema's revision; None when there is no telling."""
        try:
            found = self.connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            return None
        return str(found[0]) if found else None

    def schema(self) -> list[tuple[object, ...]]:
        """Return the tables and indices, with their SQL."""
        return self.connection.execute(ENTRIES).fetchall()

    @contextmanager
    def writer(self) -> Iterator[DirectWriter]:
        """Yield a writer in one transaction, which ends with a commit, on an error a rollback."""
        with self._translated(), standard_ones_stay_closed():
            self.check_descriptors()
            self._begin()
            self._check_version()
            writer = DirectWriter(self.connection, self._digests, self._pack)
            try:
                yield writer
                writer.flush()
                with kept_open():
                    # Again, for everything is written now: see `cache_spill`.
                    self.check_descriptors()
                    self.connection.execute("COMMIT")
            except BaseException:
                self._pack.end()
                if not self._abandoned:
                    self._roll_back()
                raise
        self._remember(writer.new_digests)

    def check_descriptors(self) -> None:
        """Raise MissingStore, and touch the file no more, when it is not the one it was."""
        if self._abandoned or not self._descriptors.are_open:
            self._abandon()
            raise MissingStore(f"{self.target} was closed by the program, which recorded into it.")
        if not self._descriptors.is_same_store:
            self._abandon()
            self._descriptors.remove_logs(self._file)
            raise MissingStore(f"{self.target} was overwritten while it was recorded into.")

    def _abandon(self) -> None:
        """Neither use nor close the connection any more: that would write into other files."""
        if not self._abandoned:
            self._abandoned = True
            leave_open(self.connection)

    def _begin(self) -> None:
        # IMMEDIATE takes the write lock at once: see database._begin.
        self.connection.execute(f"PRAGMA busy_timeout = {_TURN_MS}")
        self.connection.begin()
        until = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise

    def _check_version(self) -> None:
        """Forget which blobs are there when somebody else has written: it may have deleted some."""
        version = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._digests.clear()
            if not self._has_open_pack():
                self._pack.end()

    def _has_open_pack(self) -> bool:
        """Return True if the last part of the open pack is still in the file, and so all others."""
        query = "SELECT data FROM packs WHERE id = ? AND coalesce(first, id) = ?"
        here = (self._pack.last, self._pack.first)
        found = self.connection.execute(query, here).fetchone()
        return bool(found == (self._pack.last_data,))

    def _remember(self, digests: Iterable[str]) -> None:
        if len(self._digests) > _KEPT_DIGESTS:
            self._digests.clear()
        self._digests.update(digests)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            # A row of ours that may not be: it is left out, the store is not damaged.
            self._roll_back_quietly()
            raise
        except sqlite3.Error as error:
            # A COMMIT that failed (busy, disk full) leaves its transaction open.
            self._roll_back_quietly()
            found = driver_errors.store_error(error, self.target)
            if found is None:
                raise
            raise found from error

    def _roll_back_quietly(self) -> None:
        # There may be no connection, or no transaction any more.
        with suppress(sqlite3.Error, AttributeError):
            self._roll_back()

    def close(self) -> None:
        """Give the file back."""
        _open.discard(self)
        with suppress(MissingStore), standard_ones_stay_closed(), kept_open():
            self.check_descriptors()
            self.connection.close()
        if not _open:
            leave_closerange()
        self._release()


class DirectWriter:
    """Writes as `writer.Writer` does, but in the transaction of a sqlite3 connection."""

    def __init__(self, connection: sqlite3.Connection, digests: set[str], pack: OpenPack) -> None:
        self.connection = connection
        self._known = digests
        self._pack = pack
        self.new_digests: set[str] = set()
        self._waiting: list[tuple[str, bytes]] = []
        self._bytes_waiting = 0

    def blob(self, data: bytes) -> str:
        """Store `data` once, compressed, and return its digest."""
        digest = digest_of(data)
        if digest in self._known or digest in self.new_digests:
            return digest
        query = "SELECT 1 FROM blobs WHERE digest = ?"
        if self.connection.execute(query, (digest,)).fetchone() is None:
            self._put(digest, data)
        self.new_digests.add(digest)
        return digest

    def _put(self, digest: str, data: bytes) -> None:
        if len(data) > MOST_IN_PACK:
            self._put_alone(digest, data)
            return
        self._waiting.append((digest, data))
        self._bytes_waiting += len(data)
        if self._bytes_waiting > MOST_IN_PACK:
            self.flush()

    def _put_alone(self, digest: str, data: bytes) -> None:
        codec, packed = pack(data)
        self.add("blobs", digest=digest, codec=codec, size=len(data), data=packed)

    def flush(self) -> None:
        """Write the blobs that wait for their pack."""
        waiting, self._waiting, self._bytes_waiting = self._waiting, [], 0
        if not waiting:
            return
        part, start = self._pack.add(data for _, data in waiting), 0
        row = {"size": part.size, "data": part.data, "dictionary": part.dictionary}
        pack_id = self.add("packs", **row, first=self._pack.first)
        self._pack.written(pack_id, part)
        for digest, data in waiting:
            row = {"digest": digest, "codec": PACKED, "size": len(data), "data": b""}
            self.add("blobs", **row, pack=pack_id, start=start)
            start += len(data)

    def forget(self, digests: Iterable[str]) -> None:
        """Forget blobs that were deleted, and end the open pack: its parts may be deleted too."""
        self._pack.end()
        self._known.difference_update(digests)
        self.new_digests.difference_update(digests)

    def add(self, table_name: str, **columns: object) -> int:
        """Insert one row and return its new id."""
        cursor = self.connection.execute(_insert(table_name, tuple(columns)), _bound(columns))
        return int(cursor.lastrowid or 0)

    def add_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert rows in one go; a column that a row leaves out is null there."""
        columns = tuple(dict.fromkeys(column for row in rows for column in row))
        if rows:
            bound = [[_plain(row.get(column)) for column in columns] for row in rows]
            self.connection.executemany(_insert(table_name, columns), bound)

    def put(self, table_name: str, **columns: object) -> bool:
        """Insert one row unless its key (or a unique column of it) is taken; True if it was not."""
        statement = _insert(table_name, tuple(columns)).replace("INSERT", "INSERT OR IGNORE", 1)
        return self.connection.execute(statement, _bound(columns)).rowcount == 1

    def update(self, table_name: str, id: int, **columns: object) -> None:
        """Change columns of the row with that id."""
        changes = ", ".join(f'"{column}" = ?' for column in columns)
        statement = f'UPDATE "{table_name}" SET {changes} WHERE id = ?'
        self.connection.execute(statement, [*_bound(columns), id])

    def delete(self, table_name: str, id: int) -> None:
        """Delete the row with that id, and the rows that belong to it (blobs stay)."""
        self.connection.execute(f'DELETE FROM "{table_name}" WHERE id = ?', (id,))

    def config(self, entries: Sequence[ConfigEntry]) -> int:
        """Return the id of the config with exactly these entries, stored once however often it is
        used.
        """
        digest = configs.digest(entries)
        new = self.put("configs", digest=digest)
        query = "SELECT id FROM configs WHERE digest = ?"
        config_id = int(self.connection.execute(query, (digest,)).fetchone()[0])
        if new:
            self.add_many("config_entries", configs.rows(config_id, entries))
        return config_id

    def clear_losses(self, recording_id: int) -> None:
        """Forget what a recording says it has lost: it says it anew."""
        self.connection.execute("DELETE FROM lost WHERE recording_id = ?", (recording_id,))


def _insert(table: str, columns: tuple[str, ...]) -> str:
    """Return the statement; names of tables and columns are the code's own, never data."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))})'


def _bound(columns: Mapping[str, object]) -> list[Any]:
    return [_plain(value) for value in columns.values()]


def _plain(value: object) -> Any:
    """Return a value as sqlite3 takes it: JSON as its text, text without surrogates (as `schema`
    does).
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (dict, list, tuple)):
        return json_text(value)
    return value


def _after_fork_in_child() -> None:
    # The child must neither use nor close its parent's connections: closing one would drop the
    # parent's locks.
    for store in list(_open):
        store._abandon()
        store._release.detach()
    _open.clear()
    leave_closerange()


os.register_at_fork(after_in_child=_after_fork_in_child)
