"""A graph as data: its nodes, its nested graphs, and what it holds.

Lives here: `NodeDoc` and `GraphDoc`, with their JSON and their bytes.  Not here: how one is made of
a GraphModule, and made into one (`codec`), and what a stranger's graph may call (`check`).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from torchreel.errors import UnsupportedError
from torchreel.formats.node_arguments import map_tree, node_refs
from torchreel.formats.tensors.check import check_description
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, exact_json, parse_json

_CALLS = ("call_function", "call_method", "call_module")
MAX_NESTING = 20


@dataclass(frozen=True)
class NodeDoc:
    """One node: operation, target by name, arguments as a tagged tree, metadata."""

    name: str
    op: str
    target: str
    args: Json = field(default_factory=list)
    kwargs: Json = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)

    @property
    def value(self) -> Json:
        """The description of the node's value (None where it was not recorded)."""
        return self.meta.get("val", self.meta.get("example_value"))

    @property
    def is_call(self) -> bool:
        """Return True if the node calls something (it counts as a call node)."""
        return self.op in _CALLS

    def inputs(self) -> Iterator[str]:
        """Return the names of the nodes it uses, in order, repeated as they occur."""
        return iter(self.operands)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the names of the nodes that the arguments refer to, computed once."""
        return tuple(node_refs([self.args, *mapping_of(self.kwargs).values()]))

    def mapped(self, replacement: Callable[[str], Json]) -> NodeDoc:
        """Return the node with every reference to a node replaced by `replacement` of its name."""
        kwargs = {k: map_tree(value, replacement) for k, value in mapping_of(self.kwargs).items()}
        return replace(self, args=map_tree(self.args, replacement), kwargs=kwargs)

    def to_json(self) -> dict[str, Json]:
        """Return the node as data; the order of keywords is kept beside them, as JSON keeps
        none.
        """
        kwargs = mapping_of(self.kwargs)
        ordered = list(kwargs) != sorted(kwargs)
        return {
            "name": self.name, "op": self.op, "target": self.target, "args": self.args,
            "kwargs": kwargs, "meta": self.meta,
            **({"kwargs_order": list(kwargs)} if ordered else {}),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Json) -> NodeDoc:
        """Return the node described by `data`.  Raises `UnsupportedError` when it is malformed."""
        if not isinstance(data, Mapping) or not isinstance(data.get("args"), list):
            raise UnsupportedError(f"malformed graph node {data!r:.80}")
        return cls(
            str(data.get("name")), str(data.get("op")), str(data.get("target")), data["args"],
            _in_order(mapping_of(data.get("kwargs")), data.get("kwargs_order")),
            mapping_of(data.get("meta")),
        )  # fmt: skip


def _in_order(mapping: Mapping[str, Json], order: Json) -> Mapping[str, Json]:
    """Return a mapping in a recorded order of its keys."""
    if order is None:
        return mapping
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(mapping):
        raise UnsupportedError(f"malformed order of keywords {order!r:.80}")
    return {str(key): mapping[str(key)] for key in order}


def unknown_operand(name: Json) -> str:
    """Return the sentence about an operand that is no node before its user."""
    return f"a node uses {name!r:.60}, which does not come before it"


class GraphCounts(NamedTuple):
    """The size of a graph; nested graphs are not counted."""

    nodes: int
    call_nodes: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class GraphDoc:
    """A graph with its nested graphs and its constants, by attribute name."""

    nodes: tuple[NodeDoc, ...]
    modules: Mapping[str, GraphDoc] = field(default_factory=dict)
    attributes: Mapping[str, Json] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, NodeDoc]:
        """Its nodes by name."""
        return {node.name: node for node in self.nodes}

    @property
    def placeholders(self) -> tuple[NodeDoc, ...]:
        """Its inputs, in order."""
        return tuple(node for node in self.nodes if node.op == "placeholder")

    @property
    def output(self) -> NodeDoc:
        """Its output node.  Raises `UnsupportedError` when there is none."""
        if not self.nodes or self.nodes[-1].op != "output":
            raise UnsupportedError("the graph does not end with an output node")
        return self.nodes[-1]

    @cached_property
    def call_nodes(self) -> int:
        """Return the number of call nodes of the outer graph."""
        return sum(node.op in _CALLS for node in self.nodes)

    @property
    def total_call_nodes(self) -> int:
        """Return the number of call nodes, nested graphs included."""
        return self.call_nodes + sum(m.total_call_nodes for m in self.modules.values())

    def counts(self) -> GraphCounts:
        """Return its size."""
        outputs = len(list(node_refs(self.output.args)))
        return GraphCounts(len(self.nodes), self.call_nodes, len(self.placeholders), outputs)

    def targets(self, depth: int = 0) -> list[tuple[int, str, int]]:
        """Return its call targets, with nesting depth and count, nested graphs included."""
        found = collections.Counter((depth, n.target) for n in self.nodes if n.is_call)
        for inner in self.modules.values():
            for level, target, count in inner.targets(depth + 1):
                found[level, target] += count
        return [(level, target, count) for (level, target), count in sorted(found.items())]

    def graphs(self) -> Iterator[GraphDoc]:
        """Yield the graph and those nested in it, each before its own."""
        yield self
        for inner in self.modules.values():
            yield from inner.graphs()

    def with_each_node(self, change: Callable[[NodeDoc], NodeDoc]) -> GraphDoc:
        """Return the graph with each of its nodes changed, also in nested graphs."""
        return replace(
            self,
            nodes=tuple(change(node) for node in self.nodes),
            modules={name: inner.with_each_node(change) for name, inner in self.modules.items()},
        )

    def to_json(self) -> dict[str, Json]:
        """Return the graph as data."""
        return {
            "nodes": [node.to_json() for node in self.nodes],
            "modules": {name: module.to_json() for name, module in self.modules.items()},
            "attributes": self.attributes,
            "extra": self.extra,
        }

    @classmethod
    def from_json(cls, data: Json, depth: int = 0) -> GraphDoc:
        """Return the graph described by `data`, in either form.

        Raises `UnsupportedError` when it is malformed.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list):
            raise UnsupportedError(f"malformed graph {data!r:.80}")
        if depth > MAX_NESTING:
            raise UnsupportedError(f"graphs nested deeper than {MAX_NESTING} are refused")
        return cls(
            tuple(NodeDoc.from_json(node) for node in graph_documents.unfold(data)),
            {k: cls.from_json(v, depth + 1) for k, v in mapping_of(data.get("modules")).items()},
            mapping_of(data.get("attributes")),
            mapping_of(data.get("extra")),
        )

    def check_order(self) -> None:
        """Raise `UnsupportedError` where a node uses one that does not come before it.

        Whoever walks the nodes of a checkpoint may rely on it; a damaged store may say anything.
        """
        known: set[str] = set()
        for node in self.nodes:
            for name in node.operands:
                if name not in known:
                    raise UnsupportedError(unknown_operand(name))
            if node.name in known:
                raise UnsupportedError(f"two nodes of a graph are called {node.name!r:.60}")
            known.add(node.name)
        for module in self.modules.values():
            module.check_order()

    def check_values(self) -> None:
        """Raise `UnsupportedError` where the description of a node's value is malformed."""
        for node in self.nodes:
            if node.value is not None:
                check_description(node.value)
        for module in self.modules.values():
            module.check_values()

    def stored(self) -> dict[str, Json]:
        """Return the graph as data in the form that is stored: `to_json`, each stack once."""
        return {
            **graph_documents.fold(node.to_json() for node in self.nodes),
            "modules": {name: module.stored() for name, module in self.modules.items()},
            "attributes": self.attributes,
            "extra": self.extra,
        }

    def to_bytes(self) -> bytes:
        """Return the canonical bytes of the stored form, over which a digest is taken."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        # Kept, for a checkpoint and the row of its graph both have them.
        # A float in it is spelled in hex (`node_arguments`).
        return exact_json(self.stored(), sort_keys=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> GraphDoc:
        """Return the graph of `to_bytes`.  Raises `UnsupportedError` when it is malformed."""
        try:
            document = parse_json(data)
        except ValueError as error:
            raise UnsupportedError(f"the graph is not JSON: {error}") from error
        return cls.from_json(document)


def mapping_of(data: Json) -> Mapping[str, Json]:
    """Return an object of a document; an empty one for None.  Raises `UnsupportedError`."""
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise UnsupportedError(f"expected an object in a graph, found {data!r:.80}")
    return data
