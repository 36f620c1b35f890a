"""FX graphs as data, and back.

Lives here: the encoder of a GraphModule, and the decoder into one.  Not here: the data
(`document`), the form of each kind of argument (`node_arguments`), targets (`targets`), metadata
(`node_meta`), the inputs (`checkpoints`).

A graph is never pickled or re-traced: nodes are created one by one, by the names they had, and
the name counters of the graph are restored, so that passes that add nodes name them alike.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchreel.errors import UnsupportedError
from torchreel.formats import names, node_arguments, sources, targets
from torchreel.formats.graphs import OPERATORS, SAVE_POLICY, policies
from torchreel.formats.graphs.check import check_graph
from torchreel.formats.graphs.document import GraphDoc, NodeDoc, mapping_of, unknown_operand
from torchreel.formats.graphs.node_meta import MetaDecoder, MetaEncoder
from torchreel.formats.graphs.operators import encode_operators
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.fakes import Decoder
from torchreel.formats.tensors.synthetic import synthesise
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import list_only
from torchreel.torch_compat import distributed, fx
from torchreel.torch_compat.dynamo import contexts
from torchreel.torch_compat.graph_calls import activation_checkpoints
from torchreel.torch_compat.inductor import code_generation
from torchreel.torch_compat.tensors import fake_tensors


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
        [node_arguments.encode_value(arg) for arg in node.args],
        {key: node_arguments.encode_value(arg) for key, arg in node.kwargs.items()},
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
        known = [str(name) for name in list_only(order)]
        return [n for n in known if n in given] + [n for n in sorted(given) if n not in known]

    def _member(self, name: str) -> object:
        if name in self.doc.modules:
            return _GraphBuilder(self.doc.modules[name], self.meta, self.lost).build()
        return self._constant(name, self.doc.attributes[name])

    def _node(self, graph: Graph, doc: NodeDoc) -> None:
        args: Any = tuple(
            node_arguments.decode_value(arg, self._leaf) for arg in _sequence(doc.args)
        )
        kwargs: Any = {
            names.check_name(k, "keyword"): node_arguments.decode_value(v, self._leaf)
            for k, v in mapping_of(doc.kwargs).items()
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
        if weight and not code_generation.is_freezing():
            return decoder.fake(description)
        made = synthesise(description, seed=0, hints=decoder.hints, table=decoder.table)
        return torch.nn.Parameter(made) if weight and isinstance(made, torch.Tensor) else made

    def _restore_names(self, graph: Graph) -> None:
        erased = self.doc.extra.get("erased_names")
        counts = self.doc.extra.get("name_counts")
        fx.set_graph_names(
            graph,
            [str(name) for name in list_only(erased)],
            {str(k): int(str(v)) for k, v in mapping_of(counts).items()},
        )

    def _restore_extra(self, gm: GraphModule) -> None:
        extra = self.doc.extra
        names.check_comment(extra)
        if "original_names" in extra:
            gm.meta["dynamo_flat_name_to_original_fqn"] = dict(mapping_of(extra["original_names"]))
        if "compile_id" in extra:
            text = str(extra["compile_id"])
            gm.meta["dynamo_compile_id"] = contexts.CompileId.from_string(text)
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
