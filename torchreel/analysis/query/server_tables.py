"""The tables of a store on a server, in the memory of SQLite, which runs the statements of `query`.

So a statement means the same for a file and for a server, and a server runs nobody's SQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from sqlalchemy import Table, Text, select, type_coerce
from sqlalchemy.dialects import sqlite as dialect
from sqlalchemy.schema import CreateTable

from torchreel.store import Store
from torchreel.store.schema import JsonText, metadata

MOST_BYTES = 1 << 30
"""Memory of the tables that one statement may name."""
_PAGE_BYTES = 4096
_ROWS = 500
"""Rows that are fetched at a time."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of a store in an empty database in memory, without rows."""
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    connection.execute(f"PRAGMA max_page_count = {MOST_BYTES // _PAGE_BYTES}")
    for table in metadata.sorted_tables:
        connection.execute(str(CreateTable(table).compile(dialect=dialect.dialect())))


def named(words: Collection[str], views: Collection[str]) -> Iterator[Table]:
    """Yield the tables that a statement may read: those whose names are among its words."""
    for name, table in metadata.tables.items():
        # a view of that name is meant, unless the statement says `main.NAME`
        if name in words and ("main" in words or name not in views):
            yield table


def rows(store: Store, table: Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, as SQLite keeps them."""
    columns = [
        type_coerce(column, Text) if isinstance(column.type, JsonText) else column
        for column in table.c
    ]
    with store.connect() as connection:
        yield from map(
            tuple, connection.execution_options(yield_per=_ROWS).execute(select(*columns))
        )


def fill(connection: sqlite3.Connection, table: Table, found: Iterable[tuple[Any, ...]]) -> None:
    """Put the rows of a table into memory."""
    places = ", ".join("?" * len(table.c))
    connection.executemany(f'INSERT INTO main."{table.name}" VALUES ({places})', found)
