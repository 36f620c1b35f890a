"""Backends that compute a right result in all but one respect; none compiles anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch.fx import GraphModule

Tensors = tuple[Any, ...]
Break = Callable[[Tensors, Sequence[Any]], Tensors]


def breaking(name: str, change: Break) -> None:
    """Register a backend that applies `change` to the results, given the inputs."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: change(gm(*args), args)

    register_backend(backend, name=f"planted_{name}")


def _restrided(values: Tensors) -> Tensors:
    return tuple(value.t().contiguous().t() for value in values)


breaking("values", lambda values, args: tuple(value * 1.1 for value in values))
breaking("nan", lambda values, args: (values[0] * math.nan, *(v + 1 for v in values[1:])))
breaking("dtype", lambda values, args: tuple(value.double() for value in values))
breaking("shape", lambda values, args: tuple(value[None] for value in values))
breaking("stride", lambda values, args: _restrided(values))
breaking("count", lambda values, args: (*values, values[0]))
breaking("stride_and_values", lambda values, args: _restrided(tuple(v + 1 for v in values)))
breaking("one_object", lambda values, args: (values[0], values[0], *values[2:]))
breaking("apart", lambda values, args: tuple(value.clone() for value in values))
breaking("gradient", lambda values, args: tuple(v + (v - v.detach()) for v in values))
breaking("low_bit", lambda values, args: tuple(value & 1 for value in values))
breaking("garbage", lambda values, args: (_with_garbage(values[0], 1.0),))
breaking("garbage_and_values", lambda values, args: (_with_garbage(values[0], 2.0),))


def _aliasing(values: Tensors, args: Sequence[Any]) -> Tensors:
    """The right numbers, in the memory of the first input."""
    (given,) = args
    given_back = given.clone()
    shared = given.view_as(given)
    shared.copy_(values[0])
    assert given_back.shape == shared.shape
    return (shared,)


breaking("aliasing", _aliasing)


def _with_garbage(value: Any, factor: float) -> Any:
    """As if other bytes had been there: rows 2 and 3, and 6 and 7, come from memory."""
    value = value * factor
    value[2:4] = float("nan")
    value[6:8] = float("nan")
    return value


@register_backend
def planted_rounding(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Computes in double precision, and rounds at the end: as right as can be."""

    def run(*args: Any) -> Any:
        wide = [value.double() if isinstance(value, torch.Tensor) else value for value in args]
        return tuple(value.to(args[0].dtype) for value in gm(*wide))

    return run


def never(expected: torch.Tensor, got: torch.Tensor) -> bool:
    """A comparator."""
    return False


def always(expected: torch.Tensor, got: torch.Tensor) -> bool:
    """A comparator."""
    return True


def _wrong_cosine(value: torch.Tensor) -> torch.Tensor:
    return torch.cos(value) * 1.25


def _with_wrong_cosine(gm: GraphModule) -> GraphModule:
    changed = GraphModule(gm, gm.graph.__class__())
    changed.graph.output(changed.graph.graph_copy(gm.graph, {}))
    for node in changed.graph.nodes:
        if node.target is torch.cos:
            node.target = _wrong_cosine
    changed.recompile()
    return changed


@register_backend
def planted_cosine(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Every cosine is wrong."""
    return _with_wrong_cosine(gm).forward


@register_backend
def planted_shy_cosine(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The same, unless somebody looks at more than the result."""
    (returned,) = gm.graph.find_nodes(op="output")[0].args
    return _with_wrong_cosine(gm).forward if len(returned) == 1 else gm.forward


@register_backend
def planted_unshared(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Takes inputs that share memory for inputs that do not, as does a missing guard."""

    def run(*args: Any) -> Any:
        own = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
        before = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
        found = gm(*own)
        for value, old, changed in zip(args, before, own, strict=True):
            # What was not written to is not written back: it may lie in what was.
            if not isinstance(value, torch.Tensor) or not value.is_contiguous():
                continue
            if not torch.equal(old, changed):
                value.copy_(changed)
        return found

    return run
