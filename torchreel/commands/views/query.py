"""Prints the answer of `torchreel query`: the rows of a statement, in one of four formats."""

from __future__ import annotations

from torchreel.analysis.query.query import MOST_ROWS, Cell, Result
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.listing import Format
from torchreel.commands.rendering.text import count
from torchreel.errors import UsageError
from torchreel.store.documents.jsontypes import Json

_FORMATS = {
    "table": Format.TABLE, "json": Format.JSON, "ndjson": Format.LINES, "csv": Format.CSV,
}  # fmt: skip
_INFINITE = (float("inf"), float("-inf"))


def format_of(name: str) -> Format:
    """Return the format of a name.  Raises UsageError for one that is none."""
    if name not in _FORMATS:
        raise UsageError(f"There is no format {name!r}: use one of {', '.join(_FORMATS)}.")
    return _FORMATS[name]


def report(found: Result, kind: Format) -> None:
    """Print the rows; without any, what columns they would have."""
    rows = [dict(zip(found.columns, map(_json, row), strict=True)) for row in found.rows]
    if rows or kind in (Format.JSON, Format.LINES):
        listing.write(rows, kind)
    else:
        streams.result((", " if kind is Format.TABLE else ",").join(found.columns))
    if found.is_cut:
        streams.say(f"There are more than {count(MOST_ROWS, 'row')}: only so many are shown.")


def _json(value: Cell) -> Json:
    """A value as JSON: bytes as hexadecimal digits, and infinities, which JSON lacks, as text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if value in _INFINITE else value
