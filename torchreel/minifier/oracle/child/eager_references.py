"""Eager's results in as many ways as it takes to recognise a wrong result.

- plain: the graph as it is, its uninitialised memory filled with a number
- repoisoned: the same, filled with another one: what then differs is compared with nothing
- exact: in float64, inputs, constants and dtypes alike
- noisy: with a relative error of the size of one rounding in each value (Monte Carlo arithmetic)

Each is computed once, when it is needed. Not here: the comparison
(`replay.accuracy.comparison`). Called by `graph_runner`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeGuard

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_aggregate

from torchreel.minifier.oracle.child.caught import ErrorCatcher
from torchreel.replay.accuracy.results import Results
from torchreel.replay.accuracy.rounding import Evidence
from torchreel.torch_compat.tensors import fake_tensors

_RUNS = 3  # with noise; their largest distance is what rounding can do
# Functions and methods whose results hold whatever was in memory.
_UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
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
            inputs = widened_inputs(self._inputs())
            if inputs is not None:
                found = self._run(poisoned(in_float64(self._graph), 1.0), inputs)
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
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def widened_inputs(values: Sequence[object]) -> list[object] | None:
    """Return inputs in float64 that share memory, and overlap, as the given ones do.

    None where that can't be had: memory read as two dtypes has no wide form, and of tensors that
    share it, autograd lets no graph write to one that needs a gradient.
    """
    storages: dict[int, list[torch.Tensor]] = {}
    for value in values:
        if _has_storage(value):
            storages.setdefault(value.untyped_storage().data_ptr(), []).append(value)
    wide: dict[int, torch.Tensor] = {}
    for place, users in storages.items():
        if len(users) > 1 and not _is_uniform(users):
            return None
        wide[place] = _flat(users[0]).to(_wide_dtype(users[0].dtype))
    return [
        _as_given(wide[value.untyped_storage().data_ptr()], value)
        if _has_storage(value)
        else _widened(value)
        for value in values
    ]


def _has_storage(value: object) -> TypeGuard[torch.Tensor]:
    """Return True for a tensor in plain memory; lazy bits and subclasses are kept out of it."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_conj() or value.is_neg():
        return False
    return not fake_tensors.has_zero_tensor(value) and value.numel() > 0


def _is_uniform(users: Sequence[torch.Tensor]) -> bool:
    return len({user.dtype for user in users}) == 1 and not any(u.requires_grad for u in users)


def _flat(value: torch.Tensor) -> torch.Tensor:
    """Return the whole storage that a tensor lies in."""
    count = value.untyped_storage().nbytes() // value.itemsize
    return value.detach().as_strided((count,), (1,), 0)


def _as_given(storage: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a view of the wide storage that lies in it as the value lies in its own."""
    made = storage.as_strided(value.shape, value.stride(), value.storage_offset())
    return with_gradient(made, value)


def with_gradient(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor that needs a gradient, as a leaf or none, if the other one does."""
    if not like.requires_grad:
        return made
    made = made.detach().requires_grad_()
    return made if like.is_leaf else made.view_as(made)


def _widened(value: object) -> object:
    if not isinstance(value, torch.Tensor) or value.dtype not in _WIDE:
        return value
    return with_gradient(value.detach().to(_WIDE[value.dtype]), value)


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
