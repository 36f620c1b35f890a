"""Describes custom operators in a graph document: schema, tags, kernels, and each call.

Lives here: the description, when a graph is recorded, and the union over several graphs. Not here:
what is made of it (`formats.operators`). Called by `codec` for every graph that is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch._ops
from torch.fx import GraphModule, Node

from torchreel.formats import namespaces, node_arguments, symbols
from torchreel.formats.graphs import OPERATORS
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.tensors.encoder import Encoder
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.operators import dispatcher
from torchreel.torch_compat.tensors import fake_tensors

_MOST_CALLS = 64
# Of a tensor's description, what an answer is made from.
_KEPT = ("k", "size", "stride", "offset", "dtype", "device", "layout", "expr", "v", "items")


def encode_operators(gm: GraphModule) -> dict[str, Json]:
    """Return the operators of foreign namespaces that a graph calls, by qualified name with
    overload.

    Those of nested graphs stand in their own documents.
    """
    found: dict[str, dict[str, Json]] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        for operator in _operators(node):
            name = str(operator)
            if name not in found:
                found[name] = {**described(operator), "calls": []}
        called = _called(node.target)
        if called is not None:
            calls = found[str(called)]["calls"]
            call = _call(node)
            if isinstance(calls, list) and len(calls) < _MOST_CALLS and call not in calls:
                calls.append(call)
    return dict(found)


def _operators(node: Node) -> Iterator[Any]:
    """Yield the foreign operators that a node calls, or gives to a higher-order operator."""
    called = _called(node.target)
    if called is not None:
        yield called
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        yield from filter(None, map(_called, node.args))


def _called(target: object) -> torch._ops.OpOverload | None:
    """Return the overload that a target is, or of a packet its first, where it is a foreign one."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        if not namespaces.is_custom(f"packet:{target}"):
            return None
        target = getattr(target, target.overloads()[0])  # type: ignore[no-untyped-call]
    foreign = isinstance(target, torch._ops.OpOverload) and namespaces.is_custom(f"op:{target}")
    return target if foreign else None  # type: ignore[return-value]


def described(operator: torch._ops.OpOverload) -> dict[str, Json]:
    """Return the description of an operator, without any call of it."""
    found = dispatcher.operator_facts(operator)
    return {
        "schema": str(operator._schema),
        "tags": sorted(str(tag).rpartition(".")[2] for tag in operator.tags),
        **found,
    }


def _call(node: Node) -> Json:
    """Return the description of a node's arguments, and of its fake kernel's result."""
    call = _Call()
    return {
        "args": [call.argument(item) for item in node.args],
        "kwargs": {key: call.argument(item) for key, item in node.kwargs.items()},
        "result": call.value(_value(node)),
    }


def _value(node: Node) -> object:
    return node.meta.get("val", node.meta.get("example_value"))


class _Call:
    """Describes the values of one call.

    Storages and tensors have numbers, so that a result that shares the storage of an argument, or
    is the argument itself, says so.
    """

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._objects: dict[int, int] = {}

    def argument(self, value: object) -> Json:
        """Return an argument: of a node the description of its value, else the value itself."""
        if isinstance(value, Node):
            return {"value": self.value(_value(value))}
        if isinstance(value, (list, tuple)):
            return {"list": [self.argument(item) for item in value]}
        return {"literal": node_arguments.encode_value(value)}

    def value(self, value: object) -> Json:
        """Return the description of a value, with the numbers of its tensor object and storage."""
        if isinstance(value, (list, tuple)):
            return {"k": _kind(value), "items": [self.value(item) for item in value]}
        described = self._encoder.describe(value)
        if not isinstance(value, torch.Tensor) or not isinstance(described, Mapping):
            return short(described)
        number = self._objects.setdefault(id(value), len(self._objects))
        kept = {key: described[key] for key in _KEPT if key in described}
        return {**kept, **_storage(value, described), "object": number}


def _storage(tensor: torch.Tensor, described: Mapping[str, Json]) -> dict[str, Json]:
    """Return the number of the storage of a tensor, and its size, also where that is symbolic."""
    found = fake_tensors.storage_of(tensor) if "storage" in described else None
    if found is None:
        return {}
    size: Any = found[1]
    spelled = symbols.encode_expr(size.node.expr) if isinstance(size, torch.SymInt) else int(size)
    return {"storage": described["storage"], "storage_size": spelled}


def _kind(items: list[Any] | tuple[Any, ...]) -> str:
    return "list" if isinstance(items, list) else "tuple"


def short(description: Json) -> Json:
    """Return the part of a description that a stand-in's result is made of."""
    if not isinstance(description, Mapping):
        return description
    kept = {key: description[key] for key in _KEPT if key in description}
    items = kept.get("items")
    return {**kept, "items": [short(item) for item in items]} if isinstance(items, list) else kept


def operators_of(graphs: Iterable[GraphDoc]) -> dict[str, Json]:
    """Return the operators of several graphs, nested ones included, with all recorded calls."""
    found: dict[str, dict[str, Json]] = {}
    for graph in graphs:
        for name, one in as_object(graph.extra.get(OPERATORS)).items():
            _join(found, str(name), one)
        for name, one in operators_of(graph.modules.values()).items():
            _join(found, name, one)
    return dict(found)


def _join(found: dict[str, dict[str, Json]], name: str, one: Json) -> None:
    if not isinstance(one, Mapping):
        return
    calls = [*list_only(found.get(name, {}).get("calls")), *list_only(one.get("calls"))]
    unlike = {canonical_json(call): call for call in calls}
    found[name] = {**one, "calls": list(unlike.values())[:_MOST_CALLS]}
