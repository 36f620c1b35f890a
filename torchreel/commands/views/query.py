"""Prints the answer of `torchreel query`: the rows of a statement, in one of four formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from torchreel.analysis.query.query import Cell, Result
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.listing import Format, Row
from torchreel.commands.rendering.text import count
from torchreel.errors import UsageError
from torchreel.store.documents.jsontypes import Json

_FORMATS = {
    "table": Format.TABLE, "json": Format.JSON, "ndjson": Format.LINES, "csv": Format.CSV,
}  # fmt: skip
MOST_IN_TABLE = 20_000
"""Rows of a table: it is laid out as a whole, at some 1 kB and 0.2 ms a row."""
_INFINITE = (float("inf"), float("-inf"))


def format_of(name: str) -> Format:
    """Return the format of a name.  Raises UsageError for one that is none."""
    if name not in _FORMATS:
        raise UsageError(f"There is no format {name!r}: use one of {', '.join(_FORMATS)}.")
    return _FORMATS[name]


class _Rows(Sequence[Row]):
    """The rows as objects of JSON, each made when it is written: a million of them take a GB."""

    def __init__(self, found: Result, most: int | None) -> None:
        self._columns, self._rows = found.columns, found.rows[:most]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return dict(zip(self._columns, map(_json, self._rows[place]), strict=True))


def report(found: Result, kind: Format) -> None:
    """Print the rows; without any, what columns they would have."""
    rows = _Rows(found, MOST_IN_TABLE if kind is Format.TABLE else None)
    if rows or kind in (Format.JSON, Format.LINES):
        listing.write(rows, kind)
    else:
        streams.result((", " if kind is Format.TABLE else ",").join(found.columns))
    if len(rows) < len(found.rows):
        shown, all_of_them = count(len(rows), "row"), count(len(found.rows), "row")
        streams.say(f"A table has the first {shown} of {all_of_them}: other formats have all.")
    if found.is_cut:
        streams.say(f"There are more than {count(len(found.rows), 'row')}: only so many are read.")


def _json(value: Cell) -> Json:
    """Return a value as JSON: bytes as hexadecimal digits, and infinities, which JSON lacks, as
    text.
    """
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if value in _INFINITE else value
