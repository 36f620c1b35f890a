"""The results of a function of some inputs: values, what it left in the inputs, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch.utils import _pytree as pytree

from torchreel.replay.accuracy.comparison import tensors_of
from torchreel.store.failures.signature import DOUBLE_BACKWARD, REPEATED_BACKWARD


class Results:
    """The results of a function of some inputs, and the gradients of its backward."""

    def __init__(self, function: Callable[..., Any], inputs: list[object], seed: int) -> None:
        torch.manual_seed(seed)
        self.inputs = inputs
        self.gradients: list[object] = []
        for value in inputs:
            if _needs_gradient(value) and not value.is_leaf:
                value.retain_grad()  # autograd keeps that of leaves alone
        self.result = function(*inputs)

    def outputs(self) -> list[object]:
        """Return the values returned."""
        return tensors_of(self.result)

    def forward(self) -> list[object]:
        """Return the values returned, then the inputs (they may have been written to)."""
        return [*self.outputs(), *tensors_of(self.inputs)]

    def backward(self) -> list[object]:
        """Return the gradients of the inputs, from the sum of everything that needs one."""
        run_backward(self.result)
        self.gradients = [_gradient(value) for value in self.inputs]
        return self.gradients


def run_backward_as(partition: str, result: object, inputs: Sequence[object]) -> None:
    """Run the backward of a result in the way in which that of a failure was run."""
    if partition == DOUBLE_BACKWARD:
        run_backward(result, inputs)
    else:
        run_backward(result, keep_graph=partition == REPEATED_BACKWARD)


def run_backward(
    result: object, inputs: Sequence[object] = (), *, keep_graph: bool = False
) -> None:
    """Run the backward of a result, from the sum of everything in it that needs a gradient.

    With `inputs`, their gradients are differentiated again, as a double backward does.
    """
    outputs = [value for value in pytree.tree_leaves(result) if _needs_gradient(value)]
    if outputs:
        parts = [(value.abs() if value.is_complex() else value).sum() for value in outputs]
        total = torch.stack([part.to(torch.float64) for part in parts]).sum()
        leaves = [value for value in inputs if _needs_gradient(value)]
        if not leaves:
            total.backward(retain_graph=keep_graph)  # type: ignore[no-untyped-call]
            return
        gradients = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        run_backward(gradients)


def _needs_gradient(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _gradient(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return None
    return value.grad if value.is_leaf or value.retains_grad else None
