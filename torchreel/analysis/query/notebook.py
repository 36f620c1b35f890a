"""Writes rows as HTML for a notebook: a table of several, a card of one.

Lives here: the markup, which is the only one: what a store holds is text in it.  Not here: which
rows there are (`opened`), nor their columns (`rows`).
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from torchreel.escaping.characters import visible, visible_block

_LONGEST = 20_000
"""Characters of one value that are shown."""
_LEFT = ' style="text-align: left"'
_NANOSECONDS = "_ns"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 0) -> str:
    """Return rows as a table; `left` says how many more there are."""
    head = "".join(f"<th>{escaped(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    more = f"<p>and {left} more</p>" if left else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"


def card(title: str, columns: Sequence[str], row: Sequence[Any]) -> str:
    """Return one row as a title and a line for each column that has a value."""
    lines = "".join(
        f"<tr><th{_LEFT}>{escaped(name.removesuffix(_NANOSECONDS))}</th>"
        f"<td{_LEFT}>{_value(name, value)}</td></tr>"
        for name, value in zip(columns, row, strict=True)
        if value not in (None, "")
    )
    return f"<table><caption{_LEFT}><b>{escaped(title)}</b></caption>{lines}</table>"


def _value(name: str, value: object) -> str:
    if name.endswith(_NANOSECONDS) and isinstance(value, int):
        return escaped(_when(value))
    if name == "seconds" and isinstance(value, float):
        return escaped(f"{value:.3f}")
    text = str(value)[:_LONGEST]
    if "\n" in text:
        return f"<pre{_LEFT}>{html.escape(visible_block(text))}</pre>"
    return escaped(text)


def _when(time_ns: int) -> str:
    """Return a time in UTC; the number where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return str(time_ns)


def escaped(value: object) -> str:
    """Return a value as text that is no markup; nothing for None."""
    return "" if value is None else html.escape(visible(value))
