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
_MOST_DEEP = 16


def names_of(kernel: Any, deep: int = 0) -> dict[str, Json]:
    """Return the global names of a kernel (`triton.JITFunction`) that have a form here."""
    function: FunctionType = kernel.fn
    found: dict[str, Json] = {}
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__ and deep < _MOST_DEEP:
            form = _form(function.__globals__[name], deep)
            if form is not None:
                found[name] = form
    return found


def value_form(value: object) -> Json:
    """Return the form of an argument: itself if it is plain, else as that of a global name."""
    if value is None or type(value) in _PLAIN:
        return value  # type: ignore[return-value]
    return _form(value, 0) or str(value)


def _form(value: Any, deep: int) -> Json:
    if isinstance(value, ModuleType):
        return ["module", value.__name__]
    if type(value) in _PLAIN:
        return ["value", value]
    if type(value).__name__ == "constexpr" and type(value.value) in _PLAIN:
        return ["constexpr", value.value]
    if hasattr(value, "src") and hasattr(value, "fn"):
        return ["kernel", value.src, names_of(value, deep + 1)]
    if type(value).__name__ == "dtype":
        return ["attribute", "triton.language", _dtype_name(value)]
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(module, str) and isinstance(name, str) and module.startswith("triton"):
        return ["attribute", module, name]
    return None


def _dtype_name(value: Any) -> str:
    import triton.language as tl

    return next((name for name in dir(tl) if getattr(tl, name) is value), str(value))
