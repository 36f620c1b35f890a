"""Finds changes of a ShapeEnv: compares each live one with the last seen state of it.

Lives here: `Shadow`, the last seen state of one ShapeEnv, and the events that say how it changed.
Not here: when it is looked at (`shape_env`), how the state is rebuilt
(`torchreel.replay.shape_env.rebuild`).

A call is not replayed to learn what it did.  What a ShapeEnv answers depends on caches that are
shared by all of them and cleared now and then, on the order of sets, on configuration and on the
caller's frames; so a call made again may do something else.  What it changed is a fact: the new
symbol, the range, the replacement, the guard.  Each such fact is one event, in order, and the
call is the event that they are parts of.  Almost all of a state only grows, and what does not is
compared by C code that stops at identical objects: a look at it costs some ten microseconds, and
happens only when one of the counts in `_SIZED` and `_PLAIN` has moved.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

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
    ShapeEnvCall,
    ShapeEnvCreate,
    ShapeEnvSet,
    ShapeGuard,
    SpecializeOn,
)
from torchreel.formats.deferred_values import DeferredValue
from torchreel.recorder.probes.guards import describe

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_SETTINGS = (
    "allow_scalar_outputs", "allow_dynamic_output_shape_ops", "assume_static_by_default",
    "specialize_zero_one", "duck_shape", "prefer_deferred_runtime_asserts_over_guards",
    "trace_asserts",
)  # fmt: skip
_TAILS = {"val_to_var": "map scalar symbol"}
"""Maps that only grow, and whose keys (nested ints are among them) must not be compared."""
_MAPS = {
    "source_to_var": "map plain symbol", "var_to_hint_override": "map symbol plain",
    "real_tensor_prop_unbacked_vals": "map symbol scalar",
    "source_name_to_debug_name": "map plain plain", "source_to_symbol": "map plain name",
    "unbacked_alloc_order": "map symbol plain", "_shape_id_to_unbacked_symbol": "map plain expr",
    "co_fields": "map plain plain", "_spec_symbol_to_compile_symbol": "map name expr",
    "axioms": "map expr expr",
}  # fmt: skip
_SETS = {"unique_ids": "set plain", "unbacked_inputs": "set symbol"}
_LISTS = {
    "pending_fresh_unbacked_symbols": "list symbol",
    "ignorable_fresh_unbacked_symbols": "list symbol",
    "exclusion_constraints": "list exclusion",
    "_shape_spec_pending_assumptions": "list pending",
}
_PLAIN = (
    "unbacked_symfloat_counter", "unbacked_symint_counter", "num_deferred_runtime_asserts",
    "frozen", "_error_on_new_guards", "runtime_asserts_frozen", "trace_asserts",
)  # fmt: skip
_OWN = (
    "backed_var_to_val", "var_to_range", "var_to_sources", "replacements", "unbacked_renamings",
    "divisible", "size_like", "guards",
)  # fmt: skip
"""Fields whose changes have kinds of their own."""
_SIZED = (*_TAILS, *_MAPS, *_SETS, *_LISTS, *_OWN, "specializations")
_VERSIONS = ("_version_counter", "_replacements_version_counter")

_NOTHING: Any = object()


class Pending:
    """The outermost call under way; its event is noted when it turns out to change something."""

    __slots__ = ("args", "kwargs", "method", "seq", "stack")

    def __init__(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.method, self.args, self.kwargs = method, args, kwargs
        self.seq: int | None = None
        self.stack: int | None = None


_Fields = tuple[frozenset[str], Callable[[Any], Any], Callable[[Any], Any]]
_FIELDS: dict[type, _Fields] = {}
"""By class, and not in each shadow: caches of torch's keep the last 256 ShapeEnvs alive."""


def _fields_of(env: Any) -> _Fields:
    """Return those of the fields above that a ShapeEnv of this torch has."""
    found = _FIELDS.get(type(env))
    if found is None:
        names = frozenset(name for name in (*_SIZED, *_PLAIN, *_VERSIONS) if hasattr(env, name))
        sized = attrgetter(*(name for name in _SIZED if name in names))
        plain = attrgetter(*(name for name in (*_PLAIN, *_VERSIONS) if name in names))
        found = _FIELDS[type(env)] = names, sized, plain
    return found


class Shadow:
    """The last seen state of one ShapeEnv, which it does not keep alive."""

    def __init__(
        self, recorder: Recorder, env: Any, number: int, gone: Callable[[Any], object]
    ) -> None:
        self.env = weakref.ref(env, gone)
        self.number = number
        self.call: Pending | None = None
        self.known: set[tuple[Any, bool]] = set()
        """Assertions that were found to hold, or not, without being deferred."""
        self._fields, self._sized, self._plain = _fields_of(env)
        self._seen: dict[str, Any] = {}
        self._symbols: set[Any] = set()
        self._guards: list[Any] = []
        self._asserts: dict[Any, list[Any]] = {}
        self._print: tuple[object, ...] = ()
        self._changes: dict[str, dict[str, DeferredValue]] = {}
        self._begin(recorder, env)

    def _begin(self, recorder: Recorder, env: Any) -> None:
        """Note a ShapeEnv that is new to the event log; it may hold something already."""
        self._seen = {name: {} for name in (*_MAPS, *_OWN)}
        self._seen |= dict.fromkeys((*_TAILS, "specializations"), 0)
        self._seen |= dict.fromkeys((*_SETS, "divisible", "size_like"), frozenset())
        self._seen |= {name: [] for name in _LISTS}
        self._seen |= dict.fromkeys(_PLAIN, False) | dict.fromkeys(_PLAIN[:3], 0)
        self._seen["trace_asserts"] = env.settings.trace_asserts
        settings = {name: getattr(env.settings, name) for name in _SETTINGS}
        validation = bool(getattr(env, "_translation_validation_enabled", False))
        recorder.note(ShapeEnvCreate(env=self.number, settings=settings, validation=validation))

    # -- looking --------------------------------------------------------------------------------

    def moved(self, env: Any) -> bool:
        """Return True if a count has changed since the state was last noted."""
        return self._print != (*map(len, self._sized(env)), *self._plain(env))

    def look(self, recorder: Recorder, env: Any, reason: str = "") -> None:
        """Note every change since the last time, as parts of the call under way."""
        if self.call is None:
            self._look(recorder, env, reason)
            return
        here = recorder.spans.here
        outer = here.cause
        try:
            self._look(recorder, env, reason)
        finally:
            here.cause = outer

    def _look(self, recorder: Recorder, env: Any, reason: str) -> None:
        self._changes = {}
        self._see_symbols(recorder, env)
        self._see_sources(recorder, env)
        self._see_ranges(recorder, env)
        self._see_replacements(recorder, env, reason)
        self._see_sets(recorder, env)
        self._see_guards(recorder, env)
        self._see_asserts(recorder, env)
        self._see_specializations(recorder, env)
        self._see_others(env)
        if self._changes:
            self._note(recorder, ShapeEnvSet(self.number, self._changes))
        self._print = (*map(len, self._sized(env)), *self._plain(env))

    def _note(self, recorder: Recorder, event: EventType, name: str = "") -> None:
        """Note a change; the first one of a call notes the call before it."""
        call, stack = self.call, None
        if call is not None:
            if call.seq is None:
                call.stack = recorder.user_stack()
                arguments = described(self.env(), call)
                call.seq = recorder.note(
                    ShapeEnvCall(self.number, arguments), call.method, stack=call.stack
                )
                call.args, call.kwargs = (), {}
            recorder.spans.here.cause = call.seq
            stack = call.stack
        recorder.note(event, name, stack=stack)

    # -- symbols --------------------------------------------------------------------------------

    def _see_symbols(self, recorder: Recorder, env: Any) -> None:
        seen = self._seen
        if len(env.var_to_range) == len(seen["var_to_range"]) and len(env.backed_var_to_val) == len(
            seen["backed_var_to_val"]
        ):
            return
        for symbol in [*env.backed_var_to_val, *env.var_to_range]:
            if symbol not in self._symbols:
                self._note_symbol(recorder, env, symbol)

    def _note_symbol(self, recorder: Recorder, env: Any, symbol: Any) -> None:
        """Note a symbol with what is known of it, and remember that."""
        self._symbols.add(symbol)
        known = {field: getattr(env, field).get(symbol, _NOTHING) for field in _OWN[:3]}
        for field, value in known.items():
            if value is not _NOTHING:
                self._seen[field][symbol] = list(value) if field == "var_to_sources" else value
        hint, bounds, sources = known.values()
        assumptions = DeferredValue("assumptions", symbol)
        limits = None if bounds is _NOTHING else DeferredValue("range", bounds)
        if hint is _NOTHING and sources is _NOTHING:
            pending = symbol in env.pending_fresh_unbacked_symbols
            self._note(
                recorder,
                UnbackedSymbol(
                    env=self.number,
                    symbol=DeferredValue("symbol", symbol),
                    assumptions=assumptions,
                    range=limits,
                    pending=pending,
                ),
                symbol.name,
            )
            return
        value = None if hint is _NOTHING else DeferredValue("scalar", hint)
        read = None if sources is _NOTHING else tuple(DeferredValue("source", s) for s in sources)
        self._note(
            recorder,
            BackedSymbol(
                env=self.number,
                symbol=DeferredValue("symbol", symbol),
                assumptions=assumptions,
                hint=value,
                range=limits,
                sources=read,
            ),
            symbol.name,
        )
        self._see_item(recorder, symbol, sources)

    def _see_item(self, recorder: Recorder, symbol: Any, sources: Any) -> None:
        if sources is _NOTHING or not sources:
            return
        if type(sources[0]).__name__ == "CallMethodItemSource":
            values = DeferredValue("symbol", symbol), DeferredValue("source", sources[0])
            self._note(recorder, ScalarItem(self.number, *values), symbol.name)

    def _mention(self, recorder: Recorder, env: Any, expr: Any) -> None:
        """Describe the symbols of an expression that nothing has described yet."""
        for symbol in getattr(expr, "free_symbols", ()):
            if symbol not in self._symbols:
                self._note_symbol(recorder, env, symbol)

    def _see_sources(self, recorder: Recorder, env: Any) -> None:
        seen = self._seen["var_to_sources"]
        if env.var_to_sources == seen:
            return
        for symbol, sources in env.var_to_sources.items():
            old = seen.get(symbol)
            if old != sources:
                self._note_sources(recorder, symbol, old, sources)
                seen[symbol] = list(sources)
        self._drop("var_to_sources", "symbol", seen, env.var_to_sources)

    def _note_sources(self, recorder: Recorder, symbol: Any, old: Any, new: list[Any]) -> None:
        """Note an input that shares a symbol, at the end, or exchanged with the first one."""
        source = _added(old, new)
        if source is None:
            piece = DeferredValue("maplist symbol source", {symbol: list(new)})
            self._merge("var_to_sources", "put", piece)
            return
        self._note(
            recorder,
            DuckSymbol(
                env=self.number,
                symbol=DeferredValue("symbol", symbol),
                source=DeferredValue("source", source),
                first=new[-1] is not source,
            ),
            symbol.name,
        )

    def _see_ranges(self, recorder: Recorder, env: Any) -> None:
        seen = self._seen["var_to_range"]
        for symbol, new in _changed(seen, env.var_to_range):
            old = seen.get(symbol)
            seen[symbol] = new
            before = None if old is None else DeferredValue("range", old)
            self._note(
                recorder,
                RangeUpdate(
                    env=self.number,
                    symbol=DeferredValue("symbol", symbol),
                    old=before,
                    new=DeferredValue("range", new),
                ),
                symbol.name,
            )
        self._drop("var_to_range", "symbol", seen, env.var_to_range)
        hints = self._seen["backed_var_to_val"]
        put = dict(_changed(hints, env.backed_var_to_val))
        if put:
            hints |= put
            self._merge("backed_var_to_val", "put", DeferredValue("map symbol scalar", put))
        self._drop("backed_var_to_val", "symbol", hints, env.backed_var_to_val)

    def _see_replacements(self, recorder: Recorder, env: Any, reason: str) -> None:
        seen = self._seen["replacements"]
        for symbol, new in _changed(seen, env.replacements):
            old, seen[symbol] = seen.get(symbol), new
            self._mention(recorder, env, symbol)
            self._mention(recorder, env, new)
            before = None if old is None else DeferredValue("expr", old)
            self._note(
                recorder,
                Replacement(
                    env=self.number,
                    symbol=DeferredValue("symbol", symbol),
                    expr=DeferredValue("expr", new),
                    old=before,
                    reason=reason,
                ),
                symbol.name,
            )
        self._drop("replacements", "symbol", seen, env.replacements)
        renamings = self._seen["unbacked_renamings"]
        for symbol, new in _changed(renamings, env.unbacked_renamings):
            renamings[symbol] = new
            self._note(
                recorder,
                UnbackedRename(
                    env=self.number,
                    symbol=DeferredValue("symbol", symbol),
                    to=DeferredValue("symbol", new),
                ),
                symbol.name,
            )

    def _see_sets(self, recorder: Recorder, env: Any) -> None:
        for field, event_type, form in (
            ("divisible", Divisible, "expr"),
            ("size_like", SizeLike, "symbol"),
        ):
            seen, now = self._seen[field], getattr(env, field)
            if now == seen:
                continue
            for item in sorted(now - seen, key=str):  # a set has another order in each process
                self._mention(recorder, env, item)
                event = event_type(self.number, DeferredValue(form, item))
                self._note(recorder, event, str(item) if form == "symbol" else "")
            gone = seen - now
            if gone:
                self._merge(field, "drop", DeferredValue(f"list {form}", list(gone)))
            self._seen[field] = frozenset(now)

    # -- guards ---------------------------------------------------------------------------------

    def _see_guards(self, recorder: Recorder, env: Any) -> None:
        seen, now = self._guards, env.guards
        count = len(seen)
        if len(now) == count and (not count or now[-1] is seen[-1]):
            return
        if len(now) < count or (count and now[count - 1] is not seen[-1]):
            self._merge("guards", "all", DeferredValue("list guard", list(now)))
            self._guards = list(now)
            return
        for guard in now[count:]:
            self._mention(recorder, env, guard.expr)
            self._note(
                recorder,
                ShapeGuard(
                    env=self.number,
                    expr=DeferredValue("expr", guard.expr),
                    size_oblivious=bool(guard.size_oblivious),
                    location=guard.sloc,
                ),
            )
        seen += now[count:]

    def _see_asserts(self, recorder: Recorder, env: Any) -> None:
        seen, now = self._asserts, env.deferred_runtime_asserts
        if now == seen:
            return
        for symbol, rows in list(now.items()):
            old = seen.get(symbol, [])
            if rows[: len(old)] != old:
                form = "maplist expr assert"
                self._merge("deferred_runtime_asserts", "all", DeferredValue(form, _copied(now)))
                break
            for row in rows[len(old) :]:
                self._mention(recorder, env, row.expr)
                key = None if symbol is None else DeferredValue("symbol", symbol)
                self._note(
                    recorder,
                    DeferredAssert(
                        env=self.number,
                        symbol=key,
                        expr=DeferredValue("expr", row.expr),
                        message=row.msg,
                    ),
                    str(symbol or ""),
                )
        self._asserts = _copied(now)

    def _see_specializations(self, recorder: Recorder, env: Any) -> None:
        """Note the conditions for which the program wants a graph of its own (`specialize_on`)."""
        count = self._seen["specializations"]
        for item in itertools.islice(getattr(env, "specializations", ()), count, None):
            source, condition = DeferredValue("source name", item.source), describe(item.check_fn)
            self._note(recorder, SpecializeOn(env=self.number, source=source, condition=condition))
            self._seen["specializations"] += 1

    # -- the rest -------------------------------------------------------------------------------

    def _see_others(self, env: Any) -> None:
        fields = self._fields
        for name, form in _TAILS.items():
            self._see_tail(name, form, getattr(env, name))
        for name, form in _MAPS.items():
            if name in fields and getattr(env, name) != self._seen[name]:
                self._see_map(name, form, getattr(env, name))
        for name, form in (*_SETS.items(), *_LISTS.items()):
            if name in fields and getattr(env, name) != self._seen[name]:
                self._see_collection(name, form, getattr(env, name))
        for name in _PLAIN:
            if name in fields and getattr(env, name) != self._seen[name]:
                self._seen[name] = getattr(env, name)
                self._merge(name, "all", DeferredValue("plain", getattr(env, name)))

    def _see_tail(self, name: str, form: str, now: dict[Any, Any]) -> None:
        count, self._seen[name] = self._seen[name], len(now)
        if len(now) == count:
            return
        what, first = ("put", count) if len(now) > count else ("all", 0)
        from torchreel.torch_compat.shapes import expression

        tail = itertools.islice(now.items(), first, None)
        # A nested int is a key as well: it is a SymInt, which must not be handed over.
        pairs = {k if isinstance(k, (int, float)) else expression(k.node): v for k, v in tail}
        self._merge(name, what, DeferredValue(form, pairs))

    def _see_map(self, name: str, form: str, now: dict[Any, Any]) -> None:
        seen = self._seen[name]
        # The new entries come last; only where that is not all, each one is looked at.
        put = dict(itertools.islice(now.items(), len(seen), None))
        seen |= put
        if seen != now:
            changed = dict(_changed(seen, now))
            seen |= changed
            put |= changed
        if put:
            self._merge(name, "put", DeferredValue(form, put))
        self._drop(name, form.split()[1], seen, now)

    def _see_collection(self, name: str, form: str, now: Any) -> None:
        seen = self._seen[name]
        self._seen[name] = type(seen)(now)
        if form.startswith("set") and seen <= self._seen[name]:
            self._merge(name, "put", DeferredValue(form, self._seen[name] - seen))
        else:
            self._merge(name, "all", DeferredValue(form, self._seen[name].copy()))

    def _drop(self, name: str, form: str, seen: dict[Any, Any], now: Any) -> None:
        if len(seen) == len(now):
            return
        gone = [key for key in seen if key not in now]
        for key in gone:
            del seen[key]
        self._merge(name, "drop", DeferredValue(f"list {form}", gone))

    def _merge(self, name: str, what: str, piece: DeferredValue) -> None:
        self._changes.setdefault(name, {})[what] = piece


def described(env: Any, call: Pending) -> dict[str, object]:
    """Return the arguments of a call by name, without any object that is not a value."""
    function = inspect.unwrap(getattr(type(env), call.method))
    names = function.__code__.co_varnames[1:]
    given = {**dict(zip(names, call.args[1:], strict=False)), **call.kwargs}
    return {name: _argument(value) for name, value in given.items()}


def _argument(value: Any) -> object:
    import sympy
    from torch._guards import Source

    if value is None or isinstance(value, (bool, int, float, str, sympy.Basic, Source, enum.Enum)):
        return value
    if type(value).__name__ == "ValueRanges":
        return DeferredValue("range", value)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(item) for item in value)
    if isinstance(value, dict):
        return {str(key): _argument(item) for key, item in value.items()}
    node: Any = getattr(value, "node", None)
    if hasattr(node, "_expr"):
        return node._expr
    if type(value).__module__ != _SHAPES:
        return {"type": type(value).__name__}
    parts = {name: _argument(getattr(value, name)) for name in _PARTS if hasattr(value, name)}
    return {"type": type(value).__name__, **parts}


_SHAPES = "torch.fx.experimental.symbolic_shapes"
_PARTS = ("dynamic_sizes", "dynamic_strides", "constraint_sizes", "constraint_strides", "vr")
"""Attributes of a symbolic context or a constraint that are recorded."""


def _added(old: list[Any] | None, new: list[Any]) -> Any:
    """Return the one source by which a symbol's sources grew, as create_symbol does it; else
    None.
    """
    if not old or len(new) != len(old) + 1:
        return None
    if new[:-1] == old:
        return new[-1]
    if new[-1] is old[0] and new[1:-1] == old[1:]:
        return new[0]
    return None


def _changed(seen: dict[Any, Any], now: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the entries that are new or have another value."""
    if seen == now:
        return []
    return [
        (key, value)
        for key, value in now.items()
        if (old := seen.get(key, _NOTHING)) is not value and (old is _NOTHING or old != value)
    ]


def _copied(asserts: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    return {symbol: list(rows) for symbol, rows in asserts.items()}
