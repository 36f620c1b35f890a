"""Run one SELECT over the views and tables of a store, and nothing else.

The statement is the user's, the file may be a stranger's.  SQLite's authorizer lets the statement
read, and call functions; everything else is refused while it is being prepared: writing, other
files, pragmas, extensions.  The file is open for reading only, `Store.open` has refused a schema
that computes anything, and a statement ends after a time limit.  Views are tables of the
connection's own, which SQLite looks up before those of the file, so a file can't put others in
their place.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, TypeVar

from torchreel.analysis.query import server_tables
from torchreel.analysis.query.views import VIEWS, QueryScope, QueryView, Value
from torchreel.errors import DamagedStore, QueryTimeSpent, UsageError
from torchreel.store import Store
from torchreel.store.files.driver_errors import store_error
from torchreel.store.reading.connections import Guarded

_Row = TypeVar("_Row", bound="tuple[Any, ...]")
Cell = int | float | str | bytes | None
SECONDS = 60.0
"""Seconds that a statement may run, unless somebody says otherwise."""
MOST_ROWS = 1_000_000
MOST_BYTES = 256 << 20
"""Memory of the rows that are kept: a small file can have statements that make large values."""
_LOOK = 10_000
"""Steps of SQLite's virtual machine between two looks at the clock."""

_READING = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION,
}  # fmt: skip
_TABLES_OF_FUNCTIONS = ("json_each", "json_tree")
"""Functions that are used as tables: many columns of the views are JSON."""
_OF_STATEMENTS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
"""Errors of SQLite that say something of the statement, not of the file."""
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "edit", "readfile", "writefile"}
)


@dataclass(frozen=True)
class Result:
    """The columns and rows that a statement found."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_cut: bool
    """True if there are more rows than are kept (`MOST_ROWS`, `MOST_BYTES`)."""


def query(scope: QueryScope, statement: str, *, seconds: float = SECONDS) -> Result:
    """Run a SELECT over the views (`VIEWS`) and, as `main.NAME`, the tables of the file.

    Raises UsageError for what SQLite does not understand or the statement may not do, and for one
    that takes longer than `seconds`, with all that is read for it; DamagedStore for a file that
    SQLite can't read.
    """
    limits = _Limits(seconds)
    with _connected(scope.store) as connection, _translated_errors(scope.store.target, limits):
        connection.set_progress_handler(limits.are_over, _LOOK)
        for module in _TABLES_OF_FUNCTIONS:
            _load(connection, module)
        for view in VIEWS.values():
            connection.execute(_definition(view))
        _refuse(connection, statement)
        words = set(re.findall(r"\w+", statement.lower()))
        if scope.store.is_on_server:
            for table in server_tables.named(words, VIEWS):
                rows = server_tables.rows(scope.store, table)
                server_tables.fill(connection, table, _in_time(rows, limits))
        for view in _named(words):
            _fill(connection, view, scope, limits)
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_only_reading)
        return _result(connection, statement)


class _Limits:
    """The time that a statement has, with the views that are filled for it."""

    def __init__(self, seconds: float) -> None:
        if not 0 < seconds < float("inf"):
            raise UsageError(f"A time limit is a number of seconds above 0, not {seconds:g}.")
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds

    def are_over(self) -> bool:
        """Return True when the time is up."""
        return time.monotonic() > self._deadline

    def error(self) -> QueryTimeSpent:
        """Return the error of a statement that took too long."""
        return QueryTimeSpent(
            f"The statement was ended after {self.seconds:g} s: narrow it, or give it more with "
            "--limit-time."
        )


@contextmanager
def _translated_errors(target: str, limits: _Limits) -> Iterator[None]:
    """Raise what SQLite says as the error that it is: of the time, of the file, of the statement.

    A damaged file shows with any statement; the statement is not to blame.
    """
    try:
        yield
    except MemoryError as error:
        raise UsageError("The statement takes more memory than there is: narrow it.") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            raise limits.error() from error
        found = None if code in _OF_STATEMENTS else store_error(error, target)
        raise found or _not_understood(error) from error


def _load(connection: sqlite3.Connection, module: str) -> None:
    """Let SQLite declare a function that is used as a table, before declaring is refused."""
    with suppress(sqlite3.OperationalError):  # the file has a table of that name, which is used
        connection.execute(f"SELECT 1 FROM {module}('[]')").close()


@contextmanager
def _connected(store: Store) -> Iterator[sqlite3.Connection]:
    """Yield a connection to the file, with its limits; for a server's store, to empty tables."""
    with store.connect() as opened:
        raw = opened.connection.driver_connection
        if isinstance(raw, Guarded):
            yield raw
            return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        server_tables.create(empty)
        yield empty


def _definition(view: QueryView) -> str:
    columns = ", ".join(f'"{name}" {type_}' for name, type_ in view.columns.items())
    return f'CREATE TEMP TABLE "{view.name}" ({columns})'


def _refuse(connection: sqlite3.Connection, statement: str) -> None:
    """Raise UsageError for a statement that does more than read, before anything is filled."""
    connection.set_authorizer(_only_reading)
    try:
        connection.execute(f"EXPLAIN {statement}").close()
    except ValueError as error:  # a NUL in it, half of a surrogate pair
        raise _not_understood(error) from error
    finally:
        connection.set_authorizer(None)


def _named(words: set[str]) -> list[QueryView]:
    """Return the views that a statement may read: those whose names are among its words.

    SQLite's authorizer does not report every table. It leaves out a table that is used only for a
    column of `USING`.
    """
    return [view for name, view in VIEWS.items() if name in words]


def _fill(
    connection: sqlite3.Connection, view: QueryView, scope: QueryScope, limits: _Limits
) -> None:
    places = ", ".join("?" * len(view.columns))
    rows = (tuple(map(_storable, row)) for row in _in_time(view.rows(scope), limits))
    try:
        connection.executemany(f'INSERT INTO temp."{view.name}" VALUES ({places})', rows)
    except (OverflowError, sqlite3.DataError) as error:
        raise DamagedStore(
            f"{scope.store.target} has a value that no column of {view.name} can have: {error}."
        ) from error


def _in_time(rows: Iterable[_Row], limits: _Limits) -> Iterator[_Row]:
    for row in rows:
        if limits.are_over():
            raise limits.error()
        yield row


def _storable(value: Value) -> Value:
    """Return text without halves of surrogate pairs, as which bytes are read that are no UTF-8."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _only_reading(action: int, *about: str | None) -> int:
    """Answer SQLite's authorizer: https://www.sqlite.org/c3ref/c_alter_table.html lists actions."""
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(about[1]).lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _result(connection: sqlite3.Connection, statement: str) -> Result:
    cursor = connection.execute(statement)
    if cursor.description is None:
        raise UsageError("The statement finds nothing: write a SELECT.")
    columns = _distinct([column[0] for column in cursor.description])
    rows: list[tuple[Cell, ...]] = []
    left = MOST_BYTES
    for row in cursor:
        left -= getsizeof(row) + sum(map(getsizeof, row))
        if left < 0 or len(rows) == MOST_ROWS:
            return Result(columns, tuple(rows), is_cut=True)
        rows.append(row)
    return Result(columns, tuple(rows), is_cut=False)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Number the columns that have the name of one before them: `compile`, `compile_2`."""
    found: list[str] = []
    for name in names:
        number, made = 1, name
        while made in found:
            number += 1
            made = f"{name}_{number}"
        found.append(made)
    return tuple(found)


def _not_understood(error: Exception) -> UsageError:
    if any(text in str(error) for text in ("not authorized", "authorization denied", "prohibited")):
        return UsageError("The statement does more than read: only a SELECT is run.")
    return UsageError(
        f"SQLite does not understand the statement: {error}. The views are {', '.join(VIEWS)}; "
        "the tables of the file are main.NAME."
    )
