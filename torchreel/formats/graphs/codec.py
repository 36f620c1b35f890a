"""FX graphs as data, and back.

Lives here: `NodeDoc` and `GraphDoc`, the encoder of a GraphModule, the decoder into one.  Not here:
arguments (`values`), targets (`targets`), metadata (`node_meta`), the inputs (`checkpoints`).

A graph is never pickled or re-traced: nodes are created one by one, by the names they had, and
the name counters of the graph are restored, so that passes that add nodes name them alike.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from torchreel.errors import UnsupportedError
from torchreel.formats import names, sources, targets, values
from torchreel.formats.graphs import OPERATORS, SAVE_POLICY, policies
from torchreel.formats.graphs.check import check_graph
from torchreel.formats.graphs.node_meta import MetaDecoder, MetaEncoder
from torchreel.formats.graphs.operators import encode_operators
from torchreel.formats.tensors.check import check_description
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.fakes import Decoder
from torchreel.formats.tensors.synthetic import synthesise
from torchreel.formats.values import map_tree, node_refs
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, exact_json, parse_json
from torchreel.torch_compat import distributed, dynamo, fake_tensors, fx, inductor
from torchreel.torch_compat.graph_calls import activation_checkpoints

__all__ = [
    "GraphCounts", "GraphDoc", "NodeDoc", "decode_graph", "encode_graph", "map_tree", "node_refs",
]  # fmt: skip

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
        return tuple(node_refs([self.args, *_mapping(self.kwargs).values()]))

    def mapped(self, replacement: Callable[[str], Json]) -> NodeDoc:
        """Return the node with every reference replaced by what `replacement` returns for it."""
        kwargs = {k: map_tree(value, replacement) for k, value in _mapping(self.kwargs).items()}
        return replace(self, args=map_tree(self.args, replacement), kwargs=kwargs)

    def to_json(self) -> dict[str, Json]:
        """Return the node as data; the order of keywords is kept beside them, as JSON keeps
        none.
        """
        kwargs = _mapping(self.kwargs)
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
            _in_order(_mapping(data.get("kwargs")), data.get("kwargs_order")),
            _mapping(data.get("meta")),
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
        """Return what it calls, with nesting depth and count, nested graphs included."""
        found = collections.Counter((depth, n.target) for n in self.nodes if n.is_call)
        for inner in self.modules.values():
            for level, target, count in inner.targets(depth + 1):
                found[level, target] += count
        return [(level, target, count) for (level, target), count in sorted(found.items())]

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
            {k: cls.from_json(v, depth + 1) for k, v in _mapping(data.get("modules")).items()},
            _mapping(data.get("attributes")),
            _mapping(data.get("extra")),
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
        """Return the canonical bytes of what is stored, over which a digest is taken."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        # Kept, for a checkpoint and the row of its graph both have them.
        # A float in it is spelled in hex (`values`).
        return exact_json(self.stored(), sort_keys=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> GraphDoc:
        """Return what `to_bytes` wrote.  Raises `UnsupportedError` when it is malformed."""
        try:
            document = parse_json(data)
        except ValueError as error:
            raise UnsupportedError(f"the graph is not JSON: {error}") from error
        return cls.from_json(document)


def _mapping(data: Json) -> Mapping[str, Json]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise UnsupportedError(f"expected an object in a graph, found {data!r:.80}")
    return data


def encode_graph(
    gm: GraphModule,
    encoder: Encoder | None = None,
    known: sources.Known | None = None,
    state: Container[str] = (),
) -> GraphDoc:
    """Return a GraphModule as data; neither it nor any value in it is changed or kept.

    `known` are Sources that were encoded before: those of its inputs may be among them.  `state`
    names attributes that are parameters or buffers of the program: small ones are no literals.
    """
    with fake_tensors.no_dispatch():
        return _encode(gm, MetaEncoder(encoder or Encoder(), known), state)


def _encode(gm: GraphModule, meta: MetaEncoder, state: Container[str] = ()) -> GraphDoc:
    modules, attributes = {}, {}
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            value = _attribute(gm, node.target)
            if isinstance(value, GraphModule):
                modules[node.target] = _encode(value, meta)
            else:
                literal = node.target not in state
                attributes[node.target] = meta.encoder.describe(value, literal=literal)
    nodes = tuple(_encode_node(node, meta) for node in gm.graph.nodes)
    return GraphDoc(nodes, modules, attributes, _encode_extra(gm))


def _attribute(gm: GraphModule, path: str) -> object:
    value: object = gm
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _encode_node(node: Node, meta: MetaEncoder) -> NodeDoc:
    function = node.op == "call_function"
    encoded = meta.encode(node.meta)
    source = getattr(node, "_dynamo_source", None)
    if source is None and "grapharg" in node.meta:
        source = getattr(node.meta["grapharg"], "source", None)
    if source is not None:
        encoded["dynamo_source"] = sources.encode_source(source, meta.sources)
    return NodeDoc(
        node.name,
        node.op,
        targets.encode_target(node.target) if function else str(node.target),
        [values.encode_value(arg) for arg in node.args],
        {key: values.encode_value(arg) for key, arg in node.kwargs.items()},
        encoded,
    )


def _encode_extra(gm: GraphModule) -> dict[str, Json]:
    used, counts = fx.graph_names(gm.graph)
    erased = sorted(used - {node.name for node in gm.graph.nodes})
    extra: dict[str, Json] = {"erased_names": erased, "name_counts": dict(sorted(counts.items()))}
    members = [n.target for n in gm.graph.nodes if n.op in ("get_attr", "call_module")]
    if members != sorted(members):
        extra["member_order"] = list(dict.fromkeys(members))
    original = gm.meta.get("dynamo_flat_name_to_original_fqn")
    if original:
        extra["original_names"] = {str(k): str(v) for k, v in original.items()}
    if operators := encode_operators(gm):
        extra[OPERATORS] = operators
    if activation_checkpoints.has_policy(gm):
        extra[SAVE_POLICY] = {}  # it is asked later
    if "dynamo_compile_id" in gm.meta:
        extra["compile_id"] = str(gm.meta["dynamo_compile_id"])
    return extra


def decode_graph(
    doc: GraphDoc,
    decoder: Decoder,
    lost: list[str] | None = None,
    *,
    inputs: Sequence[Json] | None = None,
) -> GraphModule:
    """Return a GraphModule of the recorded nodes, each of which is checked before any is made.

    `inputs` are the descriptions of what the graph will be given.  `lost` is filled with what had
    no portable form and was left out of the metadata.  Raises `UnsupportedError` for a target or an
    argument that may not or cannot be rebuilt.
    """
    check_graph(doc, inputs)
    return _GraphBuilder(doc, MetaDecoder(decoder), lost if lost is not None else []).build()


class _GraphBuilder:
    def __init__(self, doc: GraphDoc, meta: MetaDecoder, lost: list[str]) -> None:
        self.doc, self.meta, self.lost = doc, meta, lost
        self.live: dict[str, Node] = {}

    def build(self) -> GraphModule:
        root = torch.nn.Module()
        for name in self._members():
            _set(root, name, self._member(name))
        graph = Graph()
        for node in self.doc.nodes:
            self._node(graph, node)
        self._restore_names(graph)
        gm = fx.graph_module(root, graph)
        self._restore_extra(gm)
        self.lost += self.meta.lost
        self.meta.lost = []
        return gm

    def _members(self) -> list[str]:
        """Return the attributes in the order in which the graph uses them: passes enumerate
        them.
        """
        order = self.doc.extra.get("member_order")
        given = [*map(names.check_member, (*self.doc.modules, *self.doc.attributes))]
        known = [str(name) for name in order] if isinstance(order, list) else []
        return [n for n in known if n in given] + [n for n in sorted(given) if n not in known]

    def _member(self, name: str) -> object:
        if name in self.doc.modules:
            return _GraphBuilder(self.doc.modules[name], self.meta, self.lost).build()
        return self._constant(name, self.doc.attributes[name])

    def _node(self, graph: Graph, doc: NodeDoc) -> None:
        args: Any = tuple(values.decode_value(arg, self._leaf) for arg in _sequence(doc.args))
        kwargs: Any = {
            names.check_name(k, "keyword"): values.decode_value(v, self._leaf)
            for k, v in _mapping(doc.kwargs).items()
        }
        name = names.check_identifier(doc.name)
        node = graph.create_node(doc.op, self._target(doc), args, kwargs, name=name)
        node.name = doc.name
        meta = dict(doc.meta)
        source = meta.pop("dynamo_source", None)
        node.meta.update(self.meta.decode(meta))
        if doc.op == "placeholder":
            node._dynamo_source = sources.decode_source(source)
            if (mesh := distributed.mesh_of(node.meta.get("example_value"))) is not None:
                node.type = type(mesh)  # Dynamo says so of inputs that are no tensors
        self.live[doc.name] = node

    def _target(self, doc: NodeDoc) -> Any:
        if doc.op == "call_function":
            return targets.decode_target(doc.target)
        if doc.op in ("get_attr", "call_module"):
            return names.check_path(doc.target)
        return names.check_identifier(doc.target, "target")  # FX writes it into the code as it is

    def _leaf(self, kind: str, data: Json) -> object:
        if kind == "n":
            if data not in self.live:
                raise UnsupportedError(unknown_operand(data))
            return self.live[str(data)]
        if kind == "sym" and isinstance(data, Mapping):
            return self.meta.decoder.symbolic(str(data.get("type")), data.get("expr"))
        raise UnsupportedError(f"an argument has no portable form: {data!r:.120}")

    def _constant(self, name: str, description: Json) -> object:
        """Return a constant of the graph: its literal, or zeros where the values were not
        recorded.
        """
        decoder = self.meta.decoder
        weight = isinstance(description, Mapping) and bool(description.get("parameter"))
        if weight and not inductor.is_freezing():
            return decoder.fake(description)
        made = synthesise(description, seed=0, hints=decoder.hints, table=decoder.table)
        return torch.nn.Parameter(made) if weight and isinstance(made, torch.Tensor) else made

    def _restore_names(self, graph: Graph) -> None:
        erased = self.doc.extra.get("erased_names")
        counts = self.doc.extra.get("name_counts")
        fx.set_graph_names(
            graph,
            [str(name) for name in erased] if isinstance(erased, list) else [],
            {str(k): int(str(v)) for k, v in _mapping(counts).items()},
        )

    def _restore_extra(self, gm: GraphModule) -> None:
        extra = self.doc.extra
        names.check_comment(extra)
        if "original_names" in extra:
            gm.meta["dynamo_flat_name_to_original_fqn"] = dict(_mapping(extra["original_names"]))
        if "compile_id" in extra:
            text = str(extra["compile_id"])
            gm.meta["dynamo_compile_id"] = dynamo.CompileId.from_string(text)
        if (answers := policies.answers_of(extra)) is not None:
            activation_checkpoints.set_policy(gm, answers)


def _sequence(data: Json) -> list[Json]:
    if not isinstance(data, (list, tuple)):
        raise UnsupportedError(f"expected a list of arguments, found {data!r:.80}")
    return list(data)


def _set(root: torch.nn.Module, path: str, value: object) -> None:
    """Set `a.b.c` on a module, making plain modules on the way."""
    *parents, name = path.split(".")
    for part in parents:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(value, torch.nn.Parameter) or not isinstance(value, torch.Tensor):
        setattr(root, name, value)
    else:
        root.register_buffer(name, value)
