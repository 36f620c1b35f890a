"""Bugs in Inductor itself, on operators that nothing else in these tests uses.

Importing this module breaks the Inductor of the process: only the worker does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.compile_fx as compile_fx
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings
from torch.fx import GraphModule

aten = torch.ops.aten


def _breaks(operator: Any, fails: Callable[[Any], None]) -> None:
    """Let `fails` look at the operand before an operator is lowered."""
    original = lowerings[operator]

    def lowering(x: Any, *args: Any, **kwargs: Any) -> Any:
        fails(x)
        return original(x, *args, **kwargs)

    lowerings[operator] = lowering


def _double(x: Any) -> None:
    if x.get_dtype() is torch.float64:
        raise NotImplementedError("planted: no cosine of doubles")


def _large(x: Any) -> None:
    if x.get_numel() >= 64:
        raise AssertionError("planted: too many elements")


def _always(x: Any) -> None:
    raise NotImplementedError("planted: no lowering")


def _crash(x: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


_breaks(aten.cos.default, _double)
_breaks(aten.erf.default, _large)
_breaks(aten.cosh.default, _always)
_breaks(aten.atan.default, _crash)


def _hardswish(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("planted: no decomposition of hardswish")


decompositions[aten.hardswish.default] = _hardswish

_post_grad_passes = compile_fx.post_grad_passes


def post_grad_passes(gm: GraphModule, is_inference: bool) -> None:
    """The real ones, after a look at the graph."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.tanh.default):
        if any(operand.target is aten.mm.default for operand in node.all_input_nodes):
            raise IndexError("planted: a tangent of a product")
    _post_grad_passes(gm, is_inference)


compile_fx.post_grad_passes = post_grad_passes


def _no_such_function(x: Any) -> str:
    return f"no_such_function({x})"


for cls in (CppOverrides, CppVecOverrides):
    cls.acosh = staticmethod(_no_such_function)
