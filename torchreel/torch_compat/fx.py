"""FX graphs, their names, and the metadata of their nodes."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv


@cache
def inplace_operators() -> frozenset[str]:
    """Return the functions of `operator` that FX writes as `a += b`, by qualified name."""
    from torch.fx.graph import inplace_methods

    return frozenset(f"operator.{name}" for name in inplace_methods)


def qualified_name(function: Callable[..., object]) -> str:
    """Return the name by which FX prints a target."""
    from torch.fx.node import _get_qualified_name

    return _get_qualified_name(function)


def graph_names(graph: torch.fx.Graph) -> tuple[set[str], dict[str, int]]:
    """Return the names a graph has used (erased nodes too) and its counters: they number new
    nodes.
    """
    namespace = graph._graph_namespace
    return set(namespace._used_names), dict(namespace._base_count)


def set_graph_names(graph: torch.fx.Graph, used: Iterable[str], counts: Mapping[str, int]) -> None:
    """Restore the names and counters of `graph_names`."""
    namespace = graph._graph_namespace
    for name in used:
        namespace._used_names.add(name)
    namespace._base_count.update(counts)


def node_metas(graph: torch.fx.Graph) -> list[dict[str, Any]]:
    """Return the metadata of each node that Dynamo copies when it traces the graph's code."""
    from torch.fx.proxy import _COPY_META_FIELDS

    fields = ("stack_trace", *_COPY_META_FIELDS)
    return [{k: node.meta[k] for k in fields if k in node.meta} for node in graph.nodes]


def graph_with_metas(metas: Sequence[Mapping[str, Any]]) -> torch.fx.Graph:
    """Return a graph with one node for each metadata; its operations mean nothing."""
    graph = torch.fx.Graph()
    *before, last = metas or ({},)
    for place, meta in enumerate(before):
        graph.placeholder(f"node_{place}").meta = dict(meta)
    graph.output(None).meta = dict(last)
    return graph


def graph_module_state(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an FX module; in place of its graph, the metadata of the nodes.

    None for anything else.
    """
    if not issubclass(type(value), torch.fx.GraphModule):
        return None
    # The class that traced it is of no use to code that is there, and often a local one.
    state = {name: held for name, held in vars(value).items() if name != "_tracer_cls"}
    if isinstance(graph := state.get("_graph"), torch.fx.Graph):
        state["_graph"] = node_metas(graph)
    return state


def set_graph_module_state(value: Any, state: Mapping[str, Any]) -> None:
    """Restore the attributes of `graph_module_state`."""
    vars(value).update(state)
    if isinstance(metas := state.get("_graph"), list):
        vars(value)["_graph"] = graph_with_metas(metas)


def fake_of_input(node: torch.fx.Node, real: object) -> object:
    """Return the fake value of an input of Dynamo's graph; for a list, the fakes of its items.

    Dynamo notes the list of the real tensors, and each fake where the graph takes the item out.
    """
    if type(real) is not list:
        return node.meta.get("example_value")
    taken = {
        user.args[1]: user.meta.get("example_value")
        for user in node.users
        if user.target is operator.getitem
    }
    return [taken.get(place) for place in range(len(real))]


def inputs_with_other_data(gm: GraphModule) -> list[object]:
    """Return the fake values of those inputs of Dynamo's graph whose `data` it sets."""
    found = []
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.Tensor.set_:
            first = node.args[0]
            if isinstance(first, torch.fx.Node) and first.op == "placeholder":
                found.append(first.meta.get("example_value"))
    return found


def within_wrapper(gm: Any) -> Any:
    """Return the graph module in the one that torch makes around it where its inputs are lists."""
    from torch._dynamo.utils import GmWrapper

    return gm.gm if isinstance(gm, GmWrapper) else gm


def traced_env(gm: torch.fx.GraphModule) -> ShapeEnv | None:
    """Return the ShapeEnv of the values that the nodes of a graph were traced with."""
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, FakeTensor):
            return value.fake_mode.shape_env
        if isinstance(value, torch.SymInt):
            return value.node.shape_env  # type: ignore[no-any-return]
    return None


def last_sequence() -> int:
    """Return the number that a node of a graph is traced with now (torch/fx/proxy.py:
    _get_seq_nr).
    """
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def node_sources(data: Any) -> object:
    """Return a chain of node origins (`meta["from_node"]`) from plain data."""
    from torch.fx.traceback import NodeSource

    return [NodeSource._from_dict(item) for item in data]


def tensor_metadata(tensor: torch.Tensor) -> object:
    """Return the metadata that ShapeProp notes of a tensor (`meta["tensor_meta"]`)."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return _extract_tensor_metadata(tensor)


def holds_tensors(value: object) -> bool:
    """Return True if a tensor or a symbolic scalar stands anywhere in a nested value."""
    if value is None or isinstance(value, (str, int)):
        return False
    from torch.utils._pytree import tree_leaves

    kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(isinstance(leaf, kinds) for leaf in tree_leaves(value))


def without_addresses(text: str) -> str:
    """Return the text of a target without the address that Python prints for unnamed objects."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Return a GraphModule as Dynamo makes one (compiled lazily where torch does so)."""
    from torch.fx._lazy_graph_module import _make_graph_module

    return _make_graph_module(root, graph)


def is_tracer_disabled() -> bool:
    """Return True if Dynamo leaves FX's tracer out, as it does once torch.compile was used."""
    return hasattr(torch.fx.Tracer.trace, "_torchdynamo_disable")


def disable_tracer() -> None:
    """Have Dynamo leave FX's tracer out."""
    from torch._dynamo.eval_frame import TorchPatcher

    TorchPatcher.patch()


def kernel_calls(graph: GraphModule) -> list[str]:
    """Return the nodes of a graph and its bodies that call a Triton kernel of the program."""
    return [
        node.name
        for module in graph.modules()
        for node in (module.graph.nodes if isinstance(module, GraphModule) else ())
        if str(node.target).startswith("triton_kernel_wrapper_")
    ]


def set_class_names(graph: GraphModule, names: Mapping[str, object]) -> None:
    """Have a graph and its bodies print as the recorded ones: each has a class of its own."""
    for path, module in graph.named_modules():
        if path in names and isinstance(module, GraphModule):
            type(module).__name__ = str(names[path])


def inside_region(name: object) -> Any:
    """Return the context that regional compilation sets around a region; empty without a name."""
    from torch.fx import traceback

    setter = getattr(traceback, "_set_regional_inductor_subgraph_name", None)  # since 2.13
    return contextlib.nullcontext() if setter is None or name is None else setter(str(name))
