"""Operators that a program defined with `torch.library.custom_op`: taken apart, and defined again.

Lives here: what torch keeps of such a definition.  Not here: how an operator is registered, as
facts (`dispatcher`), and what stands in for one from data (`formats.operators`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._library.simple_registry import singleton

_FUNCTIONS = ("_init_fn", "_abstract_fn", "_setup_context_fn", "_backward_fn")
_again: list[CustomOpDef] = []
"""Torch holds definitions weakly."""


def definition(value: object) -> CustomOpDef | None:
    """Return the definition of an operator, given as it or as an overload; None without one."""
    if type(value) is torch._ops.OpOverload:
        found = OPDEFS.get(value._schema.name)
        return found if found is not None and found._opoverload is value else None
    return value if type(value) is CustomOpDef else None


def definitions() -> Mapping[str, CustomOpDef]:
    """Return every definition by qualified name (`mylib::scale`)."""
    return dict(OPDEFS)


def place(found: CustomOpDef) -> tuple[str, str] | None:
    """Return the module that can be imported, and the name of a definition in it."""
    module = getattr(found._init_fn, "__module__", None)
    name = getattr(found._init_fn, "__name__", None)
    known = vars(sys.modules.get(str(module), sys)).get(str(name)) is found
    return (str(module), str(name)) if known and module != "__main__" else None


def identity(found: CustomOpDef) -> tuple[str, str, str, tuple[str, ...]]:
    """Return namespace, name, schema and the names of the tags."""
    return found._namespace, found._name, found._schema, tuple(tag.name for tag in found._tags)


def state(found: CustomOpDef) -> dict[str, Any]:
    """Return the functions that a definition has been given."""
    return {
        **{name: getattr(found, name, None) for name in _FUNCTIONS},
        "kernels": {device: _kernel(found, fn) for device, fn in found._backend_fns.items()},
        "vmap": getattr(found, "_vmap_fn", None),
        "dispatch": dict(getattr(found, "_torch_dispatch_fns", {})),
        "autocast": dict(getattr(found, "_autocast_dtype", {})),
        "source": singleton.find(found._qualname).fake_impl.kernel.source,
    }


def _kernel(found: CustomOpDef, wrapped: Any) -> Any:
    """Return the function that torch has wrapped so that a kernel can be switched off."""
    inner = getattr(wrapped, "_torchdynamo_orig_callable", wrapped)
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    cells = dict(zip(names, getattr(inner, "__closure__", None) or (), strict=False))
    return cells["fn"].cell_contents if "fn" in cells else found._init_fn


def define(namespace: str, name: str, schema: str, tags: tuple[str, ...]) -> CustomOpDef:
    """Return the definition of that name, which is made where there is none; its functions follow.

    Raises what torch does where the operator is already defined in another way.
    """
    found = OPDEFS.get(f"{namespace}::{name}")
    if found is None:
        known = tuple(tag for each in tags if (tag := getattr(torch.Tag, each, None)) is not None)
        found = CustomOpDef(namespace, name, schema, _undefined, known)
        _again.append(found)
    return found


def _undefined(*_: object, **__: object) -> None:
    raise RuntimeError("the functions of this operator have not been read yet")


def fill(found: CustomOpDef, given: Mapping[str, Any]) -> None:
    """Give a definition of `define` its functions; one that was there before keeps its own."""
    if found._init_fn is not _undefined:
        return
    for name in _FUNCTIONS:
        setattr(found, name, given[name])
    for device, kernel in given["kernels"].items():
        found.register_kernel(device)(kernel)
    if given["vmap"] is not None:
        found.register_vmap(given["vmap"])
    for cls, rule in given["dispatch"].items():
        found.register_torch_dispatch(cls, rule)
    for device, dtype in given["autocast"].items():
        found.register_autocast(device, dtype)
    # Torch says where it was registered, which is here.
    singleton.find(found._qualname).fake_impl.kernel.source = given["source"]
