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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from torchreel.analysis.query.views import VIEWS, QueryScope, QueryView, Value
from torchreel.errors import DamagedStore, UsageError
from torchreel.store import Store
from torchreel.store.reading.connections import Guarded

Cell = int | float | str | bytes | None
SECONDS = 60.0
"""Seconds that a statement may run, unless somebody says otherwise."""
MOST_ROWS = 1_000_000
_LOOK = 10_000
"""Steps of SQLite's virtual machine between two looks at the clock."""

_READING = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION,
}  # fmt: skip
_REFUSED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "edit", "readfile", "writefile"}
)


@dataclass(frozen=True)
class Result:
    """The columns and rows that a statement found."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_cut: bool
    """True if there are more than `MOST_ROWS` rows."""


def query(scope: QueryScope, statement: str, *, seconds: float = SECONDS) -> Result:
    """Run a SELECT over the views (`VIEWS`) and, as `main.NAME`, the tables of the file.

    Raises UsageError for what SQLite does not understand or the statement may not do, and for one
    that takes longer than `seconds`.
    """
    with _connected(scope.store) as connection:
        for view in VIEWS.values():
            connection.execute(_definition(view))
        _refuse(connection, statement)
        for view in _named(statement):
            _fill(connection, view, scope)
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_only_reading)
        deadline = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _LOOK)
        return _result(connection, statement, seconds)


@contextmanager
def _connected(store: Store) -> Iterator[sqlite3.Connection]:
    """A connection of our own to the file, with its limits; to nothing, for a server's store."""
    with store.connect() as opened:
        raw = opened.connection.driver_connection
        if isinstance(raw, Guarded):
            yield raw
            return
    with closing(sqlite3.connect(":memory:")) as empty:
        yield empty


def _definition(view: QueryView) -> str:
    columns = ", ".join(f'"{name}" {type_}' for name, type_ in view.columns.items())
    return f'CREATE TEMP TABLE "{view.name}" ({columns})'


def _refuse(connection: sqlite3.Connection, statement: str) -> None:
    """Raise UsageError for a statement that does more than read, before anything is filled."""
    connection.set_authorizer(_only_reading)
    try:
        connection.execute(f"EXPLAIN {statement}").close()
    except (sqlite3.Error, ValueError) as error:
        raise _not_understood(error) from error
    finally:
        connection.set_authorizer(None)


def _named(statement: str) -> list[QueryView]:
    """Return the views whose names are words of a statement: all that it reads, if not more.

    SQLite's authorizer does not tell of every table: not of one of which `USING` alone needs a
    column.
    """
    words = set(re.findall(r"\w+", statement.lower()))
    return [view for name, view in VIEWS.items() if name in words]


def _fill(connection: sqlite3.Connection, view: QueryView, scope: QueryScope) -> None:
    places = ", ".join("?" * len(view.columns))
    rows = (tuple(map(_storable, row)) for row in view.rows(scope))
    try:
        connection.executemany(f'INSERT INTO temp."{view.name}" VALUES ({places})', rows)
    except (OverflowError, sqlite3.DataError) as error:
        raise DamagedStore(
            f"{scope.store.target} has a value that no column of {view.name} can have: {error}."
        ) from error


def _storable(value: Value) -> Value:
    """Text without halves of surrogate pairs, as which bytes are read that are no UTF-8."""
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


def _result(connection: sqlite3.Connection, statement: str, seconds: float) -> Result:
    try:
        cursor = connection.execute(statement)
        if cursor.description is None:
            raise UsageError("The statement finds nothing: write a SELECT.")
        columns = _distinct([column[0] for column in cursor.description])
        rows = tuple(map(tuple, cursor.fetchmany(MOST_ROWS + 1)))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise UsageError(
                f"The statement was ended after {seconds:g} s: narrow it, or give it more with "
                "--limit-time."
            ) from error
        raise _not_understood(error) from error
    except (sqlite3.Error, ValueError) as error:
        raise _not_understood(error) from error
    return Result(columns, rows[:MOST_ROWS], len(rows) > MOST_ROWS)


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
