"""Rows in the four formats that every listing has: a table, JSON, JSON lines and CSV."""

from __future__ import annotations

import csv
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from torchreel.commands.rendering.streams import add_row, show, table
from torchreel.errors import UsageError
from torchreel.escaping.characters import visible
from torchreel.patterns import lazy_text
from torchreel.store.documents.jsontypes import Json

Row = Mapping[str, Json]


class Format(Enum):
    """The format of a listing."""

    TABLE = "table"
    JSON = "json"
    LINES = "nl"
    CSV = "csv"


def chosen(*, json: bool, nl: bool, csv: bool, table: bool) -> Format:
    """Return the format that the options ask for; UsageError for more than one."""
    asked = {Format.JSON: json, Format.LINES: nl, Format.CSV: csv, Format.TABLE: table}
    found = [kind for kind, wanted in asked.items() if wanted]
    if len(found) > 1:
        raise UsageError("Use just one of --json, --nl, --csv and --table.")
    return found[0] if found else Format.TABLE


def write(rows: Sequence[Row], kind: Format, columns: Sequence[str] = ()) -> None:
    """Write rows that all have the same keys; `columns` are these where there may be no row."""
    match kind:
        case Format.JSON:
            _write_list(rows)
        case Format.LINES:
            for row in rows:
                print(_json(row))
        case Format.CSV:
            _write_csv(rows, columns)
        case Format.TABLE:
            _write_table(rows)


def write_json(value: Json) -> None:
    """Write one JSON document, indented; escape sequences in it stay escaped."""
    print(_json(value, indent=2))


def _write_list(rows: Iterable[Row]) -> None:
    """Write the rows as one JSON document, as `write_json` does, and never have it whole."""
    before = "[\n"
    for row in rows:
        print(before + textwrap.indent(_json(dict(row), indent=2), "  "), end="")
        before = ",\n"
    print("[]" if before == "[\n" else "\n]")


def _json(value: Json, indent: int | None = None) -> str:
    # ensure_ascii spells out controls and everything else a terminal might act upon; DEL is ASCII.
    return json.dumps(value, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")


_SIGNED = lazy_text(r"[-+][\w.]+")
"""A sign and a word, which calls nothing: `-oo`, of the range of a symbol."""


def _write_csv(rows: Sequence[Row], columns: Sequence[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    head = list(rows[0]) if rows else columns
    if head:
        writer.writerow(head)
    for row in rows:
        writer.writerow([_without_formula(value) for value in row.values()])


def _without_formula(value: Json) -> str:
    """Return a cell that a spreadsheet does not compute: one that begins as a formula gets a
    quote.
    """
    found = _cell(value)
    is_formula = isinstance(value, str) and found.startswith(("=", "+", "-", "@"))
    return f"'{found}" if is_formula and not _SIGNED.fullmatch(found) else found


def _write_table(rows: Sequence[Row]) -> None:
    if not rows:
        return
    made = table(*(_heading(key, rows) for key in rows[0]))
    for row in rows:
        add_row(made, *(_cell(value) for value in row.values()))
    show(made)


def _heading(key: str, rows: Sequence[Row]) -> str:
    numbers = all(isinstance(row[key], (int, float, type(None))) for row in rows)
    return f">{key}" if numbers else key


def _cell(value: Json) -> str:
    if value is None:
        return ""
    return visible(value if isinstance(value, (str, int, float)) else _json(value))
