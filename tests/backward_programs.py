"""Programs whose backward compiled autograd captures, for the tests of replay and minifier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._dynamo import compiled_autograd


class Cube(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the cube of `x`."""
        ctx.save_for_backward(x)
        ctx.exponent = 3
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the gradient of `x`."""
        (x,) = ctx.saved_tensors
        return grad * ctx.exponent * x * x


def capturing(backend: str = "inductor") -> AbstractContextManager[None]:
    """Have backwards captured, and compiled by a backend."""
    return compiled_autograd._enable(torch.compile(backend=backend))


def model() -> torch.nn.Module:
    """A small network."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 2))


def of_eager() -> None:
    """The backward of a forward that is not compiled."""
    with capturing():
        model()(torch.ones(3, 4)).pow(2).mean().backward()


def of_compiled() -> None:
    """The backward of a compiled function, between two nodes of the engine."""
    forward = torch.compile(model(), backend="aot_eager")
    with torch._dynamo.config.patch(compiled_autograd=True), capturing():
        (forward(torch.ones(3, 4)) * 2).sum().backward()


def of_function() -> None:
    """The backward of a function of the program's own."""
    x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    with capturing():
        torch.nn.functional.cross_entropy(Cube.apply(x), torch.tensor([0, 1, 2])).backward()


def with_hooks() -> None:
    """A hook on a tensor, and one on a leaf after its gradient is there."""
    w = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
    w.register_post_accumulate_grad_hook(_halve)
    hidden = torch.ones(2, 4) @ w
    hidden.register_hook(lambda grad: grad * 2 + 1)
    with capturing():
        hidden.tanh().sum().backward()


def _halve(leaf: torch.Tensor) -> None:
    assert leaf.grad is not None
    leaf.grad.mul_(0.5)


def twice() -> None:
    """Two backwards into the same gradients."""
    net = model()
    with capturing():
        for _ in range(2):
            net(torch.ones(3, 4)).logsumexp(-1).mean().backward()


def of_sine() -> None:
    """A backward that has a cosine, of a forward that has none."""
    x = torch.ones(3, 4, requires_grad=True)
    with capturing():
        ((x * 2).relu().sin() + x.sigmoid()).sum().backward()


ALL: tuple[Callable[[], None], ...] = (of_eager, of_compiled, of_function, with_hooks, twice)
