"""ShapeEnvs rebuilt from the event log, as they were at any event.

Lives here: what each kind of event did to a ShapeEnv, done again to a new one.  Not here: the forms
of the values (`torchreel.formats.shape_env.calls`), who noted them (the recorder's probe
`shape_env`).  The events are data from a stranger: nothing is evaluated, every kind and field comes
from a closed table, and what is unknown raises.

The changes are made again, not the calls that made them: what a call does depends on caches, on the
order of sets and on the caller's frames (see `torchreel.recorder.probes.shape_state`), what it did
does not.  So the result is the recorded state in any process, also in the middle of a call.  Left
out are the conditions of `mark_dynamic(..., specialize_on=...)`, which are the user's code, and the
solver of translation validation: `left_out` says so.  How many guards each symbol has (which torch
takes for no part of the state) is counted from the events: where one call adds a guard and then
gives its symbol another source, as with jagged tensors, it may be one too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import sympy

from torchreel.errors import DamagedStore, UnsupportedError, UsageError
from torchreel.events.event import EventType
from torchreel.events.scalars import (
    DataDependentError,
    DeferredAssert,
    InsertedAsserts,
    KnownAssert,
    ScalarItem,
    SizeLike,
    UnbackedBindings,
    UnbackedRebind,
    UnbackedRename,
    UnbackedSymbol,
)
from torchreel.events.shape_env import (
    BackedSymbol,
    Divisible,
    DuckSymbol,
    ProducedGuards,
    RangeUpdate,
    Replacement,
    ShapeEnvCall,
    ShapeEnvCheckpoint,
    ShapeEnvCreate,
    ShapeEnvSet,
    ShapeGuard,
    SpecializeOn,
    ZeroOne,
)
from torchreel.formats import symbols
from torchreel.formats.shape_env import calls
from torchreel.formats.shape_env.snapshots import new_shape_env
from torchreel.store.documents.jsontypes import Json
from torchreel.store.reading.holes import expect
from torchreel.store.records import Event
from torchreel.torch_compat import shapes
from torchreel.torch_compat.shapes import ShapeEnv


class _Rebuilt:
    """A ShapeEnv on its way, and the symbols that the event log has described for it."""

    def __init__(self, settings: ShapeEnvCreate) -> None:
        self.env = new_shape_env({"settings": settings.settings})
        self.symbols = symbols.Vocabulary()

    def value(self, form: str, data: Json) -> Any:
        """Return a recorded value."""
        return calls.decode(form, data, self.symbols)

    def symbol(self, name: Json) -> sympy.Symbol:
        """Return a symbol that the event log has described."""
        found: sympy.Symbol = self.value("symbol", name)
        return found

    def describe(self, name: Json, assumptions: Json) -> sympy.Symbol:
        """Enter a symbol into the table."""
        symbol = symbols.decode_symbol(str(name), assumptions)
        self.symbols.describe(str(name), symbol)
        return symbol


def _change(to: _Rebuilt, fields: EventType) -> None:
    """Apply one recorded event to a ShapeEnv."""
    match fields:
        case BackedSymbol():
            _create(to, fields)
        case UnbackedSymbol(symbol=name, assumptions=assumptions, range=known):
            _set_range(to, to.describe(name, assumptions), known)
        case DuckSymbol(symbol=name, source=source, first=first):
            _share(to, to.symbol(name), to.value("source", source), first=first)
        case RangeUpdate(symbol=name, old=old, new=new):
            symbol, before = to.symbol(name), None if old is None else to.value("range", old)
            expect(symbol, "range", to.env.var_to_range.get(symbol), before)
            to.env.var_to_range[symbol] = to.value("range", new)
        case Replacement(symbol=name, old=old, expr=expr):
            symbol, before = to.symbol(name), None if old is None else to.value("expr", old)
            expect(symbol, "replacement", to.env.replacements.get(symbol), before)
            to.env.replacements[symbol] = to.value("expr", expr)
        case ShapeGuard(expr=expr, size_oblivious=size_oblivious):
            guard = to.value("guard", [expr, size_oblivious])
            to.env.guards.append(guard)
            to.env.symbol_guard_counter.update(guard.expr.free_symbols)
        case Divisible(expr=expr):
            to.env.divisible.add(to.value("expr", expr))
        case UnbackedRename(symbol=name, to=old):
            to.env.unbacked_renamings[to.symbol(name)] = to.symbol(old)
        case SizeLike(symbol=name):
            to.env.size_like.add(to.symbol(name))
        case DeferredAssert(symbol=name, expr=expr, message=message):
            of = None if name is None else to.symbol(name)
            row = to.value("assert", [expr, message])
            to.env.deferred_runtime_asserts.setdefault(of, []).append(row)
        case ShapeEnvSet(changes=changes):
            _set(to, changes)


def _create(to: _Rebuilt, made: BackedSymbol) -> None:
    symbol = to.describe(made.symbol, made.assumptions)
    if made.hint is not None:
        to.env.backed_var_to_val[symbol] = to.value("scalar", made.hint)
    if made.sources is not None:
        to.env.var_to_sources[symbol] = to.value("list source", list(made.sources))
        if made.sources:
            _count_anew(to, symbol)
    _set_range(to, symbol, made.range)


def _set_range(to: _Rebuilt, symbol: sympy.Symbol, known: Json) -> None:
    if known is not None:
        to.env.var_to_range[symbol] = to.value("range", known)


def _share(to: _Rebuilt, symbol: sympy.Symbol, source: Any, *, first: bool) -> None:
    sources = to.env.var_to_sources[symbol]
    sources.append(source)
    _count_anew(to, symbol)
    if first:
        sources[0], sources[-1] = sources[-1], sources[0]


def _set(to: _Rebuilt, changes: Mapping[str, Json]) -> None:
    old: dict[sympy.Symbol, int] = {}
    sourced = "var_to_sources" in changes
    if sourced:
        old = {symbol: len(sources) for symbol, sources in to.env.var_to_sources.items()}
    calls.apply_set(to.env, changes, to.symbols)
    if sourced:
        for symbol, sources in to.env.var_to_sources.items():
            if len(sources) > old.get(symbol, 0):
                _count_anew(to, symbol)


def _count_anew(to: _Rebuilt, symbol: sympy.Symbol) -> None:
    """Count the guards on a symbol anew: torch counts them since the symbol last got a source."""
    to.env.symbol_guard_counter[symbol] = 0


_CHANGES = (
    BackedSymbol, DuckSymbol, RangeUpdate, Replacement, Divisible, ShapeGuard, ShapeEnvSet,
    UnbackedSymbol, UnbackedRename, SizeLike, DeferredAssert,
)  # fmt: skip
"""Types that change a ShapeEnv."""
_NO_CHANGES = frozenset(
    {
        ShapeEnvCall.kind, ZeroOne.kind, ProducedGuards.kind, ShapeEnvCheckpoint.kind,
        SpecializeOn.kind,
        UnbackedBindings.kind, UnbackedRebind.kind, DataDependentError.kind,
        KnownAssert.kind, InsertedAsserts.kind, ScalarItem.kind,
    }
)  # fmt: skip
"""Kinds that name a ShapeEnv and change none."""
MAY_CHANGE = ("shape_env.", "unbacked.", "runtime_assert.")
"""Prefixes of the kinds that may change a ShapeEnv; other kinds are passed over."""


def left_out(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each kind of state that a rebuilt ShapeEnv lacks; usually none."""
    conditions = validated = 0
    for event in events:
        conditions += event.kind == SpecializeOn.kind
        validated += isinstance(event.fields, ShapeEnvCreate) and event.fields.validation
    found = []
    if conditions:
        found.append(
            f"not rebuilt: {conditions} conditions of `specialize_on`, which are the program's code"
        )
    if validated:
        found.append(
            f"not rebuilt: the Z3 solver and the graph of translation validation ({validated} "
            "ShapeEnvs), which check the state and are no part of it"
        )
    return found


def is_change(event: Event) -> bool:
    """Return True if an event changes a ShapeEnv when it is replayed."""
    return isinstance(event.fields, _CHANGES)


def rebuild_all(events: Sequence[Event], until: int | None = None) -> dict[int, ShapeEnv]:
    """Return every ShapeEnv of a recording, by number, as it was right after the event `until`.

    `events` are those of the whole recording (`queries.events`), in any order; other kinds are
    passed over.  Raises `UnsupportedError` for a kind, field or value that this version does not
    know or that had no portable form, `DamagedStore` when events are missing.
    """
    rebuilt: dict[int, _Rebuilt] = {}
    kinds = {kind for kind in {event.kind for event in events} if kind.startswith(MAY_CHANGE)}
    changes = [event for event in events if event.kind in kinds]
    for event in sorted(changes, key=attrgetter("seq")):
        if until is not None and event.seq > until:
            break
        try:
            _apply(rebuilt, event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnsupportedError(
                f"the event {event.seq} ({event.kind}) is malformed: {error!r:.200}"
            ) from error
    for each in rebuilt.values():
        shapes.settle_shape_env(each.env)
    return {number: each.env for number, each in rebuilt.items()}


def _apply(rebuilt: dict[int, _Rebuilt], event: Event) -> None:
    fields = event.fields
    if isinstance(fields, ShapeEnvCreate):
        rebuilt[fields.env] = _Rebuilt(fields)
        return
    if not isinstance(fields, _CHANGES):
        if event.kind.startswith("shape_env.") and event.kind not in _NO_CHANGES:
            raise UnsupportedError(f"unknown change of a ShapeEnv: {event.kind!r:.80}")
        return
    if fields.env not in rebuilt:
        raise DamagedStore(
            f"The event log changes ShapeEnv {fields.env}, but does not say how it began."
        )
    _change(rebuilt[fields.env], fields)


def rebuild(events: Sequence[Event], until: int | None = None, env: int | None = None) -> ShapeEnv:
    """Return one ShapeEnv of a recording, as it was right after the event `until`.

    `env` is its number; it may be left out when the events speak of one only.  Raises what
    `rebuild_all` does, and `UsageError` when there is no such ShapeEnv, or more than one.
    """
    numbers = dict.fromkeys(
        event.fields.env for event in events if isinstance(event.fields, ShapeEnvCreate)
    )
    if env is None:
        if len(numbers) != 1:
            raise UsageError(
                f"The event log has {len(numbers)} ShapeEnvs: say which ({list(numbers)})."
            )
        (env,) = numbers
    own = [event for event in events if event.env == env]
    found = rebuild_all(own, until)
    if env not in found:
        raise UsageError(f"There is no ShapeEnv {env} in the event log at that event.")
    return found[env]
