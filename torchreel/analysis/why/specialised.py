"""`why specialised`: which event made a size or a number static, and for which line.

Lives here: finding the events after which a symbol stands for a number, and the sizes that never
got a symbol.  Not here: what the events say (`steps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.shapes import Symbol, shape_events, walk
from torchreel.analysis.why.steps import Step, Story, step_of
from torchreel.events.scalars import SymbolicScalar
from torchreel.events.shape_env import Replacement, ShapeEnvCall, ShapeEnvCreate, ZeroOne
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event

_CREATE_SIZES = "_create_symbolic_sizes_strides_storage_offset"


def why_specialised(log: CompileEventLog) -> list[Story]:
    """Return one story for each size or number that was dynamic and became static, or never got a
    symbol.

    None for a compile that ended before it had a ShapeEnv.
    """
    if not log.of(ShapeEnvCreate.kind):
        return []
    events = shape_events(log)
    marks = _marks(events)
    stories = [
        _symbol_story(log, events, event, row, value, marks)
        for event, row, value in _moments(events)
    ]
    stories += [
        _zero_one_story(log, event, event.fields)
        for event in events
        if isinstance(event.fields, ZeroOne)
    ]
    return stories + [
        _constant_story(log, event, scalar)
        for event, scalar in log.typed(SymbolicScalar)
        if scalar.expr is None
    ]


def _moments(events: Sequence[Event]) -> Iterator[tuple[Event, Symbol, int]]:
    """Yield each symbol that became static, with the event that made it so, and the number.

    Only a replacement can: of the symbol itself, or of one that it is replaced by.
    """
    known: dict[str, int] = {}
    for event, table in walk(events):
        if event.kind == Replacement.kind:
            static = table.static()
            new = [name for name in static if name not in known]
            yield from ((event, table.symbols[name], static[name]) for name in new)
            known = static


def _symbol_story(
    log: CompileEventLog,
    events: Sequence[Event],
    event: Event,
    row: Symbol,
    value: int,
    marks: Mapping[str, str],
) -> Story:
    step = step_of(log, event)
    was = next((marks[source] for source in row.sources if source in marks), "dynamic")
    what = f"{' and '.join(row.sources)} ({row.name}, {was})" if row.sources else row.name
    facts: dict[str, Json] = {
        "symbol": row.name, "sources": list(row.sources), "value": value, "was": was,
    }  # fmt: skip
    return _story(f"{what} became {value}", (*_tie(log, events, row, event), step), facts)


def _tie(log: CompileEventLog, events: Sequence[Event], row: Symbol, last: Event) -> list[Step]:
    """Return the step that tied a symbol to another one, if the other became static; else []."""
    if _is_replacement(last, row.name):
        return []
    tied = [e for e in events if e.seq < last.seq and _is_replacement(e, row.name)]
    return [step_of(log, tied[-1])] if tied else []


def _is_replacement(event: Event, name: str) -> bool:
    return isinstance(event.fields, Replacement) and bool(event.fields.symbol == name)


def _zero_one_story(log: CompileEventLog, event: Event, size: ZeroOne) -> Story:
    source, value = size.source, size.value
    facts = {"symbol": None, "sources": [source], "value": value, "was": "0/1"}
    return _story(f"{source} (dynamic) is {value} and got no symbol", (step_of(log, event),), facts)


def _constant_story(log: CompileEventLog, event: Event, scalar: SymbolicScalar) -> Story:
    source, value = source_name(scalar.source), scalar.value
    facts = {"symbol": None, "sources": [source], "value": value, "was": "constant"}
    return _story(
        f"{source} ({scalar.type}) is the constant {value!r}", (step_of(log, event),), facts
    )


def _story(headline: str, steps: tuple[Step, ...], facts: Mapping[str, Json]) -> Story:
    last = steps[-1]
    place = {
        "event": last.address,
        "file": last.line.file if last.line else None,
        "line": last.line.line if last.line else None,
        "code": last.code or None,
    }
    return Story(f"{headline} at {last.address}", steps, {**facts, **place})


# -- how dynamic a size was asked to be -----------------------------------------------------------


def _marks(events: Sequence[Event]) -> dict[str, str]:
    """Return 'marked dynamic' or 'dynamic' by the source of a size."""
    found: dict[str, str] = {}
    for event in events:
        if isinstance(event.fields, ShapeEnvCall) and event.name == _CREATE_SIZES:
            found |= _marks_of(event.fields.arguments)
    return found


def _marks_of(given: Mapping[str, Any]) -> dict[str, str]:
    marked = as_object(given.get("symbolic_context")).get("constraint_sizes")
    if not isinstance(marked, list):
        return {}
    base = source_name(given.get("source"))
    return {
        f"{base}.size()[{index}]": "dynamic" if constraint is None else "marked dynamic"
        for index, constraint in enumerate(marked)
    }
