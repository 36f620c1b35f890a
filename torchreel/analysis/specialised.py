"""`why specialised`: which event made a size or a number static, and for which line.

Lives here: finding the events after which a symbol stands for a number, and the sizes that never
got a symbol.  Not here: what the events say (`steps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchreel.analysis.event_log import CompileEventLog, data_of
from torchreel.analysis.shapes import Symbol, shape_events, walk
from torchreel.analysis.steps import Step, Story, step_of
from torchreel.events.scalars import SymbolicScalar
from torchreel.events.shape_env import Replacement, ShapeEnvCall, ShapeEnvCreate, ZeroOne
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event

_CREATE_SIZES = "_create_symbolic_sizes_strides_storage_offset"


def why_specialised(log: CompileEventLog) -> list[Story]:
    """One story for each size or number that was dynamic and became static, or never got a symbol.

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
    stories += [_zero_one_story(log, e) for e in events if e.kind == ZeroOne.kind]
    return stories + [
        _constant_story(log, e) for e in log.of(SymbolicScalar.kind) if _is_constant(e)
    ]


def _moments(events: Sequence[Event]) -> Iterator[tuple[Event, Symbol, int]]:
    """Each symbol that became static, with the event that made it so, and the number.

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
    """Return what tied a symbol to another one, when it is the other that became static."""
    if data_of(last).get("symbol") == row.name:
        return []
    tied = [
        event
        for event in events
        if event.kind == Replacement.kind
        and event.seq < last.seq
        and data_of(event).get("symbol") == row.name
    ]
    return [step_of(log, tied[-1])] if tied else []


def _zero_one_story(log: CompileEventLog, event: Event) -> Story:
    source, value = data_of(event).get("source"), data_of(event).get("value")
    facts = {"symbol": None, "sources": [source], "value": value, "was": "0/1"}
    return _story(f"{source} (dynamic) is {value} and got no symbol", (step_of(log, event),), facts)


def _is_constant(event: Event) -> bool:
    return data_of(event).get("expr") is None


def _constant_story(log: CompileEventLog, event: Event) -> Story:
    data = data_of(event)
    source, value = source_name(data.get("source")), data.get("value")
    facts = {"symbol": None, "sources": [source], "value": value, "was": "constant"}
    return _story(
        f"{source} ({data.get('type')}) is the constant {value!r}", (step_of(log, event),), facts
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
    """'marked dynamic' or 'dynamic', by the source of a size."""
    found: dict[str, str] = {}
    for event in events:
        if event.kind == ShapeEnvCall.kind and event.name == _CREATE_SIZES:
            given = data_of(event).get("arguments")
            found |= _marks_of(given) if isinstance(given, Mapping) else {}
    return found


def _marks_of(given: Mapping[str, Any]) -> dict[str, str]:
    context = given.get("symbolic_context")
    marked = context.get("constraint_sizes") if isinstance(context, Mapping) else None
    if not isinstance(marked, list):
        return {}
    base = source_name(given.get("source"))
    return {
        f"{base}.size()[{index}]": "dynamic" if constraint is None else "marked dynamic"
        for index, constraint in enumerate(marked)
    }
