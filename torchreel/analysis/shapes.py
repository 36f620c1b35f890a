"""The symbol table of a compile, as it was right after any event.

Lives here: what each kind of event did to the part of a ShapeEnv that people ask about (symbols,
guards, deferred runtime asserts), as plain data.  Not here: the ShapeEnv itself
(`torchreel.replay.shape_env.rebuild.rebuild`); the tests hold the two against each other at every
event.

A store is data from a stranger: what is malformed raises, nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchreel.analysis.event_log import CompileEventLog
from torchreel.errors import DamagedStore, UnsupportedError, UsageError
from torchreel.events.event import EventType
from torchreel.events.scalars import (
    DeferredAssert,
    ScalarItem,
    SizeLike,
    UnbackedRename,
    UnbackedSymbol,
)
from torchreel.events.shape_env import (
    BackedSymbol,
    Divisible,
    DuckSymbol,
    RangeUpdate,
    Replacement,
    ShapeEnvCheckpoint,
    ShapeEnvCreate,
    ShapeEnvSet,
    ShapeGuard,
)
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.reading.holes import expect
from torchreel.store.records import Event

Range = tuple[Json, Json]


@dataclass(frozen=True)
class Symbol:
    """A row of the table; expressions are in the prefix form of `formats.symbols`."""

    name: str
    created: int
    backed: bool
    hint: Json = None
    range: Range | None = None
    replacement: Json = None
    sources: tuple[str, ...] = ()
    size_like: bool = False
    renamed: str | None = None
    """The symbol that an unbacked symbol was recognised as."""


@dataclass(frozen=True)
class Fact:
    """A guard, a deferred assertion or a divisibility, with the event that it came with."""

    seq: int
    expr: Json
    note: str = ""
    """The origin of a guard, as torch reports it, or the message of an assertion."""


@dataclass
class SymbolTable:
    """A ShapeEnv as of an event, as far as people ask about it."""

    env: int
    at: int = 0
    symbols: dict[str, Symbol] = field(default_factory=dict)
    guards: list[Fact] = field(default_factory=list)
    asserts: list[Fact] = field(default_factory=list)
    divisible: list[Fact] = field(default_factory=list)
    frozen: bool = False

    def static(self) -> dict[str, int]:
        """Return the symbols that stand for a number by now, also by way of other symbols."""
        return {name: value for name in self.symbols if (value := self._value(name)) is not None}

    def _value(self, name: str) -> int | None:
        seen: set[str] = set()
        while name not in seen and name in self.symbols:
            seen.add(name)
            found = self.symbols[name].replacement
            if isinstance(found, int):
                return found
            name = str(found)
        return None

    def sources(self) -> dict[str, str]:
        """Return the first source of each symbol that has one: guards read the symbol there."""
        return {name: row.sources[0] for name, row in self.symbols.items() if row.sources}


# -- which ShapeEnv -------------------------------------------------------------------------------

KINDS = ("shape_env.", "unbacked.", "runtime_assert.", ScalarItem.kind)


def shape_events(log: CompileEventLog, env: int | None = None) -> list[Event]:
    """Return the events of one ShapeEnv of a compile: that of its checkpoints, else of most
    events.  Raises UsageError for a number that no event has.
    """
    found = log.of(*KINDS)
    number = _env_of(log, found) if env is None else env
    own = [event for event in found if event.env == number]
    if own and own[0].kind == ShapeEnvCreate.kind:
        return own
    recording = queries.recording(log.store, log.compile.recording_id)
    kinds = [kind for kind in queries.event_counts(log.store, recording) if kind.startswith(KINDS)]
    everywhere = queries.events(log.store, recording, kinds)
    elsewhere = [event for event in everywhere if event.env == number]
    if env is not None and not elsewhere:
        _env_of(log, found)  # raises where there is none at all
        known = ", ".join(map(str, sorted({each.env for each in found if each.env is not None})))
        raise UsageError(f"{log.address} has no ShapeEnv {number}: it has {known}.")
    return elsewhere


def _env_of(log: CompileEventLog, events: Sequence[Event]) -> int:
    marks = [event.env for event in events if event.kind == ShapeEnvCheckpoint.kind]
    numbers = marks or [event.env for event in events]
    known = [number for number in numbers if number is not None]
    if not known:
        raise UnsupportedError(
            f"{log.address} has no ShapeEnv in its event log: it was recorded in flight mode, "
            f"imported "
            "from a trace, or ended before there was one. See 'torchreel show --events'."
        )
    return max(dict.fromkeys(known), key=known.count)


# -- the table ------------------------------------------------------------------------------------


def walk(events: Iterable[Event]) -> Iterator[tuple[Event, SymbolTable]]:
    """Yield each event of one ShapeEnv with the table right after it: always the same one,
    growing.
    """
    table: SymbolTable | None = None
    for event in events:
        table = _applied(table, event)
        yield event, table


def symbol_table(events: Sequence[Event], until: int | None = None) -> SymbolTable:
    """Return the table right after the event `until`, from the events of one ShapeEnv, in order.

    Raises `UsageError` when there was no ShapeEnv yet, `UnsupportedError` for what is malformed,
    `DamagedStore` when events are missing.
    """
    if not events or (until is not None and until < events[0].seq):
        begins = (
            f"it begins with event {events[0].seq}" if events else "there is none in the event log"
        )
        raise UsageError(f"This compile has no ShapeEnv yet at event {until}: {begins}.")
    steps = list(walk(event for event in events if until is None or event.seq <= until))
    table = steps[-1][1]
    table.at = table.at if until is None else until
    return table


def _applied(table: SymbolTable | None, event: Event) -> SymbolTable:
    if isinstance(event.fields, ShapeEnvCreate):
        return SymbolTable(event.fields.env, event.seq)
    if table is None:
        raise DamagedStore("The event log changes a ShapeEnv, but does not say how it began.")
    table.at = event.seq
    try:
        _change(table, event.seq, event.fields)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UnsupportedError(
            f"the event {event.seq} ({event.kind}) is malformed: {error!r:.200}"
        ) from error
    return table


def _change(table: SymbolTable, seq: int, fields: EventType | None) -> None:
    """Do to the table what an event did to the ShapeEnv."""
    match fields:
        case BackedSymbol(symbol=name, hint=hint, range=known, sources=sources):
            table.symbols[str(name)] = Symbol(
                str(name), seq, True, _scalar(hint), _range_of(known), sources=_names(sources or ())
            )
        case UnbackedSymbol(symbol=name, range=known):
            table.symbols[str(name)] = Symbol(str(name), seq, False, range=_range_of(known))
        case DuckSymbol(symbol=name, source=source, first=first):
            _share(table, name, source_name(source), first)
        case RangeUpdate(symbol=name, old=old, new=new):
            expect(name, "range", table.symbols[name].range, _range_of(old))
            _update(table, name, range=_range_of(new))
        case Replacement(symbol=name, old=old, expr=expr):
            expect(name, "replacement", table.symbols[name].replacement, old)
            _update(table, name, replacement=expr)
        case ShapeGuard(expr=expr, location=location):
            table.guards.append(Fact(seq, expr, str(location or "")))
        case DeferredAssert(expr=expr, message=message):
            table.asserts.append(Fact(seq, expr, str(message)))
        case Divisible(expr=expr):
            table.divisible.append(Fact(seq, expr))
        case UnbackedRename(symbol=name, to=new):
            _update(table, name, renamed=str(new))
        case SizeLike(symbol=name):
            _update(table, name, size_like=True)
        case ShapeEnvSet(changes=changes):
            _set(table, seq, changes)


def _share(table: SymbolTable, name: str, source: str, first: bool) -> None:
    old = table.symbols[name].sources
    # As create_symbol does it: the new one changes places with the first.
    new = (source, *old[1:], old[0]) if first and old else (*old, source)
    _update(table, name, sources=new)


def _set(table: SymbolTable, seq: int, changes: Mapping[str, Any]) -> None:
    for name, change in changes.items():
        if name in _ALL and "all" in change:
            _ALL[name](table, seq, change["all"])
        if name in _PUT:
            for key, value in change.get("put", ()):
                _update(table, str(key), **{_PUT[name][0]: _PUT[name][1](value)})
        for key in change.get("drop", ()):
            _drop(table, name, key)


def _drop(table: SymbolTable, name: str, key: Json) -> None:
    if name in _FIELDS:
        _update(table, str(key), **{_FIELDS[name][0]: _FIELDS[name][1]})
    elif name == "divisible":
        table.divisible = [fact for fact in table.divisible if fact.expr != key]


def _all_guards(table: SymbolTable, seq: int, value: Any) -> None:
    known = {_key(fact.expr): fact for fact in table.guards}
    table.guards = [known.get(_key(expr), Fact(seq, expr)) for expr, _ in value]


def _all_asserts(table: SymbolTable, seq: int, value: Any) -> None:
    known = {_key(fact.expr): fact for fact in table.asserts}
    rows = [row for _, asserts in value for row in asserts]
    table.asserts = [known.get(_key(expr), Fact(seq, expr, str(note))) for expr, note in rows]


def _frozen(table: SymbolTable, seq: int, value: Any) -> None:
    table.frozen = value is True


def _key(expr: Json) -> str:
    return str(expr)


def _update(table: SymbolTable, name: str, **fields: Any) -> None:
    table.symbols[name] = replace(table.symbols[name], **fields)


def _range_of(data: Any) -> Range | None:
    if data is None or isinstance(data, Mapping):
        return None
    low, high = data
    return low, high


def _scalar(data: Any) -> Json:
    """Return a hint; a list of one marks a SymPy number."""
    value: Json = data[0] if isinstance(data, list) else data
    return value


def _names(data: Any) -> tuple[str, ...]:
    return tuple(source_name(source) for source in data)


_PUT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "var_to_sources": ("sources", _names),
    "backed_var_to_val": ("hint", _scalar),
}
_FIELDS: dict[str, tuple[str, object]] = {
    "var_to_sources": ("sources", ()), "backed_var_to_val": ("hint", None),
    "var_to_range": ("range", None), "replacements": ("replacement", None),
    "size_like": ("size_like", False),
}  # fmt: skip
"""Fields of a ShapeEnv that may be dropped: the column here, and its value without them."""
_ALL: dict[str, Callable[[SymbolTable, int, Any], None]] = {
    "guards": _all_guards,
    "deferred_runtime_asserts": _all_asserts,
    "frozen": _frozen,
}
