"""`why s77`: how a symbol came to be, and to what it is now.

Lives here: which events speak of a symbol.  Not here: what they say (`steps`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torchreel.analysis.differences import spelled_range
from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.shapes import Symbol, SymbolTable, shape_events, symbol_table
from torchreel.analysis.why.steps import Story, step_of
from torchreel.errors import UsageError
from torchreel.events.event import EventType
from torchreel.events.scalars import (
    DataDependentError,
    DeferredAssert,
    KnownAssert,
    SizeLike,
    UnbackedBindings,
    UnbackedRename,
    UnbackedSymbol,
)
from torchreel.events.shape_env import (
    BackedSymbol,
    Divisible,
    DuckSymbol,
    RangeUpdate,
    Replacement,
    ShapeGuard,
)
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event

SYMBOL = re.compile(r"[suz]f?\d+|zuf\d+", re.ASCII)
"""Names of torch's symbols: s77, u0, zf24, zuf3."""


def why_symbol(log: CompileEventLog, name: str) -> Story:
    """Return the story of a symbol, from its creation to its present state.

    Raises `UsageError` for a symbol that the compile does not have, naming those that it has.
    """
    events = shape_events(log)
    table = symbol_table(events)
    if name not in table.symbols:
        known = ", ".join(table.symbols) or "none"
        raise UsageError(f"{log.address} has no symbol {name!r:.40}: it has {known}.")
    row = table.symbols[name]
    found = tuple(step_of(log, event) for event in _events(events, name))
    return Story(_headline(log, table, row), found, _facts(table, row))


def _events(events: Sequence[Event], name: str) -> Iterator[Event]:
    yield from (event for event in events if _speaks_of(event.fields, name))


def _speaks_of(fields: EventType | None, name: str) -> bool:
    match fields:
        case Replacement(symbol=symbol, expr=expr):
            return name == symbol or mentions(expr, name)
        case UnbackedRename(symbol=symbol, to=old):
            return name in (symbol, old)
        case UnbackedBindings(bindings=bindings):
            return name in bindings
        case BackedSymbol() | DuckSymbol() | RangeUpdate() | UnbackedSymbol() | SizeLike():
            return bool(name == fields.symbol)
        case ShapeGuard() | Divisible() | DeferredAssert() | KnownAssert() | DataDependentError():
            return mentions(fields.expr, name)
    return False


def mentions(expr: Json, name: str) -> bool:
    """Return True if an expression holds a symbol."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?!\w)", str(expr)) is not None


def _headline(log: CompileEventLog, table: SymbolTable, row: Symbol) -> str:
    where = row.sources[0] if row.sources else "a number that only a run knows"
    return f"{row.name} of {log.address}: {where}, {_now(table, row)}"


def _now(table: SymbolTable, row: Symbol) -> str:
    value = table.static().get(row.name)
    if value is not None:
        return f"specialised to {value}"
    if row.replacement is not None:
        return f"replaced by {spelling.size(row.replacement)}"
    return f"dynamic, range {spelled_range(row.range)}" if row.range else "dynamic"


def _facts(table: SymbolTable, row: Symbol) -> dict[str, Json]:
    return {
        "symbol": row.name,
        "sources": list(row.sources),
        "static": table.static().get(row.name),
        "replacement": None if row.replacement is None else spelling.size(row.replacement),
        "range": None if row.range is None else spelled_range(row.range),
    }
