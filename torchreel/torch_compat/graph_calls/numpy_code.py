"""Dynamo's tracing of NumPy code: the functions that it knows, and its wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch


def numpy_functions() -> dict[str, Callable[..., object]]:
    """Return the functions and scalar types of `torch._numpy` that NumPy has too, by qualified
    name.
    """
    from torch._dynamo import utils as dynamo_utils

    found = {}
    for numpy, ours in dynamo_utils.NP_TO_TNP_MODULE.items():
        for name, value in vars(ours).items():
            own = str(getattr(value, "__module__", "")).startswith("torch._numpy.")
            scalar = isinstance(value, type) and issubclass(value, torch._numpy._dtypes.generic)
            if own and (scalar or isinstance(value, FunctionType)) and hasattr(numpy, name):
                found[f"{ours.__name__}.{name}"] = value
    return found


def array_methods() -> frozenset[str]:
    """Return the names of the methods of `torch._numpy`'s arrays."""
    from torch._numpy._ndarray import ndarray

    return frozenset(
        name for name, value in vars(ndarray).items() if isinstance(value, FunctionType)
    )


def numpy_wrapped(target: object) -> tuple[str, object]:
    """Return the kind of Dynamo's NumPy wrapper, and what it wraps; else ("", None)."""
    if getattr(target, "__module__", "") != "torch._dynamo.utils":  # before that is imported for it
        return "", None
    from torch._dynamo import utils as dynamo_utils

    if target is dynamo_utils.numpy_attr_wrapper:
        return "attribute", None
    if type(target) is dynamo_utils.numpy_to_tensor_wrapper:
        return "function", target.f
    if type(target) is dynamo_utils.numpy_operator_wrapper:
        return "operator", target.op
    if type(target) is dynamo_utils.numpy_method_wrapper:
        return "method", target.method
    return "", None


def numpy_wrapper(kind: str, wrapped: Any) -> Callable[..., object]:
    """Wrap a function, an operator or a method as Dynamo does for NumPy code."""
    from torch._dynamo import utils as dynamo_utils

    if kind == "attribute":
        return dynamo_utils.numpy_attr_wrapper
    wrappers: Mapping[str, Any] = {
        "function": dynamo_utils.numpy_to_tensor_wrapper,
        "operator": dynamo_utils.numpy_operator_wrapper,
        "method": dynamo_utils.numpy_method_wrapper,
    }
    return wrappers[kind](wrapped)  # type: ignore[no-any-return]
