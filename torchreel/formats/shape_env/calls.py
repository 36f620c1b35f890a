"""Changes of a ShapeEnv, as data: what the event log holds between two snapshots.

Lives here: how a `DeferredValue` of a ShapeEnv's state is spelled and read back, and `apply_set`,
which makes a change again. Not here: when something changed
(`torchreel.recorder.probes.shape_state`), which events there are
(`torchreel.replay.shape_env.rebuild`). The fields and their forms are those of the snapshot
(`shape_env.STATE`), and those that it keeps apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.formats import symbols
from torchreel.formats.deferred_values import DeferredValue
from torchreel.formats.descriptors import encode_record
from torchreel.formats.shape_env import snapshots
from torchreel.formats.shape_env.snapshots import STATE, Table
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import fx, shapes
from torchreel.torch_compat.shapes import ShapeEnv

FIELDS: dict[str, str] = {
    **STATE,
    "exclusion_constraints": "list exclusion",
    "guards": "list guard",
    "deferred_runtime_asserts": "maplist expr assert",
    "_shape_spec_pending_assumptions": "list pending",
}
"""Field of a ShapeEnv -> its form, as in `shape_env.STATE`."""


def spell(piece: DeferredValue) -> Json:
    """Return a piece as data; `{"opaque": text}` where it has no portable form."""
    try:
        return encode(piece.form, piece.value)
    except (UnsupportedError, TypeError, ValueError, AttributeError) as error:
        text = fx.without_addresses(str(piece.value))
        return {"opaque": text, "reason": str(error)}


def encode(form: str, value: Any) -> Json:
    """Return a value in one of the forms of `FIELDS`, or the form of one item."""
    if form == "assumptions":
        return list(symbols.encode_symbol(value))
    if form == "source name":
        return str(value.name)
    if form == "guard":
        return [symbols.encode_expr(value.expr), bool(value.size_oblivious)]
    if form == "assert":
        return [symbols.encode_expr(value.expr), value.msg]
    if form == "exclusion":
        return [snapshots.encode_field("symbol", value[0]), value[1]]
    if form == "pending":
        mentioned = {*value[0], *value[1].free_symbols}
        names = sorted((symbols.encode_name(symbol) for symbol in mentioned), key=str)
        waits = sorted(symbol.name for symbol in value[0])
        return [names, waits, symbols.encode_expr(value[1])]
    if form == "path":
        return encode_record(tuple(value))
    kind, *inner = form.split()
    if kind == "list":
        return [encode(inner[0], item) for item in value]
    if form == FIELDS["deferred_runtime_asserts"]:
        return [[_key(inner[0], k), [encode(inner[1], i) for i in v]] for k, v in value.items()]
    return snapshots.encode_field(form, value)


def _key(form: str, key: Any) -> Json:
    return None if key is None else encode(form, key)


def decode(form: str, data: Any, table: Table) -> Any:
    """Return the value that `encode` wrote.  Raises `UnsupportedError` if malformed or opaque."""
    if isinstance(data, Mapping) and "opaque" in data:
        raise UnsupportedError(
            f"the event log holds a part of a ShapeEnv that has no portable form: "
            f"{data['opaque']!s:.80}"
        )
    try:
        return _decode(form, data, table)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise UnsupportedError(f"malformed {form!r} in the event log: {data!r:.80}") from error


def _decode(form: str, data: Any, table: Table) -> Any:
    if form == "guard":
        expr = symbols.decode_expr(data[0], table)
        return shapes.shape_guard(expr, bool(data[1]))
    if form == "assert":
        return shapes.runtime_assert(symbols.decode_expr(data[0], table), str(data[1]))
    if form == "exclusion":
        return (decode("symbol", data[0], table), int(data[1]))
    if form == "pending":
        named = {symbol.name: symbol for symbol in map(symbols.decode_name, data[0])}
        return ({named[name] for name in data[1]}, symbols.decode_expr(data[2], named))
    kind, *inner = form.split()
    if kind == "list":
        return [decode(inner[0], item, table) for item in data]
    if kind == "set":
        return [decode(inner[0], item, table) for item in data]
    if kind == "map":
        return [(_unkey(inner[0], k, table), decode(inner[1], v, table)) for k, v in data]
    if kind == "maplist":
        return [
            (_unkey(inner[0], k, table), [decode(inner[1], i, table) for i in v]) for k, v in data
        ]
    return snapshots.decode_field(form, data, table)


def _unkey(form: str, data: Json, table: Table) -> Any:
    return None if data is None else decode(form, data, table)


def apply_set(env: ShapeEnv, changes: Json, table: Table) -> None:
    """Make a `shape_env.set` again: `{field: {"put": items, "drop": keys} | {"all": value}}`."""
    if not isinstance(changes, Mapping):
        raise UnsupportedError(f"malformed changes of a ShapeEnv: {changes!r:.80}")
    for field, change in changes.items():
        form = FIELDS.get(field)
        if form is None or not isinstance(change, Mapping):
            raise UnsupportedError(
                f"a ShapeEnv has no state {field!r} that the event log may change"
            )
        if hasattr(env, field):
            _apply(env, field, form, change, table)


def _apply(env: ShapeEnv, field: str, form: str, change: Mapping[str, Json], table: Table) -> None:
    kind, *inner = form.split()
    target = getattr(env, field)
    if not inner:
        setattr(env, field, decode(form, change["all"], table))
        return
    if "all" in change:
        target.clear()
    value = decode(form, change.get("all", change.get("put", [])), table)
    if kind == "list":
        target.extend(value)
    else:
        target.update(value)
    for key in _items(change.get("drop", [])):
        _drop(target, _unkey(inner[0], key, table))


def _drop(target: Any, key: object) -> None:
    if key not in target:
        raise UnsupportedError(
            f"the event log drops {key!s:.60} from a ShapeEnv that does not hold it"
        )
    if isinstance(target, dict):
        del target[key]
    else:
        target.remove(key)


def _items(data: Json) -> list[Json]:
    if not isinstance(data, list):
        raise UnsupportedError(f"malformed list of keys in the event log: {data!r:.80}")
    return data
