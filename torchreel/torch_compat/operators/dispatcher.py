"""The operators that torch has registered, and their kernels."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import torch

from torchreel.torch_compat.patching import patched

if TYPE_CHECKING:
    from torchreel.store.documents.jsontypes import Json


@functools.cache
def aten_names() -> frozenset[str]:
    """Return the operators of torch's own namespace, by name, as they are registered."""
    names = torch._C._dispatch_get_all_op_names()
    found = (name.split(".")[0].partition("::") for name in names)
    return frozenset(name for namespace, _, name in found if namespace == "aten")


@functools.cache
def reference_names() -> frozenset[str]:
    """Return the reference implementations of operators, by qualified name: Dynamo traces some of
    them.
    """
    import torch._refs

    return frozenset(
        {*(f"torch._refs.{name}" for name in torch._refs.__all__), "torch._refs.tensor"}
    )


@functools.cache
def tensor_classes() -> Mapping[str, Callable[..., object]]:
    """Return the classes that a graph may call as constructors, by qualified name."""
    kept = (torch.Size, torch.Tensor, torch.nn.Parameter, *torch._tensor_classes)
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in kept}


def variable_functions() -> object:
    """Return the namespace of the operators bound as `torch.NAME` (no files, processes or
    libraries).
    """
    return torch._C._VariableFunctions


def higher_order_operators() -> Mapping[str, object]:
    """Return the registered higher-order operators, by name."""
    from torch._ops import _higher_order_ops

    return _higher_order_ops


def higher_order_operator(name: str) -> object | None:
    """Return a higher-order operator by its name.

    Torch imports the modules of some only where a program first uses them: all of its package for
    them are imported where one is missing.
    """
    if name not in higher_order_operators():
        _import_higher_order_operators()
    return higher_order_operators().get(name)


@functools.cache
def _import_higher_order_operators() -> None:
    import torch._higher_order_ops as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        with contextlib.suppress(ImportError):  # of another build of torch
            importlib.import_module(module.name)


def operator_name(operator: Any) -> str:
    """Return the name under which a higher-order operator is registered."""
    return str(operator.name())


def operator_by_name(namespace: str, packet: str) -> object | None:
    """Return an operator that is registered in this process, without loading anything."""
    if not _is_registered(f"{namespace}::{packet}"):
        return None
    return getattr(getattr(torch.ops, namespace), packet, None)


def _is_registered(name: str) -> bool:
    """Return True if an operator of that name is there; those registered later are looked for
    again.
    """
    if name not in _registered():
        _registered.cache_clear()
    return name in _registered()


@functools.cache
def _registered() -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in torch._C._dispatch_get_all_op_names())


_KERNELS = (
    "CPU", "CUDA", "Meta", "AutogradCPU", "AutogradCUDA", "Autograd", "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
)  # fmt: skip


def operator_facts(operator: torch._ops.OpOverload) -> dict[str, Json]:
    """Return the registration of an operator: its kernels, and the origin of each.

    `python`: by `torch.library.custom_op`; `fake`: with a fake kernel of its own; `autograd`: with
    a formula for its backward; `effect`: ordered by tokens; `decomposes`: AOTAutograd traces it
    through (a `triton_op`).
    """
    from torch._library.custom_ops import OPDEFS
    from torch._library.simple_registry import singleton
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    name = operator._schema.name
    defined = OPDEFS.get(name)
    entry = singleton.find(name)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    kernels = [key for key in _KERNELS if has(operator.name(), key)]  # type: ignore[no-untyped-call]
    formula = any(key.startswith("Autograd") for key in kernels)
    effect = getattr(entry, "effect", None)
    return {
        "kernels": [*kernels],
        "python": defined is not None,
        "fake": entry.fake_impl.kernel is not None,
        "autograd": formula if defined is None else defined._backward_fn is not None,
        "effect": getattr(getattr(effect, "effect", None), "name", None),
        "decomposes": entry.torch_dispatch_rules.find(FunctionalTensorMode) is not None,
    }


def register_effect(name: str, effect: str) -> None:
    """Order the calls of an operator by tokens, as `torch.library` does on demand."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    found = getattr(_EffectType, effect, None)
    if isinstance(found, _EffectType):
        _register_effectful_op(name, found)


def new_dynamic_size() -> object:
    """Return a size that depends on data, in a fake kernel; one that is known where there is no
    symbol.
    """
    return torch.library.get_ctx().new_dynamic_size(min=0)


def operator_path(value: Any) -> str | None:
    """Return the path of an operator below `torch.ops`; None for anything else."""
    # By type: isinstance would ask the program's own objects for their class.
    if issubclass(type(value), (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(value)
    if issubclass(type(value), torch._ops._OpNamespace):
        return str(value.__name__).removeprefix("torch.ops.")
    return None


def library_overloads(value: Any) -> list[torch._ops.OpOverload]:
    """Return the overloads of an operator that a library defines, given as one or as its packet.

    Empty for one of `torch.library.custom_op`, whose definition can be taken apart, and for
    anything else.
    """
    from torch._library.custom_ops import OPDEFS

    if isinstance(value, torch._ops.OpOverload):
        found = [value]
    elif isinstance(value, torch._ops.OpOverloadPacket):
        found = [getattr(value, name) for name in value.overloads()]  # type: ignore[no-untyped-call]
    else:
        return []
    return [one for one in found if one._schema.name not in OPDEFS]


def named_operators(names: Set[str], apart_from: Set[str]) -> list[torch._ops.OpOverload]:
    """Return the operators of libraries that code with these names may find in `torch.ops`.

    Not those of the namespaces in `apart_from`.
    """
    if "ops" not in names:
        return []
    found = set()
    for each in torch._C._dispatch_get_all_op_names():
        namespace, _, name = each.partition("::")
        name = name.partition(".")[0]
        if namespace in names - apart_from and name in names:
            found.add((namespace, name))
    packets = (operator_by_name(*each) for each in sorted(found))
    return [overload for packet in packets for overload in library_overloads(packet)]


def fake_kernel(operator: torch._ops.OpOverload) -> Callable[..., object] | None:
    """Return the fake kernel in Python of an operator; None where it has none."""
    from torch._library.simple_registry import singleton

    kernel = singleton.find(operator._schema.name).fake_impl.kernel
    return None if kernel is None else kernel.func


def aten_overloads() -> list[tuple[str, str]]:
    """Return the registered operators of torch's own namespace: name and overload."""
    names = [name.partition("::") for name in torch._C._dispatch_get_all_op_names()]
    parts = [name.partition(".") for namespace, _, name in names if namespace == "aten"]
    return sorted((packet, overload or "default") for packet, _, overload in parts)


def register_operators() -> None:
    """Import the modules of torch that register operators which a graph may hold.

    A program that compiled has imported them on the way; a fresh process has not.
    """
    import torch._higher_order_ops
    import torch._inductor.compile_fx
    import torch._inductor.inductor_prims
    import torch._prims.rng_prims  # noqa: F401


@contextlib.contextmanager
def libraries_noted(file: str, libraries: list[Any]) -> Iterator[None]:
    """Add each `torch.library.Library` that code of a file makes, by whichever function, to a list.

    One that a module makes when it is imported is not the file's.
    """
    made = torch.library.Library.__init__
    between = (torch.library.__file__, functools.__file__)  # which has `singledispatch`

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)  # type: ignore[no-untyped-call]
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in between:
            frame = frame.f_back
        if frame.f_code.co_filename == file:
            libraries.append(self)

    with patched(torch.library.Library, "__init__", noted):
        yield


def forget(libraries: list[Any]) -> None:
    """Take back what libraries registered: torch takes a namespace, and an operator, once."""
    while libraries:
        libraries.pop()._destroy()
