"""Compares the symbol tables as of two events.

Lives here: the comparison of two tables, and their values as text.  Not here: the tables
(`shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis.shapes import Fact, Range, Symbol, SymbolTable
from torchreel.events.event import SymbolEvent
from torchreel.events.scalars import SizeLike, UnbackedRename
from torchreel.events.shape_env import DuckSymbol, RangeUpdate, Replacement
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event


@dataclass(frozen=True)
class ShapeDifference:
    """One thing that changed: '' on the side that did not have it; `seq` is the event that did it,
    where there is one alone."""

    what: str
    before: str
    after: str
    seq: int | None


_COLUMNS = {
    "hint": "", "range": RangeUpdate.kind, "replacement": Replacement.kind,
    "sources": DuckSymbol.kind, "size_like": SizeLike.kind, "renamed": UnbackedRename.kind,
}  # fmt: skip
"""The columns of a symbol's row, and the kind of event that changes each."""


def differences(
    before: SymbolTable, after: SymbolTable, events: Sequence[Event]
) -> list[ShapeDifference]:
    """Return the changes from one table to a later one: symbols first, in order of creation.

    `events` are those of the ShapeEnv; the ones between the two tables give the causes.
    """
    between = [event for event in events if before.at < event.seq <= after.at]
    found: list[ShapeDifference] = []
    for name, row in after.symbols.items():
        old = before.symbols.get(name)
        found += _new_symbol(row) if old is None else _changed_symbol(old, row, between)
    for what in ("guards", "asserts", "divisible"):
        found += _facts(what, getattr(before, what), getattr(after, what))
    if before.frozen != after.frozen:
        found.append(ShapeDifference("frozen", "no", "yes", None))
    return found


def _new_symbol(row: Symbol) -> list[ShapeDifference]:
    cells = ((column, cell(row, column)) for column in _COLUMNS)
    text = ", ".join(f"{column} {value}" for column, value in cells if value)
    return [ShapeDifference(row.name, "", text or "created", row.created)]


def _changed_symbol(old: Symbol, new: Symbol, events: Sequence[Event]) -> list[ShapeDifference]:
    return [
        ShapeDifference(
            f"{new.name} {column.replace('_', '-')}",
            cell(old, column),
            cell(new, column),
            _last(events, kind, new.name),
        )
        for column, kind in _COLUMNS.items()
        if getattr(old, column) != getattr(new, column)
    ]


def _last(events: Sequence[Event], kind: str, symbol: str) -> int | None:
    own = [
        event.seq
        for event in events
        if event.kind == kind
        and isinstance(event.fields, SymbolEvent)
        and event.fields.symbol == symbol
    ]
    return own[-1] if own else None


def _facts(what: str, old: Sequence[Fact], new: Sequence[Fact]) -> list[ShapeDifference]:
    name = {"guards": "guard", "asserts": "runtime assert", "divisible": "divisible"}[what]
    known, now = _by_text(old), _by_text(new)
    gone = [ShapeDifference(name, text, "", None) for text in known if text not in now]
    return gone + [
        ShapeDifference(name, "", text, fact.seq) for text, fact in now.items() if text not in known
    ]


def _by_text(facts: Sequence[Fact]) -> Mapping[str, Fact]:
    return {spelling.size(fact.expr): fact for fact in facts}


# -- values as text -------------------------------------------------------------------------------


def cell(row: Symbol, column: str) -> str:
    """Return one value of a symbol's row, for a person; '' where there is none."""
    value = getattr(row, column)
    if value is None or value is False or value == ():
        return ""
    match column:
        case "range":
            return spelled_range(value)
        case "sources":
            return ", ".join(value)
        case "hint" | "replacement":
            return spelling.size(value)
    return "yes" if value is True else str(value)


def spelled_range(bounds: Range) -> str:
    """Return a range for a person: `[2, oo]`."""
    return f"[{', '.join(map(spelled_bound, bounds))}]"


def spelled_bound(bound: Json) -> str:
    """Return an end of a range for a person: `oo` for what has none."""
    text = str(bound)
    if text in ("$oo", "$int_oo"):
        return "oo"
    return "-oo" if text in ("$-oo", "$-int_oo") else spelling.size(bound)
