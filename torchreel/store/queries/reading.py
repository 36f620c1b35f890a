"""Fetching rows as records: of one key, of many values, and of those that can be read."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Column, Row, Select, select

from torchreel.errors import DamagedStore
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.records import (
    ByCatch,
    Failure,
)

_Row = TypeVar("_Row")


_Read = TypeVar("_Read")


_Else = TypeVar("_Else")


def rows_of(key: Column[int], value: int) -> Select[Any]:
    """Return the rows of the key's table where it has that value, in the order of their ids."""
    table = key.table
    return select(table).where(key == value).order_by(table.c.id)


def fetch(store: Store, query: Select[Any], row_type: type[_Row]) -> list[_Row]:
    """Return the rows that a query finds, as records; their values are checked by `Store.rows`."""
    make: Callable[..., _Row] = row_type
    if row_type in (Failure, ByCatch):
        make = partial(_with_signature, row_type)
    found = (readable(store, partial(make, **row._mapping), None) for row in store.rows(query))
    return [record for record in found if record is not None]


CHUNK = 500
"""Values that one query asks for: SQLite takes some thousand parameters."""


def in_chunks(
    store: Store, query: Select[Any], column: Column[Any], values: Sequence[Any]
) -> Iterator[Row[Any]]:
    """Yield the rows of a query where a column has one of many values, in chunks of these."""
    for start in range(0, len(values), CHUNK):
        yield from store.rows(query.where(column.in_(values[start : start + CHUNK])))


def fetch_many(
    store: Store,
    query: Select[Any],
    row_type: type[_Row],
    column: Column[Any],
    values: Sequence[Any],
) -> Iterator[_Row]:
    """Yield the rows as `fetch` returns them, where a column has one of many values."""
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        yield from fetch(store, query.where(column.in_(chunk)), row_type)


def _with_signature(make: Callable[..., _Row], *, signature: Json, **columns: object) -> _Row:
    return make(**columns, signature=Signature.from_json(signature))


def readable(store: Store, read: Callable[[], _Read], otherwise: _Else) -> _Read | _Else:
    """Return the result of `read`; `otherwise` if it can't be read and that is tolerated."""
    try:
        return read()
    except DamagedStore as error:
        store.skip(error)
        return otherwise
