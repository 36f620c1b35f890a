"""The `ctx` of an `autograd.Function`, and decorators that set a mode of autograd."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, Function
from torch.utils._contextlib import _DecoratorContextManager


def function_of_context(value: object) -> type[Function] | None:
    """Return the function whose context a value is; None for anything else.

    None too for a context that has saved tensors: only autograd itself gives it those.
    """
    if not issubclass(type(value), BackwardCFunction):
        return None
    context: Any = value
    try:
        saved = context._raw_saved_tensors  # without their hooks, which are the program's
    except RuntimeError:  # they were freed
        return None
    function: type[Function] | None = getattr(type(context), "_forward_cls", None)
    return None if saved else function


def new_context(function: Any, needs_input_grad: Sequence[bool]) -> object:
    """Return a context of a function as its forward gets it."""
    context = function._backward_cls()
    context.needs_input_grad = tuple(needs_input_grad)
    return context


def decorated(function: FunctionType) -> tuple[type, list[object], FunctionType] | None:
    """Return the context manager of torch that decorates a function, by its class and arguments,
    and the function itself.

    That is what `@torch.no_grad()` and its kind make. None for any other function, and for context
    managers whose arguments can't be told.
    """
    if function.__code__.co_name != "decorate_context":
        return None
    try:
        found = inspect.getclosurevars(function).nonlocals
    except ValueError:  # of a function of the program's own, that is not made yet
        return None
    clone, inner = found.get("ctx_factory"), found.get("func")
    if not isinstance(inner, FunctionType):
        return None
    context = getattr(clone, "__self__", None)
    if not isinstance(context, _DecoratorContextManager):
        return None
    given = vars(context).get("mode")
    if type(given) is bool:
        return type(context), [given], inner
    takes_none = type(context).clone is _DecoratorContextManager.clone
    return (type(context), [], inner) if takes_none else None


class _WithHistory(Function):
    """Returns a view of a tensor that has no gradients, as compiled code does."""

    @staticmethod
    def forward(
        ctx: Any, followed: torch.Tensor, base: torch.Tensor, *place: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # Of two results, since the creation of the only one says that it is.
        return base.as_strided(*place), followed.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return gradients[1], None, None, None, None


def view_with_history(base: torch.Tensor, *place: Any) -> torch.Tensor:
    """Return a view that requires gradients, and is no leaf, of a base that does not.

    `place` is its size, stride and offset.
    """
    with torch.enable_grad():
        followed = torch.ones((), requires_grad=True)
        view, _ = _WithHistory.apply(followed, base, *place)  # type: ignore[no-untyped-call]
    return view  # type: ignore[no-any-return]
