"""A snapshot of a ShapeEnv: its complete state at one moment, as data.

Lives here: which fields of a ShapeEnv are state, how each is written and restored.  Not here: the
calls between two snapshots (the event log).  Called by `checkpoints`.

Fields come in shapes (a map from symbol to expression, a set of symbols, ...), so the table `STATE`
is the whole format: field name, shape.  Stacks and source locations are not state and are left
out; `ShapeEnv.check_equal` is the test that nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, sources, symbols
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat import shapes
from torchreel.torch_compat.dynamo.contexts import Source
from torchreel.torch_compat.shapes import ShapeEnv, ValueRanges

Table = Mapping[str, sympy.Symbol]
Encode = Callable[[Any], Json]
Decode = Callable[[Any, Table], Any]


def _symbol(data: Json, table: Table) -> sympy.Symbol:
    if data not in table:
        raise UnsupportedError(f"the snapshot names the symbol {data!r} but does not describe it")
    return table[str(data)]


def _name(symbol: sympy.Symbol) -> Json:
    return symbol.name if isinstance(symbol, sympy.Symbol) else symbols.encode_expr(symbol)


def _scalar(value: Any) -> Json:
    return (
        node_arguments.encode_value(value)
        if not isinstance(value, sympy.Basic)
        else [symbols.encode_expr(value)]
    )  # a list marks a SymPy number: hints keep their type


def _unscalar(data: Json, table: Table) -> Any:
    if isinstance(data, list):
        return symbols.decode_expr(data[0], table)
    return node_arguments.decode_value(data, _no_leaf)


def _key(value: Any) -> Json:
    """Return a size that shares a symbol with its equals: a number, or a nested int."""
    return (
        [symbols.encode_expr(shapes.expression(value.node))]
        if isinstance(value, torch.SymInt)
        else _scalar(value)
    )


def _unkey(data: Json, table: Table) -> Any:
    value = _unscalar(data, table)
    nested = isinstance(value, shapes.SingletonInt)
    return shapes.nested_int(value) if nested else value


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"malformed snapshot: {kind!r} holding {data!r:.60}")


def _encode_range(value: Any) -> Json:
    return [symbols.encode_expr(value.lower), symbols.encode_expr(value.upper)]


def _decode_range(data: Any, table: Table) -> Any:
    def read() -> Any:
        return ValueRanges(*(symbols.decode_expr(bound, table) for bound in data))

    return table.once((*data, "range"), read) if isinstance(table, symbols.Vocabulary) else read()


def _encode_source(value: Any) -> Json:
    return sources.encode_source(value) if isinstance(value, Source) else str(value)


def _decode_source(data: Any, table: Table) -> Any:
    return data if isinstance(data, str) else sources.decode_source(data)


def _plain(value: Any) -> Json:
    return node_arguments.encode_value(value)


def _unplain(data: Any, table: Table) -> Any:
    return node_arguments.decode_value(data, _no_leaf)


def _unname(data: Json, table: Table) -> sympy.Symbol:
    return _symbol(data, table) if isinstance(data, str) else symbols.decode_name(data)


_CODECS: dict[str, tuple[Encode, Decode]] = {
    "symbol": (_name, _symbol),
    "name": (symbols.encode_name, _unname),
    "expr": (symbols.encode_expr, symbols.decode_expr),
    "scalar": (_scalar, _unscalar),
    "key": (_key, _unkey),
    "range": (_encode_range, _decode_range),
    "source": (_encode_source, _decode_source),
    "plain": (_plain, _unplain),
}

# field of ShapeEnv -> its shape: "map KEY VALUE", "maplist KEY VALUE", "set ITEM", "list ITEM",
# or a codec's name for a single value.
STATE: dict[str, str] = {
    "axioms": "map expr expr",
    "unique_ids": "set plain",
    "backed_var_to_val": "map symbol scalar",
    "real_tensor_prop_unbacked_vals": "map symbol scalar",
    "var_to_range": "map symbol range",
    "source_name_to_debug_name": "map plain plain",
    "var_to_sources": "maplist symbol source",
    "unbacked_inputs": "set symbol",
    "var_to_hint_override": "map symbol plain",
    "source_to_var": "map plain symbol",
    "replacements": "map symbol expr",
    "unbacked_renamings": "map symbol symbol",
    "divisible": "set expr",
    "size_like": "set symbol",
    "val_to_var": "map key symbol",
    "unbacked_symfloat_counter": "plain",
    "unbacked_symint_counter": "plain",
    "num_deferred_runtime_asserts": "plain",
    "frozen": "plain",
    "_error_on_new_guards": "plain",
    "runtime_asserts_frozen": "plain",
    "co_fields": "map plain plain",
    "pending_fresh_unbacked_symbols": "list symbol",
    "ignorable_fresh_unbacked_symbols": "list symbol",
    "source_to_symbol": "map plain name",
    "unbacked_alloc_order": "map symbol plain",
    "_shape_id_to_unbacked_symbol": "map plain expr",
    "_spec_symbol_to_compile_symbol": "map name expr",
    "trace_asserts": "plain",
    "symbol_guard_counter": "map symbol plain",
}


def encode_shape_env(env: ShapeEnv) -> dict[str, Json]:
    """Return the snapshot of a ShapeEnv: settings, symbols, state, guards, deferred runtime
    asserts.
    """
    state = {
        field: _encode_field(shape, getattr(env, field))
        for field, shape in STATE.items()
        if hasattr(env, field)
    }
    return {
        "settings": {k: bool(getattr(env.settings, k)) for k in sorted(SETTINGS)},
        "symbols": {s.name: symbols.encode_symbol(s) for s in _all_symbols(env)},
        "state": state,
        "guards": [[symbols.encode_expr(g.expr), bool(g.size_oblivious)] for g in env.guards],
        "deferred": _encode_deferred(env),
        "exclusions": [[_name(s), v] for s, v in getattr(env, "exclusion_constraints", [])],
    }


def _all_symbols(env: ShapeEnv) -> list[sympy.Symbol]:
    """Return every symbol that any part of the state mentions, by name."""
    found: dict[str, sympy.Symbol] = {}
    stack: list[object] = [
        getattr(env, field, None) for field, shape in STATE.items() if "name" not in shape.split()
    ]
    stack += [g.expr for g in env.guards]
    stack += [a.expr for asserts in env.deferred_runtime_asserts.values() for a in asserts]
    stack += list(env.deferred_runtime_asserts)
    while stack:
        value = stack.pop()
        if isinstance(value, sympy.Basic):
            found.update((s.name, s) for s in value.free_symbols)
        elif isinstance(value, Mapping):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, ValueRanges):
            stack += [value.lower, value.upper]
        elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            stack += list(value)
    return [found[name] for name in sorted(found)]


def _encode_deferred(env: ShapeEnv) -> Json:
    return [
        [
            None if symbol is None else _name(symbol),
            [[symbols.encode_expr(a.expr), a.msg] for a in asserts],
        ]
        for symbol, asserts in env.deferred_runtime_asserts.items()
    ]


def _encode_field(shape: str, value: Any) -> Json:
    kind, *codecs = shape.split()
    encode = [_CODECS[name][0] for name in codecs]
    if kind == "map":
        return [[encode[0](k), encode[1](v)] for k, v in value.items()]
    if kind == "maplist":
        return [[encode[0](k), [encode[1](item) for item in v]] for k, v in value.items()]
    if kind == "list":
        return [encode[0](item) for item in value]
    if kind == "set":
        return sorted((encode[0](item) for item in value), key=str)
    return _CODECS[kind][0](value)


def encode_field(shape: str, value: Any) -> Json:
    """Return the value of a field, or one item of it, in a shape of `STATE`."""
    return _encode_field(shape, value)


def decode_field(codec: str, data: Any, table: Table) -> Any:
    """Return the value that a codec of `STATE` wrote.  Raises `UnsupportedError` if unknown."""
    if codec not in _CODECS:
        raise UnsupportedError(f"a ShapeEnv has no field of the form {codec!r}")
    return _CODECS[codec][1](data, table)


def decode_symbols(snapshot: Mapping[str, Json]) -> dict[str, sympy.Symbol]:
    """Return the symbol table of a snapshot."""
    table = symbols_of(snapshot)
    return {name: symbols.decode_symbol(name, given) for name, given in table.items()}


def symbols_of(snapshot: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the assumptions of each symbol.  Raises `UnsupportedError` where there is no table."""
    table = snapshot.get("symbols")
    if not isinstance(table, Mapping):
        raise UnsupportedError("the ShapeEnv snapshot has no symbol table")
    return table


def hints(snapshot: Mapping[str, Json]) -> dict[str, Json]:
    """Return each backed symbol's hint, as a number.  Raises `UnsupportedError` for another."""
    rows = as_object(snapshot.get("state")).get("backed_var_to_val")
    found: dict[str, Json] = {}
    for row in rows if isinstance(rows, list) else []:
        try:
            name, value = row
            number = _unscalar(value, {})
            if isinstance(number, shapes.SingletonInt):
                continue  # a nested int has no number
            if getattr(number, "args", ()):  # to compute it may take for ever
                raise ValueError("a hint is a number")
            whole = number == int(number) and not isinstance(number, (float, sympy.Float))
            found[str(name)] = int(number) if whole else float(number)
        except (IndexError, OverflowError, TypeError, ValueError) as error:
            raise UnsupportedError(f"malformed hint of a symbol {row!r:.80}") from error
    return found


def new_shape_env(snapshot: Mapping[str, Json]) -> ShapeEnv:
    """Return a ShapeEnv with the recorded settings and no state yet."""
    settings = snapshot.get("settings")
    if not isinstance(settings, Mapping):
        raise UnsupportedError("the ShapeEnv snapshot has no settings")
    known = {k: bool(v) for k, v in settings.items() if k in SETTINGS}
    return ShapeEnv(**known)  # type: ignore[arg-type]


SETTINGS = (
    "allow_scalar_outputs",
    "allow_dynamic_output_shape_ops",
    "assume_static_by_default",
    "specialize_zero_one",
    "duck_shape",
    "prefer_deferred_runtime_asserts_over_guards",
    "trace_asserts",
)


def restore(env: ShapeEnv, snapshot: Mapping[str, Json], table: Table) -> None:
    """Put a ShapeEnv into the recorded state (again after inputs were made: that adds guards)."""
    state = snapshot.get("state")
    if not isinstance(state, Mapping):
        raise UnsupportedError("the ShapeEnv snapshot has no state")
    for field, shape in STATE.items():
        if field in state and hasattr(env, field):
            _restore_field(env, field, shape, state[field], table)
    shapes.restore_guards(
        env, [(symbols.decode_expr(g[0], table), bool(g[1])) for g in _rows(snapshot, "guards")]
    )
    shapes.restore_deferred(
        env,
        {
            None if row[0] is None else _symbol(row[0], table): [
                (symbols.decode_expr(a[0], table), str(a[1])) for a in row[1]
            ]
            for row in _rows(snapshot, "deferred")
        },
    )
    env.exclusion_constraints = [
        (_symbol(row[0], table), int(row[1])) for row in _rows(snapshot, "exclusions")
    ]
    shapes.settle_shape_env(env)


def _rows(snapshot: Mapping[str, Json], key: str) -> list[Any]:
    rows = snapshot.get(key)
    return rows if isinstance(rows, list) else []


def _restore_field(env: ShapeEnv, field: str, shape: str, data: Any, table: Table) -> None:
    kind, *codecs = shape.split()
    decode = [_CODECS[name][1] for name in codecs]
    if kind in ("map", "maplist"):
        pairs = (
            (
                decode[0](k, table),
                decode[1](v, table) if kind == "map" else [decode[1](i, table) for i in v],
            )
            for k, v in data
        )
        target = getattr(env, field)
        target.clear()
        dict.update(target, pairs)  # a Counter would count them
    elif kind in ("set", "list"):
        items = [decode[0](item, table) for item in data]
        setattr(env, field, type(getattr(env, field))(items))
    else:
        setattr(env, field, _CODECS[kind][1](data, table))
