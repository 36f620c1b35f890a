"""Eager's results in as many ways as it takes to recognise a wrong result.

- plain: the graph as it is, its uninitialised memory filled with a number
- repoisoned: the same, filled with another one: what then differs is compared with nothing
- exact: in float64, inputs, constants and dtypes alike
- noisy: with a relative error of the size of one rounding in each value (Monte Carlo arithmetic)

Each is computed once, when it is needed. Not here: the comparison (`replay.comparison`). Called
by `graph_runner`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_aggregate

from torchreel.minifier.oracle.child.caught import ErrorCatcher
from torchreel.replay.accuracy.comparison import Evidence
from torchreel.replay.accuracy.results import Results

_RUNS = 3  # with noise; their largest distance is what rounding can do
# Functions and methods whose results hold whatever was in memory.
_UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
_NARROW = (torch.float16, torch.bfloat16, torch.float32)
_WIDENING = frozenset({"float", "half", "bfloat16"})


class References:
    """Eager's results of one graph; `backward` says whether gradients are wanted."""

    def __init__(
        self, graph: GraphModule, inputs: Callable[[], list[object]], seed: int, *, backward: bool
    ) -> None:
        self._graph, self._inputs, self._seed, self._backward = graph, inputs, seed, backward

    def _run(self, function: Callable[..., Any], inputs: list[object]) -> Results:
        found = Results(function, inputs, self._seed)
        if self._backward:
            found.backward()
        return found

    @cached_property
    def plain(self) -> Results:
        """Return the results to expect.  Raises what the graph raises."""
        return self._run(poisoned(self._graph, 1.0), self._inputs())

    @cached_property
    def _repoisoned(self) -> Results | None:
        if not _has_uninitialised(self._graph):
            return None
        found: Results | None = None
        with ErrorCatcher():
            found = self._run(poisoned(self._graph, math.nan), self._inputs())
        return found

    @cached_property
    def _exact(self) -> Results | None:
        found: Results | None = None
        with ErrorCatcher():
            found = self._run(
                poisoned(in_float64(self._graph), 1.0), [_widened(v) for v in self._inputs()]
            )
        return found

    @cached_property
    def _noisy(self) -> list[Results]:
        found: list[Results] = []
        for number in range(_RUNS):
            with ErrorCatcher():
                noise = Noise(poisoned(self._graph, 1.0), number)
                found.append(self._run(noise.run, [noise.perturbed(v) for v in self._inputs()]))
        return found

    def evidence(self, pick: Callable[[Results], list[object]]) -> Evidence:
        """Return the evidence about the values that `pick` takes out of results."""
        return Evidence(
            exact=pick(self._exact) if self._exact is not None else None,
            repoisoned=pick(self._repoisoned) if self._repoisoned is not None else None,
            noisy=lambda: [pick(found) for found in self._noisy],
        )


def poisoned(graph: GraphModule, value: float) -> GraphModule:
    """Return the graph with its uninitialised memory filled, in nested graphs as well."""
    if not _has_uninitialised(graph):
        return graph
    graph = copy.deepcopy(graph)
    for module in _graphs(graph):
        for node in [n for n in module.graph.nodes if _is_uninitialised(n)]:
            with module.graph.inserting_after(node):
                filled = module.graph.call_function(_fill, (node, value))
            node.replace_all_uses_with(
                filled, delete_user_cb=lambda user, own=filled: user is not own
            )
        module.recompile()
    return graph


def _fill(tensor: Any, value: float) -> Any:
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.fill_(value)
        return tensor.fill_(0 if math.isnan(value) else 1)


def _graphs(graph: GraphModule) -> list[GraphModule]:
    return [module for module in graph.modules() if isinstance(module, GraphModule)]


def _has_uninitialised(graph: GraphModule) -> bool:
    return any(_is_uninitialised(node) for part in _graphs(graph) for node in part.graph.nodes)


def _is_uninitialised(node: Node) -> bool:
    return node.op in ("call_function", "call_method") and _name(node) in _UNINITIALISED


def _name(node: Node) -> str:
    """Return 'empty' for torch.empty, for the method, and for aten.empty.memory_format."""
    if isinstance(node.target, str):
        return node.target
    name = str(getattr(node.target, "__name__", ""))
    return name.partition(".")[0]


def in_float64(graph: GraphModule) -> GraphModule:
    """Return the graph with float64 for every narrower float: in arguments, constants, nested
    graphs.
    """
    graph = copy.deepcopy(graph)
    for module in _graphs(graph):
        for node in module.graph.nodes:
            node.args = map_aggregate(node.args, _wide_dtype)
            node.kwargs = map_aggregate(node.kwargs, _wide_dtype)
            if node.op == "call_method" and node.target in _WIDENING:
                node.target = "double"
        stores: list[dict[str, Any]] = [module._parameters, module._buffers, vars(module)]
        for store in stores:
            for name, value in list(store.items()):
                if isinstance(value, torch.Tensor):
                    store[name] = _widened(value)
        module.recompile()
    return graph


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if any(value is dtype for dtype in _NARROW) else value


def _widened(value: object) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().to(torch.float64).requires_grad_(value.requires_grad)


class Noise(Interpreter):
    """Runs a graph with a relative error of up to one rounding in each floating-point value."""

    def __init__(self, graph: GraphModule, seed: int) -> None:
        super().__init__(graph)
        self._generator = torch.Generator().manual_seed(seed)

    def run_node(self, n: Node) -> Any:
        """Return the node's value, perturbed in place: what aliases it sees the same."""
        result = super().run_node(n)
        if n.op in ("call_function", "call_method"):
            torch.utils._pytree.tree_map_(self.perturbed, result)
        return result

    def perturbed(self, value: object) -> object:
        """Return a tensor whose elements were multiplied by 1 plus or minus its dtype's epsilon."""
        if not isinstance(value, torch.Tensor) or not self._can_be(value):
            return value
        sign = torch.randint(0, 2, value.shape, generator=self._generator) * 2 - 1
        factor = 1 + sign.to(torch.float64) * torch.finfo(value.dtype).eps
        # `data`, because autograd must not see it: it is what rounding might have left.
        value.data.copy_(value.data.to(torch.float64) * factor)
        return value

    def _can_be(self, value: torch.Tensor) -> bool:
        """Return True unless two elements share memory, or the device or layout is another one."""
        if value.layout is not torch.strided or value.device.type != "cpu":
            return False
        overlaps = any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True))
        return value.is_floating_point() and not overlaps
