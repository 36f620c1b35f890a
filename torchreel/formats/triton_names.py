"""The global names that a Triton kernel uses, as data: ["module", "triton.language"].

The forms are ["module", NAME], ["attribute", MODULE, NAME], ["value", VALUE], ["constexpr", VALUE],
and ["kernel", SOURCE, {its own names}] for another kernel.  Not here: making a kernel of them
(`replay.child.triton_kernels`).
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from torchreel.store.documents.jsontypes import Json

_PLAIN = (bool, int, float, str)
_MOST = 256


def names_of(kernel: Any, left: list[int] | None = None) -> dict[str, Json]:
    """Return the global names of a kernel (`triton.JITFunction`) that have a form here.

    `left` holds how many more there may be: kernels that call each other are written out.
    """
    left = [_MOST] if left is None else left
    function: FunctionType = kernel.fn
    found: dict[str, Json] = {}
    for name in sorted(set(function.__code__.co_names)):
        left[0] -= 1
        if name in function.__globals__ and left[0] > 0:
            form = _form(function.__globals__[name], left)
            if form is not None:
                found[name] = form
    return found


def value_form(value: object) -> Json:
    """Return the form of an argument: itself if it is plain, else as that of a global name."""
    if value is None or type(value) in _PLAIN:
        return value  # type: ignore[return-value]
    return _form(value, [_MOST]) or str(value)


def _form(value: Any, left: list[int]) -> Json:
    if isinstance(value, ModuleType):
        return ["module", value.__name__]
    if type(value) in _PLAIN:
        return ["value", value]
    if type(value).__name__ == "constexpr" and type(value.value) in _PLAIN:
        return ["constexpr", value.value]
    if hasattr(value, "src") and hasattr(value, "fn"):
        return ["kernel", value.src, names_of(value, left)]
    if type(value).__name__ == "dtype":
        return ["attribute", "triton.language", _dtype_name(value)]
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(module, str) and isinstance(name, str) and module.startswith("triton"):
        return ["attribute", module, name]
    return None


def _dtype_name(value: Any) -> str:
    import triton.language as tl

    return next((name for name in dir(tl) if getattr(tl, name) is value), str(value))
