"""The tagged tree: arguments and metadata of graph nodes as data.

Lives here: one JSON spelling for each kind of value that FX puts into `args` and `kwargs`.  Not
here: what a tensor looks like (`tensors`), what a node calls (`targets`).  Called by `graphs`.

null, bool, int, str and list are themselves; every other kind is an object with one key that
names it, so that no two values share a spelling.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType

import torch
from torch.fx import Node

from torchreel.errors import UnsupportedError
from torchreel.formats import placements, symbols, targets
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import distributed, shapes

_SYM_TYPES = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}
_TORCH_CONSTANT = re.compile(r"[a-z][a-z0-9_]*")
MAX_DEPTH = 100
_PARTS = "dtensor"
"""The tag of what specs of distributed tensors consist of: a class and its fields."""
_ENUMERATIONS = ("CheckpointPolicy",)
"""Enumerations that the compiler leaves in metadata and reads again: the policies of activation
checkpointing (`recompute`)."""


@dataclass(frozen=True)
class StandIn:
    """Stands for a value without a portable form, where torch only carries the value."""

    data: tuple[tuple[str, str], ...]
    """Its type, the reason, and the text that torch prints of it."""

    def __repr__(self) -> str:
        known = dict(self.data)
        return " ".join(known.get("text", f"<{known.get('type')}>").split())


def encode_value(value: object) -> Json:
    """Return a value as a tagged tree; what has no portable form becomes a named `opaque`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if type(value) is int:
        return value
    if isinstance(value, Node):
        return {"n": value.name}
    if type(value) is float:
        return {"f": _float_text(value)}
    if isinstance(value, (list, tuple, dict, set, frozenset, slice, range)):
        return _encode_container(value)
    return _encode_leaf(value)


def _float_text(value: float) -> str:
    return value.hex() if value == value and abs(value) != float("inf") else repr(value)


def _encode_container(value: object) -> Json:
    if isinstance(value, torch.Size):
        return {"size": [encode_value(item) for item in value]}
    if isinstance(value, tuple):
        if type(value) is not tuple:
            if (parts := _parts(value)) is not None:
                return parts
            return opaque(value, "a named tuple is rebuilt by its class, which is not resolved")
        return {"t": [encode_value(item) for item in value]}
    if isinstance(value, list):
        return [encode_value(item) for item in value]
    if isinstance(value, dict):
        return {"d": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": [encode_value(item) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    return opaque(value, "sets have no order to record")


def _encode_leaf(value: object) -> Json:
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        kind = type(value).__name__
        return {kind: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if type(value) in _SYM_TYPES:
        return encode_symbolic(value)
    if isinstance(value, complex):
        return {"c": [_float_text(value.real), _float_text(value.imag)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, StandIn):
        return {"opaque": dict(value.data)}
    if type(value).__name__ in _ENUMERATIONS and type(value) in _enumerations().values():
        return {type(value).__name__: value.name}  # type: ignore[attr-defined]
    if isinstance(value, enum.Enum):
        text = repr(value) if isinstance(value.value, (int, str)) else ""
        return opaque(value, "an enumeration is not resolved from a store", text=text)
    if (parts := _parts(value)) is not None:
        return parts
    return _encode_callable(value)


def _parts(value: object) -> Json:
    """Return a placement of a distributed tensor, or a part of its spec; None for all else."""
    parts = distributed.parts_of(value)
    return None if parts is None else {_PARTS: [encode_value(part) for part in parts]}


def _encode_callable(value: object) -> Json:
    known = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
    if isinstance(value, (*known, FunctionType, BuiltinFunctionType)) or value is torch.Size:
        text = targets.encode_target(value)
        if not text.startswith("opaque:"):
            return {"fn": text}
    return opaque(value, "no portable form for this type")


def encode_symbolic(value: object) -> Json:
    """Return a SymInt, SymFloat or SymBool by type and expression."""
    expr = shapes.expression(value.node)  # type: ignore[attr-defined]
    return {"sym": {"type": _SYM_TYPES[type(value)], "expr": symbols.encode_expr(expr)}}


def opaque(value: object, reason: str, *, text: str = "") -> dict[str, Json]:
    """Return the placeholder of a value without a portable form, with the reason.

    `text` is what torch prints of the value in the text of a graph.
    """
    cls = type(value)
    known: dict[str, Json] = {"type": f"{cls.__module__}.{cls.__qualname__}", "reason": reason}
    return {"opaque": known | ({"text": text} if text else {})}


def decode_value(tree: Json, leaf: Callable[[str, Json], object], depth: int = 0) -> object:
    """Return the value of a tagged tree.

    `leaf(kind, data)` gives what the tree alone cannot: `n` (a node), `sym`, `opaque`.
    Raises `UnsupportedError` for a malformed tree or one nested too deep.
    """
    if depth > MAX_DEPTH:
        raise UnsupportedError(f"a value nested deeper than {MAX_DEPTH} is refused")
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    if isinstance(tree, list):
        return [decode_value(item, leaf, depth + 1) for item in tree]
    if not isinstance(tree, Mapping) or len(tree) != 1:
        raise UnsupportedError(f"malformed value {tree!r:.80}")
    ((kind, data),) = tree.items()
    if kind in ("n", "sym", "opaque", "const"):
        return leaf(kind, data)
    return _decode_tagged(kind, data, lambda item: decode_value(item, leaf, depth + 1))


def _decode_tagged(kind: str, data: Json, inner: Callable[[Json], object]) -> object:
    if kind == "f":
        return _float_of(data)
    if kind == "fn":
        return targets.decode_target(str(data))
    if kind == "device":
        return _device(data)
    if kind in ("dtype", "layout", "memory_format"):
        return torch_constant(kind, data)
    if kind == "ellipsis":
        return Ellipsis
    if kind in _ENUMERATIONS:
        return _member(kind, data)
    if not isinstance(data, list):
        raise UnsupportedError(f"malformed value of kind {kind!r}: {data!r:.80}")
    try:
        return _decode_list(kind, data, inner)
    except (TypeError, ValueError) as error:  # a list as a key, a step of 0, text as a size
        raise UnsupportedError(f"malformed value of kind {kind!r}: {data!r:.80}") from error


def _decode_list(kind: str, data: list[Json], inner: Callable[[Json], object]) -> object:
    if kind == "t":
        return tuple(inner(item) for item in data)
    if kind == _PARTS:
        placements.check_parts(data)
        return _of_parts(data[0], [inner(item) for item in data[1:]])
    if kind == "size":
        return torch.Size([inner(item) for item in data])  # type: ignore[misc]
    if kind == "c" and len(data) == 2:
        return complex(_float_of(data[0]), _float_of(data[1]))
    if kind == "slice" and len(data) == 3:
        return slice(*(inner(item) for item in data))
    if kind == "range" and len(data) == 3:
        return range(*(int(str(item)) for item in data))
    if kind == "d" and all(isinstance(item, list) and len(item) == 2 for item in data):
        return {inner(item[0]): inner(item[1]) for item in data}  # type: ignore[index]
    raise UnsupportedError(f"unknown kind of value {kind!r}")


def _of_parts(name: Json, fields: list[object]) -> object:
    try:
        return distributed.of_parts(name, fields)
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(f"no {name!r:.40} of a distributed tensor is like that") from error


def _enumerations() -> dict[str, type[enum.Enum]]:
    from torch.utils.checkpoint import CheckpointPolicy

    return {"CheckpointPolicy": CheckpointPolicy}


def _member(kind: str, data: Json) -> enum.Enum:
    try:
        return _enumerations()[kind][str(data)]
    except KeyError as error:
        raise UnsupportedError(f"{kind} has no member {data!r:.40}") from error


def _float_of(data: Json) -> float:
    try:
        text = str(data)
        return float.fromhex(text) if "x" in text else float(text)
    except (OverflowError, ValueError) as error:
        raise UnsupportedError(f"malformed float {data!r:.40}") from error


def _device(data: Json) -> torch.device:
    try:
        return torch.device(str(data))
    except RuntimeError as error:
        raise UnsupportedError(f"unknown device {data!r:.40}") from error


def torch_constant(kind: str, data: Json) -> object:
    """Return a dtype, layout or memory format by name.

    Raises `UnsupportedError` for another name.
    """
    name = str(data)
    value = getattr(torch, name, None) if _TORCH_CONSTANT.fullmatch(name) else None
    if type(value).__name__ != kind:
        raise UnsupportedError(f"torch has no {kind} {name!r}")
    return value


def node_refs(tree: Json) -> Iterator[str]:
    """Yield the names of the nodes that a tagged tree refers to, in order, repeated as they
    occur.
    """
    if isinstance(tree, list):
        for item in tree:
            yield from node_refs(item)
    elif isinstance(tree, Mapping):
        for kind, data in tree.items():
            if kind == "n":
                yield str(data)
            elif kind in ("t", "d", "slice", "size", _PARTS) or not _is_tag(tree):
                yield from node_refs(data)


def _is_tag(tree: Mapping[str, Json]) -> bool:
    return len(tree) == 1 and next(iter(tree)) in _KINDS


# fmt: off
_KINDS = frozenset({
    "n", "t", "d", "f", "c", "slice", "dtype", "device", "layout", "memory_format", "ellipsis",
    "size", "sym", "fn", "range", "const", "opaque", _PARTS,
})
# fmt: on


def map_tree(tree: Json, replace: Callable[[str], Json]) -> Json:
    """Return the tree with every reference to a node replaced by `replace(name)`."""
    if isinstance(tree, list):
        return [map_tree(item, replace) for item in tree]
    if isinstance(tree, Mapping):
        if set(tree) == {"n"}:
            return replace(str(tree["n"]))
        if _is_tag(tree) and next(iter(tree)) not in ("t", "d", "slice", "size", _PARTS):
            return tree
        return {key: map_tree(value, replace) for key, value in tree.items()}
    return tree
