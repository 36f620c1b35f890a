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

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import sympy

from torchreel.errors import DamagedStore, UnsupportedError, UsageError
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
from torchreel.store.records import Event
from torchreel.torch_compat import shapes
from torchreel.torch_compat.shapes import ShapeEnv

Data = Mapping[str, Json]


class _Rebuilt:
    """A ShapeEnv on its way, and the symbols that the event log has described for it."""

    def __init__(self, data: Data) -> None:
        self.env = new_shape_env(data)
        self.symbols = symbols.Vocabulary()

    def value(self, form: str, data: Json) -> Any:
        """A recorded value."""
        return calls.decode(form, data, self.symbols)

    def describe(self, data: Data) -> sympy.Symbol:
        """Enter a symbol into the table."""
        name = str(data["symbol"])
        symbol = symbols.decode_symbol(name, data["assumptions"])
        self.symbols.describe(name, symbol)
        return symbol


def _symbol(to: _Rebuilt, data: Data) -> None:
    symbol = to.describe(data)
    if data["hint"] is not None:
        to.env.backed_var_to_val[symbol] = to.value("scalar", data["hint"])
    if data["sources"] is not None:
        to.env.var_to_sources[symbol] = to.value("list source", data["sources"])
        if data["sources"]:
            _count_anew(to, symbol)
    if data["range"] is not None:
        to.env.var_to_range[symbol] = to.value("range", data["range"])


def _unbacked(to: _Rebuilt, data: Data) -> None:
    symbol = to.describe(data)
    if data["range"] is not None:
        to.env.var_to_range[symbol] = to.value("range", data["range"])


def _duck(to: _Rebuilt, data: Data) -> None:
    symbol = to.value("symbol", data["symbol"])
    sources = to.env.var_to_sources[symbol]
    sources.append(to.value("source", data["source"]))
    _count_anew(to, symbol)
    if data["first"]:
        sources[0], sources[-1] = sources[-1], sources[0]


def _range(to: _Rebuilt, data: Data) -> None:
    symbol = to.value("symbol", data["symbol"])
    old = None if data["old"] is None else to.value("range", data["old"])
    _expect(symbol, "range", to.env.var_to_range.get(symbol), old)
    to.env.var_to_range[symbol] = to.value("range", data["new"])


def _replacement(to: _Rebuilt, data: Data) -> None:
    symbol = to.value("symbol", data["symbol"])
    old = None if data["old"] is None else to.value("expr", data["old"])
    _expect(symbol, "replacement", to.env.replacements.get(symbol), old)
    to.env.replacements[symbol] = to.value("expr", data["expr"])


def _expect(symbol: sympy.Symbol, what: str, found: object, recorded: object) -> None:
    if found != recorded:
        raise DamagedStore(
            f"The event log has a hole: before it changed, the {what} of {symbol} was {recorded}, "
            f"and the events so far make it {found}. See what was lost with 'torchreel show'."
        )


def _divisible(to: _Rebuilt, data: Data) -> None:
    to.env.divisible.add(to.value("expr", data["expr"]))


def _guard(to: _Rebuilt, data: Data) -> None:
    guard = to.value("guard", [data["expr"], data["size_oblivious"]])
    to.env.guards.append(guard)
    to.env.symbol_guard_counter.update(guard.expr.free_symbols)


def _set(to: _Rebuilt, data: Data) -> None:
    changes = data["changes"]
    old: dict[sympy.Symbol, int] = {}
    sourced = isinstance(changes, Mapping) and "var_to_sources" in changes
    if sourced:
        old = {symbol: len(sources) for symbol, sources in to.env.var_to_sources.items()}
    calls.apply_set(to.env, changes, to.symbols)
    if sourced:
        for symbol, sources in to.env.var_to_sources.items():
            if len(sources) > old.get(symbol, 0):
                _count_anew(to, symbol)


def _count_anew(to: _Rebuilt, symbol: sympy.Symbol) -> None:
    """torch counts the guards on a symbol since it last got a source."""
    to.env.symbol_guard_counter[symbol] = 0


def _rename(to: _Rebuilt, data: Data) -> None:
    new = to.value("symbol", data["symbol"])
    to.env.unbacked_renamings[new] = to.value("symbol", data["to"])


def _size_like(to: _Rebuilt, data: Data) -> None:
    to.env.size_like.add(to.value("symbol", data["symbol"]))


def _defer(to: _Rebuilt, data: Data) -> None:
    symbol = None if data["symbol"] is None else to.value("symbol", data["symbol"])
    row = to.value("assert", [data["expr"], data["message"]])
    to.env.deferred_runtime_asserts.setdefault(symbol, []).append(row)


_CHANGES: dict[str, Callable[[_Rebuilt, Data], None]] = {
    BackedSymbol.kind: _symbol,
    DuckSymbol.kind: _duck,
    RangeUpdate.kind: _range,
    Replacement.kind: _replacement,
    Divisible.kind: _divisible,
    ShapeGuard.kind: _guard,
    ShapeEnvSet.kind: _set,
    UnbackedSymbol.kind: _unbacked,
    UnbackedRename.kind: _rename,
    SizeLike.kind: _size_like,
    DeferredAssert.kind: _defer,
}
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
    """Return what a rebuilt ShapeEnv is without, a sentence for each kind of it; usually
    nothing.
    """
    conditions = validated = 0
    for event in events:
        conditions += event.kind == SpecializeOn.kind
        created = event.data if event.kind == ShapeEnvCreate.kind else None
        validated += isinstance(created, Mapping) and bool(created.get("validation"))
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
    """Return whether an event changes a ShapeEnv when it is replayed."""
    return event.kind in _CHANGES


def rebuild_all(events: Sequence[Event], until: int | None = None) -> dict[int, ShapeEnv]:
    """Every ShapeEnv of a recording, by number, as it was right after the event `until`.

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
    data = event.data
    if event.kind == ShapeEnvCreate.kind and isinstance(data, Mapping):
        rebuilt[_number(data)] = _Rebuilt(data)
        return
    change = _CHANGES.get(event.kind)
    if change is None:
        if event.kind.startswith("shape_env.") and event.kind not in _NO_CHANGES:
            raise UnsupportedError(f"unknown change of a ShapeEnv: {event.kind!r:.80}")
        return
    if not isinstance(data, Mapping):
        raise UnsupportedError(f"the event {event.seq} ({event.kind}) has no data")
    number = _number(data)
    if number not in rebuilt:
        raise DamagedStore(
            f"The event log changes ShapeEnv {number}, but does not say how it began."
        )
    change(rebuilt[number], data)


def _number(data: Data) -> int:
    number = data.get("env")
    if not isinstance(number, int):
        raise UnsupportedError(f"a ShapeEnv has a number, found {number!r:.80}")
    return number


def rebuild(events: Sequence[Event], until: int | None = None, env: int | None = None) -> ShapeEnv:
    """One ShapeEnv of a recording, as it was right after the event `until`.

    `env` is its number; it may be left out when the events speak of one only.  Raises what
    `rebuild_all` does, and `UsageError` when there is no such ShapeEnv, or more than one.
    """
    numbers = dict.fromkeys(
        _number(event.data)
        for event in events
        if event.kind == ShapeEnvCreate.kind and isinstance(event.data, Mapping)
    )
    if env is None:
        if len(numbers) != 1:
            raise UsageError(
                f"The event log has {len(numbers)} ShapeEnvs: say which ({list(numbers)})."
            )
        (env,) = numbers
    own = [event for event in events if _concerns(event, env)]
    found = rebuild_all(own, until)
    if env not in found:
        raise UsageError(f"There is no ShapeEnv {env} in the event log at that event.")
    return found[env]


def _concerns(event: Event, env: int) -> bool:
    return isinstance(event.data, Mapping) and event.data.get("env") == env
