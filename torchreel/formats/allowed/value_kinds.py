"""The values that a graph computes, by the types that they may have.

Lives here: `ValueKind`, and the kinds of literals, of described inputs and of the results of an
operator.  Not here: what may be done with them (`members`).  Called by `graphs`.

A kind is a set of types: a value of a graph has one of them.  It is always an upper bound.
Python's numbers and torch's symbolic ones are one type here: a graph may do the same with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import torch

from torchreel.errors import ForbiddenError
from torchreel.formats import placements
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import distributed

MAX_DEPTH = 100


@dataclass(frozen=True)
class ValueKind:
    """The types that a value may have; `inside`: those of what it holds, at any depth."""

    types: frozenset[str]
    inside: frozenset[str] = frozenset()

    def __or__(self, other: ValueKind) -> ValueKind:
        return ValueKind(self.types | other.types, self.inside | other.inside)

    def __str__(self) -> str:
        """Return a few words for a message."""
        if len(self.types) > 3:
            return "one of several types"
        return " or ".join(sorted(_WORDS.get(name, name) for name in self.types))

    @property
    def everything(self) -> frozenset[str]:
        """The types of the value and of all that it holds."""
        return self.types | self.inside


_WORDS = {
    "tensor": "a tensor", "int": "a symbolic or plain int", "float": "a symbolic or plain float",
    "bool": "a symbolic or plain bool", "complex": "a complex number", "str": "a text",
    "tuple": "a tuple", "list": "a list", "size": "a torch.Size", "NoneType": "None",
    "module": "a nested graph", "function": "a function", "opaque": "an object that is no data",
}  # fmt: skip


def of(*types: str) -> ValueKind:
    """Return the kind of a value of one of these types, which holds nothing."""
    return ValueKind(frozenset(types))


def union(kinds: Iterable[ValueKind]) -> ValueKind:
    """Return the kind of a value that is of one of these kinds."""
    return reduce(ValueKind.__or__, kinds, ValueKind(frozenset()))


def sequence(name: str, items: Iterable[ValueKind]) -> ValueKind:
    """Return the kind of a sequence of these items."""
    return ValueKind(frozenset({name}), union(items).everything)


def item(kind: ValueKind) -> ValueKind:
    """Return the kind of what a sequence holds, or of a part of a tensor or a text."""
    own = kind.types - {"tuple", "list", "dict", "range", "slice"}
    numbers = {"int"} if kind.types & {"size", "range"} else set()
    return ValueKind(own | kind.inside | numbers, kind.inside)


TENSOR = of("tensor")
MESH = of("device_mesh")
"""The kind of a mesh of devices: an input of a graph, or cut out of one."""
TABLE = ValueKind(frozenset({"dict"}), frozenset({"tensor"}))
"""The kind of what a Triton kernel of the program wrote: tensors, by the names of arguments."""
NUMBERS = frozenset({"int", "float", "bool", "complex"})
NO_DATA = frozenset({"module", "function", "opaque"})
"""Of these types nothing is known: such values are handed on, to what they are meant for."""

_COMPUTED = NUMBERS | {
    "tensor", "NoneType", "dtype", "device", "layout", "memory_format", "size", "tuple", "list",
}  # fmt: skip
RESULT = ValueKind(_COMPUTED, _COMPUTED)
"""Results of a function of torch that computes: tensors, numbers, and sequences of both."""

_DATA = _COMPUTED | {"str", "dict", "slice", "range", "generator", "ellipsis"}
DATA = ValueKind(_DATA, _DATA)
"""Any value that is data: what the body of a higher-order operator may be given."""

_PLAIN = frozenset({"dtype", "layout", "memory_format", "device", "ellipsis", "range", "dtensor"})
_DESCRIBED = {
    "tensor": "tensor", "subclass": "tensor", "symint": "int", "symfloat": "float",
    "symbool": "bool", "int": "int", "bool": "bool", "float": "float", "str": "str",
    "NoneType": "NoneType", "generator": "generator", "device_mesh": "device_mesh",
}  # fmt: skip


def of_description(description: Json, depth: int = 0) -> ValueKind:
    """Return the kind of the value that a description of a store is made into
    (`tensors.fakes`).
    """
    if depth > MAX_DEPTH:
        raise ForbiddenError(f"a value nested deeper than {MAX_DEPTH} is refused")
    if not isinstance(description, Mapping):
        raise ForbiddenError(f"malformed value description {description!r:.80}")
    name, items = str(description.get("k")), description.get("items")
    if name in _DESCRIBED:
        return of(_DESCRIBED[name])
    if name in ("list", "tuple", "size") and isinstance(items, list):
        return sequence(name, (of_description(held, depth + 1) for held in items))
    return of("opaque")  # which the decoder refuses, with the reason


def of_literal(tree: Json, known: Mapping[str, ValueKind], depth: int = 0) -> ValueKind:
    """Return the kind of an argument; `known` has those of the nodes before it."""
    if depth > MAX_DEPTH:
        raise ForbiddenError(f"a value nested deeper than {MAX_DEPTH} is refused")
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return of(type(tree).__name__)
    if not isinstance(tree, Mapping):
        return sequence("list", (of_literal(held, known, depth + 1) for held in tree))
    if len(tree) != 1:
        raise ForbiddenError(f"malformed value {tree!r:.80}")
    ((tag, data),) = tree.items()
    return _of_tagged(tag, data, known, depth)


def _of_tagged(tag: str, data: Json, known: Mapping[str, ValueKind], depth: int) -> ValueKind:
    if tag == "n":
        if data not in known:
            raise ForbiddenError(f"a node uses {data!r:.60}, which does not come before it")
        return known[str(data)]
    if tag == "sym" and isinstance(data, Mapping) and data.get("type") in NUMBERS:
        return of(str(data["type"]))
    if tag == "dtensor":
        placements.check_parts(data)
    if tag in _PLAIN:
        return of(tag)
    if tag in ("t", "d", "size", "slice") and isinstance(data, list):
        name = {"t": "tuple", "d": "dict"}.get(tag, tag)
        return sequence(name, (of_literal(held, known, depth + 1) for held in data))
    return of({"f": "float", "c": "complex", "fn": "function"}.get(tag, "opaque"))


_RETURNED = {
    "int": "int", "SymInt": "int", "float": "float", "bool": "bool",
    "complex": "complex", "str": "str", "Device": "device", "Generator": "generator",
    "NoneType": "NoneType",
}  # fmt: skip


def of_schema_type(text: str) -> ValueKind:
    """Return the kind of a result, by its type in the schema of an operator."""
    if text.startswith("Optional["):
        return of_schema_type(text[9:-1]) | of("NoneType")
    if text.startswith("List["):
        return sequence("list", [of_schema_type(text[5:-1])])
    if text in ("number", "Scalar"):
        return ValueKind(NUMBERS)
    if text == "Tensor":
        return of("tensor", "NoneType")  # an undefined tensor is None in Python
    return of(_RETURNED.get(text, "opaque"))


def of_results(schema: torch.FunctionSchema) -> ValueKind:
    """Return the kind of what an operator returns."""
    results = [of_schema_type(str(found.type)) for found in schema.returns]
    if len(results) == 1:
        return results[0]
    return sequence("tuple", results) if results else of("NoneType")


def of_value(value: object) -> ValueKind:
    """Return the kind of a live value; `opaque` for what is none of these types."""
    for name, types in TYPES.items():
        if isinstance(value, types) and not (name == "int" and isinstance(value, bool)):
            held: Iterable[object] = ()
            if isinstance(value, Mapping):
                held = [*value.keys(), *value.values()]
            elif isinstance(value, (tuple, list)):
                held = value
            elif isinstance(value, slice):
                held = (value.start, value.stop, value.step)
            return sequence(name, map(of_value, held))
    if distributed.mesh_of(value) is not None:
        return MESH
    return of("opaque" if distributed.parts_of(value) is None else "dtensor")


TYPES: dict[str, tuple[type, ...]] = {
    "tensor": (torch.Tensor,), "bool": (bool, torch.SymBool), "int": (int, torch.SymInt),
    "float": (float, torch.SymFloat), "complex": (complex,),
    "NoneType": (type(None), type(NotImplemented)),
    "str": (str,), "size": (torch.Size,), "tuple": (tuple,), "list": (list,), "dict": (dict,),
    "slice": (slice,), "range": (range,), "ellipsis": (type(Ellipsis),),
    "dtype": (torch.dtype,), "device": (torch.device,), "layout": (torch.layout,),
    "memory_format": (torch.memory_format,), "generator": (torch.Generator,),
    "device_mesh": (), "dtensor": (),  # nothing is called on these
}  # fmt: skip
"""The classes that each name of a type stands for."""
