"""`Store`: opens a store, refuses what is none, and hands out connections and writers.

Everything about files, versions, pragmas and transactions of the database lives here; the checks of
a SQLite file are in `sqlite_files`, the translation of database errors in `driver_errors`, the
tables in `schema`. The recorder, the replayer, the minifier and the command line all begin with
`Store.open`.
"""

import os
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool, Pool, QueuePool
from sqlalchemy.sql import visitors

from torchreel.errors import DamagedStore, LockedStore, NewerStore, NotAStore, UsageError
from torchreel.escaping.shell import command
from torchreel.store import limits
from torchreel.store.blobs import blobs
from torchreel.store.blobs.packing import LastPack
from torchreel.store.blobs.pages import Inline
from torchreel.store.files import driver_errors, locks, sqlite_files
from torchreel.store.files.direct import write_schema
from torchreel.store.passwords import hidden
from torchreel.store.reading import file_schema
from torchreel.store.reading.connections import Guarded, bytes_of
from torchreel.store.reading.rows import checked
from torchreel.store.revision import REVISION
from torchreel.store.schema import COMPUTED
from torchreel.store.servers import connections, roles, table_check
from torchreel.store.writer import Writer

WRITING, APPENDING, DELETING = ("INSERT", "UPDATE"), ("INSERT",), ("DELETE",)
"""Rights in the tables of a server: of whoever records or replays, pushes, and tidies up."""
BUSY_TIMEOUT_MS = 5000
"""Milliseconds that a writer waits for another process's transaction before it gives up."""

# After a fork, a child must neither use nor close its parent's SQLite connections (closing one
# would run a checkpoint on it): they are kept here, unused, until the child ends.
_abandoned: list[Pool] = []
_open_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


class Store:
    """An open store. Get one from `Store.open`; close it, or use it as a context manager.

    `target` is the path or URL that was opened, `engine` SQLAlchemy's engine.
    """

    def __init__(
        self, target: str, engine: Engine, *, writable: bool, path: Path | None = None
    ) -> None:
        self.target = target
        self._release = _hold(self, path)
        self.engine = engine
        self._last_pack = LastPack()
        self._unreadable: list[str] | None = None
        self._path = path
        self.writable = writable
        driver_errors.attach(engine, target)
        event.listen(engine, "begin", _begin)
        _open_stores.add(self)

    @classmethod
    def open(
        cls,
        target: str | Path,
        *,
        write: bool = False,
        create: bool = False,
        rights: Sequence[str] = WRITING,
    ) -> "Store":
        """Open the store at a path or SQLAlchemy URL.

        Reading changes and creates no file; an older store is migrated, in a copy that is read
        instead, or with `write` in place. `create` (which implies `write`) makes it first where
        there is none. On a server, whoever writes has to have `rights` in its tables.
        Raises StoreError, in the subclass that says what is wrong; nothing is damaged then.
        """
        path = sqlite_files.path_of(target)
        if path is None:
            return _open_server(str(target), rights if write or create else (), create)
        return _open_file(path, write or create, create)

    def connect(self) -> Connection:
        """Return a connection for reading: one consistent view until it is closed."""
        return connections.reading(self.engine) if self.is_on_server else self.engine.connect()

    def rows(self, query: Select[Any]) -> list[Row[Any]]:
        """Return the rows of a query; none if its table is not there yet (`schema.COMPUTED`).

        Raises DamagedStore for a row with a value that its column can't have.
        """
        found: list[Row[Any]] = []
        try:
            with self.connect() as connection:
                for table in _tables(query):
                    if table in COMPUTED and not self._has(connection, table.name):
                        return []
                found.extend(connection.execute(query))
        except DamagedStore as error:
            self.skip(error)
        return list(checked(found, query, self.target, self.skip))

    def _has(self, connection: Connection, table: str) -> bool:
        """Return True if there is a table; a server's store has all of them, or is not opened."""
        return self.is_on_server or inspect(connection).has_table(table)

    @contextmanager
    def as_far_as_readable(self) -> Iterator[list[str]]:
        """Leave out unreadable rows; the list names them, a sentence each."""
        before, self._unreadable = self._unreadable, []
        try:
            yield self._unreadable
        finally:
            self._unreadable = before

    def skip(self, error: DamagedStore) -> None:
        """Note an unreadable part if that is tolerated (`as_far_as_readable`), else raise it."""
        if self._unreadable is None:
            raise error
        if str(error) not in self._unreadable:
            self._unreadable.append(str(error))

    @property
    def is_on_server(self) -> bool:
        """Return True for a store that is no file."""
        return self._path is None

    @property
    def size(self) -> int:
        """The bytes of its file, from which limits follow; of a server's, those of a recording."""
        return limits.SERVER_BYTES if self._path is None else bytes_of(self._path)

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Yield a `Writer` in one transaction, which ends with a commit, on an error a rollback."""
        if not self.writable:
            raise UsageError(f"{self.target} was opened for reading only: open it with write=True.")
        connection = self.engine.connect().execution_options(torchreel_write=True)
        with connection, connection.begin():
            yield Writer(connection)

    def read_blob(self, digest: str) -> bytes:
        """Return the bytes of a blob, verified against its digest; DamagedStore when they don't
        match.
        """
        if isinstance(digest, Inline):
            return digest.data
        with self.connect() as connection:
            return blobs.get(connection, digest, self._last_pack)

    def read_blobs(self, digests: Iterable[str]) -> Iterator[bytes]:
        """Yield the bytes of some blobs, over one connection: to open one takes as long as to read.

        Raises DamagedStore as `read_blob` does.
        """
        with self.connect() as connection:
            yield from blobs.get_many(connection, digests, self._last_pack)

    def readable_blobs(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return some blobs, each read once, over one connection.

        An unreadable blob is left out if that is tolerated (`as_far_as_readable`), else raised.
        """
        found: dict[str, bytes] = {}
        with self.connect() as connection:
            for digest in dict.fromkeys(digests):
                try:
                    found[digest] = blobs.get(connection, digest, self._last_pack)
                except DamagedStore as error:
                    self.skip(error)
        return found

    def copied(self, path: Path) -> "Store":
        """Return a copy of a SQLite store, open for writing.

        A file at the path already is taken as the copy.  Raises OSError where the directory can't
        be made.
        """
        if not sqlite_files.has_content(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self.connect() as connection, closing(sqlite3.connect(path)) as target:
                source = connection.connection.driver_connection
                assert isinstance(source, sqlite3.Connection)
                source.backup(target)
        return Store.open(path, write=True)

    def close(self) -> None:
        """Give back every connection; a closed store can't be used again."""
        _open_stores.discard(self)
        self.engine.dispose()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _revision(self) -> str | None:
        """Return the schema's revision; None in a database without our tables.

        Refuses a newer one.
        """
        with self.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            if connection.dialect.name == "sqlite":
                file_schema.refuse_computing(connection, self.target)
            query = text("SELECT version_num FROM alembic_version")
            found: Any = connection.execute(query).scalar()
        if found is not None and not isinstance(found, str):
            raise DamagedStore(f"{self.target} has {found!r:.40} as its schema's revision.")
        if found is not None and _number_of(found, self.target) > int(REVISION):
            raise NewerStore(
                f"{self.target} was written by a newer torchreel (its schema is {found}, this one "
                f"knows up to {REVISION}): upgrade torchreel to open it."
            )
        return found

    def _require_tables(self) -> str:
        found = self._revision()
        if found is None:
            raise NotAStore(
                f"{self.target} is a database, but not a torchreel store: it has no store's tables."
            )
        return found

    def _require_columns(self) -> None:
        with self.connect() as connection:
            if self.is_on_server:
                table_check.require_tables(connection, self.target)
            else:
                file_schema.require_columns(connection, self.target)

    def _prepare(self, revision: str | None, *, create: bool) -> None:
        """Make the tables of a server's store, or those of an older one new, on request alone.

        Other machines read it, which may have the older version.
        """
        if create:
            return self._migrate()
        remedy = f"'{command('torchreel', 'prepare', self.target)}' makes them."
        if revision is None:
            raise NotAStore(f"{self.target} is a database without the tables of a store: {remedy}")
        raise LockedStore(
            f"{self.target} has the tables of an older torchreel (its schema is {revision}, this "
            f"one knows {REVISION}): {remedy}"
        )

    def _migrate(self) -> None:
        # Imported late: Alembic is needed only to create and to upgrade.
        from torchreel.store.migrations import CommandError, upgrade

        try:
            with self.writer() as writer:
                if self.is_on_server:
                    connections.alone(writer.connection)
                upgrade(writer.connection)
                if self.is_on_server:
                    roles.grant_again(writer.connection)
        except (SQLAlchemyError, CommandError, ValueError, TypeError, LookupError) as error:
            raise DamagedStore(
                f"{self.target} is a store of an older torchreel, but not as that one wrote it: "
                f"{error!r:.200}. Copy it again from where it came from."
            ) from error


def _tables(query: Select[Any]) -> list[Table]:
    """Return the tables that a query reads.

    SQLAlchemy's `get_final_froms` would compile the query, which takes longer.
    """
    return [part for part in visitors.iterate(query) if isinstance(part, Table)]


def _open_file(path: Path, write: bool, create: bool) -> Store:
    if (write or create) and not locks.has_locks(path.parent):
        raise LockedStore(
            f"{path} can't be written to: its file system has no locks between processes. "
            "Copy it to a local disk and work on the copy."
        )
    if create and not sqlite_files.has_content(path):
        sqlite_files.create(path, write_schema)
    sqlite_files.check(path, write=write)
    with _closed_on_error(_file_store(path, write=False)) as reader:
        revision = reader._require_tables()
        if revision == REVISION:
            reader._require_columns()
    if not write:
        return reader if revision == REVISION else _migrated_copy(path, reader)
    # Looked at by reading first: opening it for writing leaves a log beside a store we refuse.
    reader.close()
    with _closed_on_error(_file_store(path, write=True)) as store:
        if revision != REVISION:
            store._migrate()
    return store


def _migrated_copy(path: Path, reader: Store) -> Store:
    """Return an older store as this version reads it: its file stays as it is."""
    directory = tempfile.TemporaryDirectory(prefix="torchreel-")
    copy = Path(directory.name, path.name)
    with reader, reader.connect() as connection, closing(sqlite3.connect(copy)) as target:
        source = connection.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        source.backup(target)
    with _file_store(copy, write=True, name=str(path)) as store:
        store._migrate()
    migrated = _file_store(copy, write=False, name=str(path))
    weakref.finalize(migrated, directory.cleanup)
    return migrated


def _open_server(url: str, rights: Sequence[str], create: bool) -> Store:
    target = hidden(url)
    engine = connections.engine_of(target, write=bool(rights))
    with _closed_on_error(Store(target, engine, writable=bool(rights))) as store:
        revision = store._revision()
        if revision != REVISION:
            store._prepare(revision, create=create)
        store._require_columns()
        with store.connect() as connection:
            table_check.require_rights(connection, target, rights)
    return store


@contextmanager
def _closed_on_error(store: Store) -> Iterator[Store]:
    """Close `store` if the body of the `with` raises."""
    try:
        yield store
    except BaseException:
        store.close()
        raise


def _file_store(path: Path, write: bool, name: str = "") -> Store:
    place = path.absolute()  # the program may change its directory

    def connect() -> sqlite3.Connection:
        return sqlite_files.connect(place, write=write, busy_timeout_ms=BUSY_TIMEOUT_MS)

    # A reader decides anew for each connection how the file can be opened (sqlite_files.connect);
    # a writer keeps its own, because closing the last one makes SQLite check-point the whole log.
    pool = QueuePool if write else NullPool
    engine = create_engine("sqlite://", creator=connect, poolclass=pool)
    return Store(name or str(path), engine, writable=write, path=path)


def _hold(store: Store, path: Path | None) -> Callable[[], object]:
    """Note that the file is open in this process until the store is closed or forgotten."""
    if path is None:
        return lambda: None
    return weakref.finalize(store, sqlite_files.closed, sqlite_files.opened(path))


def _begin(connection: Connection) -> None:
    """Start SQLite's transaction ourselves (sqlite3 would start one only at the first write).

    IMMEDIATE takes the write lock at once: a transaction that reads first and writes later would
    fail, without waiting, when another process writes in between.
    """
    if connection.dialect.name == "sqlite":
        raw = connection.connection.driver_connection
        if isinstance(raw, Guarded):
            raw.begin()
        write = connection.get_execution_options().get("torchreel_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _number_of(revision: str, target: str) -> int:
    if not (revision.isascii() and revision.isdigit() and len(revision) < 10):
        raise NotAStore(
            f"{target} is a database of another program: its schema revision is {revision!r}."
        )
    return int(revision)


def _after_fork_in_child() -> None:
    for store in list(_open_stores):
        _abandoned.append(store.engine.pool)
        store.engine.dispose(close=False)


os.register_at_fork(after_in_child=_after_fork_in_child)
