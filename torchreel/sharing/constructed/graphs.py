"""Graphs: every node made anew, under another name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress

import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import namespaces
from torchreel.formats.graphs import policies
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.sharing.constructed.arguments import CallArguments, attribute, keyword
from torchreel.sharing.constructed.descriptions import Descriptions
from torchreel.sharing.constructed.operators import Operators
from torchreel.sharing.constructed.scalars import refused
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.autograd import aot

_VALUES = ("val", "example_value")
_OPERATIONS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
_KINDS = {"placeholder": "x", "get_attr": "a"}
_MOST_NESTING = 20


class Graphs:
    """Makes graphs, and those nested in them."""

    def __init__(self, descriptions: Descriptions, operators: Operators) -> None:
        self._descriptions, self._operators = descriptions, operators
        self._pseudonyms = descriptions.pseudonyms

    def of(self, graph: GraphDoc, depth: int = 0) -> GraphDoc:
        """Return a graph that computes the same, of nodes with other names."""
        if depth > _MOST_NESTING:
            raise refused("a graph nested", depth)
        names = {node.name: self._name(node) for node in graph.nodes}
        if len(set(names.values())) < len(names):
            names = {name: f"v{number}" for number, name in enumerate(names, 1)}
        given = CallArguments(
            self._descriptions.symbols, self._pseudonyms, names, self._operators.target
        )
        nodes = tuple(self._node(node, names, given, graph) for node in graph.nodes)
        modules = {
            self._pseudonyms.of("m", name): self.of(inner, depth + 1)
            for name, inner in graph.modules.items()
        }
        attributes = {
            self._pseudonyms.of("a", name): self._descriptions.of(value)
            for name, value in graph.attributes.items()
        }
        answers = policies.answers_of(graph.extra) or {}
        renamed = {self._operator(name): answers[name] for name in answers}
        return GraphDoc(nodes, modules, attributes, policies.with_answers({}, renamed))

    def _operator(self, name: str) -> str:
        """Return the name of an operator that a policy of checkpointing was asked for."""
        kind = "op" if "." in name else "hop"
        return self._operators.target(f"{kind}:{name}").removeprefix(f"{kind}:")

    def _name(self, node: NodeDoc) -> str:
        if node.op == "output":
            return "output"
        return self._pseudonyms.of(_KINDS.get(node.op, "v"), node.name)

    def _node(
        self, node: NodeDoc, names: Mapping[str, str], given: CallArguments, graph: GraphDoc
    ) -> NodeDoc:
        if node.op not in _OPERATIONS:
            raise refused("a node of the kind", node.op)
        target = self._node_target(node, names, graph)
        trees = list_only(node.args)
        kwargs = as_object(node.kwargs)
        custom = node.op == "call_function" and namespaces.is_custom(node.target)
        named = self._operators.parameter if custom else keyword
        return NodeDoc(
            names[node.name],
            node.op,
            target,
            given.of_call(node.target, trees),
            {named(str(key)): given.of(value) for key, value in kwargs.items()},
            self._meta(node),
        )

    def _node_target(self, node: NodeDoc, names: Mapping[str, str], graph: GraphDoc) -> str:
        if node.op in ("placeholder", "output"):
            return names[node.name]
        if node.op == "call_function":
            return self._operators.target(node.target)
        if node.op == "call_method":
            return attribute(node.target)
        kind = "m" if node.target in graph.modules else "a"
        return self._pseudonyms.of(kind, node.target)

    def _meta(self, node: NodeDoc) -> dict[str, Json]:
        made = {}
        for key in _VALUES:
            if key in node.meta:
                # What a call computes is computed again: without a form that may leave, it goes.
                with suppress(UnsupportedError) if node.is_call else nullcontext():
                    made[key] = self._descriptions.of(node.meta[key])
        bindings = node.meta.get("unbacked_bindings")
        if isinstance(bindings, list):
            made["unbacked_bindings"] = [self._binding(pair) for pair in bindings]
        return made

    def _binding(self, pair: Json) -> Json:
        if not isinstance(pair, list) or len(pair) != 2:
            raise refused("a binding of a symbol", pair)
        return [self._descriptions.symbols.expression(pair[0]), _record(pair[1])]


def _record(data: Json) -> Json:
    """Return a path of keys: places, and methods of tensors."""
    if isinstance(data, list):
        return [_record(item) for item in data]
    if isinstance(data, str):
        if not hasattr(torch.Tensor, data) and data not in ("storage_offset", "size", "stride"):
            raise refused("the key", data)
        return data
    if not isinstance(data, Mapping):
        if data is None or isinstance(data, (bool, int)):
            return data
        raise refused("the key", data)
    cls = aot.record_classes().get(str(data.get("record")))
    if cls is None:
        raise refused("the kind of key", data.get("record"))
    fields = getattr(cls, "__dataclass_fields__", {})
    made: dict[str, Json] = {"record": str(data["record"])}
    return made | {key: _record(held) for key, held in data.items() if key in fields}
