"""Operators of a program's own, of every form that torch offers, and functions that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("reeltest", "FRAGMENT")


@torch.library.custom_op("reeltest::twist", mutates_args=())
def twist(x: Tensor, k: int) -> Tensor:
    return x.flip(0) * k


@twist.register_fake
def _(x: Tensor, k: int) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1]


def _back(ctx: Any, grad: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return twist_back(grad, x) * ctx.k, None


twist.register_autograd(_back, setup_context=_keep)


@torch.library.custom_op("reeltest::twist_back", mutates_args=())
def twist_back(grad: Tensor, x: Tensor) -> Tensor:
    return grad.flip(0) + 0 * x


@twist_back.register_fake
def _(grad: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(grad)


@torch.library.custom_op("reeltest::fill", mutates_args=("x",))
def fill(x: Tensor, value: float) -> None:
    x.fill_(value)


@torch.library.custom_op("reeltest::split", mutates_args=())
def split(x: Tensor, parts: list[int]) -> list[Tensor]:
    return [t.clone() for t in x.split(parts)]


@split.register_fake
def _(x: Tensor, parts: list[int]) -> list[Tensor]:
    return [x.new_empty((n, *x.shape[1:])) for n in parts]


@torch.library.custom_op("reeltest::shifted", mutates_args=())
def shifted(x: Tensor, by: list[int]) -> Tensor:
    return x.roll(by, list(range(len(by))))


@shifted.register_fake
def _(x: Tensor, by: list[int]) -> Tensor:
    return torch.empty_like(x)


shifted.register_autograd(
    lambda ctx, grad: (grad.roll([-one for one in ctx.by], list(range(len(ctx.by)))), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
)


@torch.library.custom_op("reeltest::join", mutates_args=())
def join(tensors: list[Tensor], scale: float | None = None) -> Tensor:
    return torch.cat(tensors) * (scale or 1.0)


@join.register_fake
def _(tensors: list[Tensor], scale: float | None = None) -> Tensor:
    return tensors[0].new_empty((sum(t.shape[0] for t in tensors), *tensors[0].shape[1:]))


@torch.library.custom_op("reeltest::moments", mutates_args=())
def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(0), x.t().contiguous().t()


@moments.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[1]), x.new_empty(x.shape[::-1]).t()


_library.define("where(Tensor x) -> Tensor")
_library.impl("where", lambda x: x.nonzero().to(x.dtype).contiguous(), "CPU")


@torch.library.register_fake("reeltest::where", lib=_library)
def _(x: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()))


_library.define("count(Tensor x) -> SymInt", tags=[torch.Tag.pt2_compliant_tag])
_library.impl("count", lambda x: int((x > 0).sum()), "CPU")


@torch.library.register_fake("reeltest::count", lib=_library)
def _(x: Tensor) -> Any:
    return torch.library.get_ctx().new_dynamic_size()


_library.define("scale(Tensor x, float factor) -> Tensor")


@torch.library.impl(_library, "scale", "CompositeExplicitAutograd")
def _scale(x: Tensor, factor: float) -> Tensor:
    return torch.mul(x, factor)


torch.library.register_autograd(
    "reeltest::scale",
    lambda ctx, grad: (torch.ops.reeltest.scale(grad, ctx.factor), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    lib=_library,
)

_library.define("say(Tensor x) -> Tensor")
_library.impl("say", lambda x: x.clone(), "CPU")


@torch.library.register_fake("reeltest::say", lib=_library)
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


torch.library._register_effectful_op("reeltest::say", torch._library.effects.EffectType.ORDERED)

_library.define("add_one_(Tensor(a!) x) -> Tensor(a!)")
_library.impl("add_one_", lambda x: x.add_(1), "CPU")
_library.impl("add_one_", lambda x: x, "Meta")


_library.define("itself(Tensor x) -> Tensor")
_library.impl("itself", lambda x: x, "CompositeExplicitAutograd")
_library.define("tail(Tensor x, int n) -> Tensor")
_library.impl("tail", lambda x, n: x[n:].t(), "CPU")
_library.impl("tail", lambda x, n: x[n:].t(), "Meta")
_library.define("turned(Tensor(a) x) -> Tensor(a)")
_library.impl("turned", lambda x: x.t(), "CompositeExplicitAutograd")


@torch.library.custom_op("reeltest::halves", mutates_args=())
def halves(x: Tensor) -> list[Tensor]:
    return [x[:2].clone(), x[2:].clone()]


@halves.register_fake
def _(x: Tensor) -> list[Tensor]:
    new = torch.empty_like(x)
    return [new[:2], new[2:]]


def itself(x: Tensor) -> Any:
    return torch.ops.reeltest.itself(x), torch.ops.reeltest.tail(x, 1), x + 1


def written(x: Tensor) -> Any:
    y = x * 2
    torch.ops.reeltest.itself(y).add_(1)
    torch.ops.reeltest.tail(y, 1).mul_(2)
    return y + 1


def turned(x: Tensor) -> Any:
    return torch.ops.reeltest.turned(x * 2) + 1


def halved(x: Tensor) -> Any:
    one, other = halves(x + 1)
    return one * 2, other * 3


def trained(x: Tensor) -> Tensor:
    return (twist(x.sin(), 3) * x).sum()


def scaled(x: Tensor) -> Tensor:
    return torch.ops.reeltest.scale(x.cos(), 2.0).sum()


def rolled(x: Tensor) -> Tensor:
    return shifted(x.sin(), [1, 2]).sum()


def filled(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    fill(y, 2.0)
    return x + y


def parts(x: Tensor) -> Tensor:
    a, b = split(x, [1, 3])
    return join([a, b, x.relu()], 0.5).sum(0)


def many(x: Tensor) -> Any:
    mean, same = moments(x)
    return mean + 1, same * 2


def unbacked(x: Tensor) -> Tensor:
    return torch.ops.reeltest.where(x).sum()


def counted(x: Tensor) -> Tensor:
    return torch.zeros(torch.ops.reeltest.count(x)) + 1


def said(x: Tensor) -> Tensor:
    return torch.ops.reeltest.say(torch.ops.reeltest.say(x) + 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (trained, scaled, rolled, filled, parts, many, unbacked, counted, said)
}
"""Those whose results share no memory with an argument or with each other."""
ALIASING: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (itself, written, turned, halved)
}
