"""A custom operator, and backends that fail when a sine reaches a cosine.

Imported by the recorded programs and, as a user's module would be with --import, by replay and
minifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn
from unittest import mock

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule, Node

MESSAGE = "planted: a sine reaches a cosine"


@torch.library.custom_op("torchreel_compat::shift", mutates_args=())
def shift(x: torch.Tensor, by: float) -> torch.Tensor:
    """A custom operator with a fake kernel."""
    return x + by


@shift.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


@register_backend
def planted_dynamo(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Look at Dynamo's graph and at the bodies of its operators."""
    return _checked(gm)


def _check_aten(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return _checked(gm)


planted_aten = register_backend(
    aot_autograd(fw_compiler=_check_aten, bw_compiler=_check_aten), name="planted_aten"
)
"""Look at AOTAutograd's graphs."""


@register_backend
def planted_inductor(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile with Inductor, which has no lowering of a cosine."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.lowering import lowerings

    with mock.patch.dict(lowerings, {torch.ops.aten.cos.default: _no_lowering}):
        return compile_fx(gm, inputs)


def _no_lowering(*args: object, **kwargs: object) -> NoReturn:
    raise NotImplementedError("planted: no lowering of a cosine")


def _checked(gm: GraphModule) -> Callable[..., Any]:
    if any(_reaches(module.graph.nodes) for module in _graphs(gm)):
        raise RuntimeError(MESSAGE)
    return gm.forward


def _graphs(gm: GraphModule) -> Iterator[GraphModule]:
    return (module for module in gm.modules() if isinstance(module, GraphModule))


def _reaches(nodes: Any) -> bool:
    tainted: set[Node] = set()
    for node in nodes:
        flows = any(operand in tainted for operand in node.all_input_nodes)
        if flows and operator(node) == "cos":
            return True
        if flows or operator(node) == "sin":
            tainted.add(node)
    return False


def operator(node: Node) -> str:
    """Return 'sin' for a call of the function, the method and the ATen operator."""
    if not node.op.startswith("call_"):
        return ""
    if isinstance(node.target, str):
        return node.target
    return getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
