"""Rows, checked: each value is of the kind that its column has, or the row is named as damaged.

SQLite keeps anything in any column, whatever the schema says.  The tables of `schema` say what
belongs there: that is the only description.  Called by `Store.rows`, for every query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.errors import DamagedStore
from torchreel.store.schema import JsonText, Unreadable

if TYPE_CHECKING:
    from sqlalchemy import Column, Row, Select

_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a number"),
    str: ((str,), "text"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    bytes: ((bytes,), "bytes"),
}
"""The types that a column may hold, by SQLAlchemy's `python_type`, and their names."""


class _Check(NamedTuple):
    place: int
    column: Column[Any]
    types: tuple[type, ...]
    expected: str


def checked(
    rows: Sequence[Row[Any]], query: Select[Any], target: str, skip: Callable[[DamagedStore], None]
) -> Iterator[Row[Any]]:
    """Yield the rows that are whole; `skip` gets the error of each that is not, and may raise
    it.
    """
    checks = _checks(query)
    for row in rows:
        problem = next((text for check in checks if (text := _problem(check, row))), None)
        if problem is None:
            yield row
        else:
            skip(DamagedStore(f"{target} is damaged: {problem}."))


def _checks(query: Select[Any]) -> list[_Check]:
    """Return the checks for each row: one per column of our tables, none for computed columns."""
    found = []
    for place, column in enumerate(query.selected_columns):
        if getattr(column, "table", None) is not None:
            types, expected = _kind(column)
            found.append(_Check(place, column, types, expected))  # type: ignore[arg-type]
    return found


def _kind(column: Any) -> tuple[tuple[type, ...], str]:
    plain = getattr(column.type, "impl_instance", column.type)
    types, expected = _KINDS[plain.python_type]
    if isinstance(column.type, JsonText):
        return (object,), expected  # any value is one of JSON; the type knows what is none
    return ((*types, type(None)) if column.nullable else types), expected


def _problem(check: _Check, row: Row[Any]) -> str:
    """Return the fault of one value in a row; '' if there is none."""
    value = row[check.place]
    if isinstance(value, Unreadable):
        found = value.reason
    elif not isinstance(value, check.types):
        found = f"is {_described(value)}, and no {check.expected.removeprefix('a ')}"
    elif isinstance(value, str) and not _is_utf8(value):
        found = "is text that is not UTF-8"
    else:
        return ""
    return f"{check.column.table.name}.{check.column.name} of {_named(check, row)} {found}"


def _is_utf8(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _described(value: object) -> str:
    return "null" if value is None else f"{value!r:.60}"


def _named(check: _Check, row: Row[Any]) -> str:
    """Return a row by its key, as far as the query has it."""
    found = row._mapping
    keys = [column.name for column in check.column.table.primary_key if column.name in found]
    return "row " + ", ".join(f"{found[key]!r:.40}" for key in keys) if keys else "a row"
