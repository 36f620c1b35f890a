"""The backend of a compile: what it is called, its options, and the program's own code in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
import torch._guards
from torch.fx import GraphModule

from torchreel.errors import UntrustedError
from torchreel.torch_compat.configs import config_modules, non_default_entries
from torchreel.torch_compat.dynamo import debugging_backends
from torchreel.torch_compat.inductor import added_entries


def objects_of_compile(backend: object) -> dict[str, object]:
    """Return the program's own code that decides a compile, by name.

    It is in config entries (`inductor.post_grad_custom_post_pass`) and options (`options.NAME`)
    that hold no plain value, and in the backend (`backend`), if that is none of torch's.
    """
    found = objects_of_config()
    name, options = backend_of(backend)
    found |= {f"options.{key}": value for key, value in options.items() if _holds_code(value)}
    return {**found, "backend": _innermost(backend)} if ":" in name else found


def objects_of_config() -> dict[str, object]:
    """Return the entries of configs, and of Inductor's tables, that hold the program's own code or
    objects, by name.
    """
    found = {
        f"{module}.{key}": value
        for module, config in config_modules().items()
        for key, value in non_default_entries(config).items()
        if _holds_code(value)
    }
    return found | added_entries.own_entries()


_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _holds_code(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_holds_code, value))
    if isinstance(value, dict):
        return any(map(_holds_code, value.values()))
    return not isinstance(value, _PLAIN_VALUES)


def _innermost(backend: object) -> object:
    """Return the callable that the program gave, without torch's wrappers around it."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    return backend.compiler_fn if isinstance(backend, torch._TorchCompileWrapper) else backend


def identity_of(backend: object) -> tuple[int, str]:
    """Return the id of the callable that the program gave, and its name where it is a function.

    Code that was compiled for one backend is not used again for another one of the same name.
    """
    inner = _innermost(backend)
    return id(inner), inner.__name__ if type(inner) is FunctionType else ""


def forget_backends_of(module: str) -> None:
    """Forget the backends that a module registered: torch takes each name once."""
    from torch._dynamo.backends.registry import _BACKENDS, _COMPILER_FNS

    for name, function in [*_COMPILER_FNS.items()]:
        if getattr(function, "__module__", "") == module:
            del _COMPILER_FNS[name]
            _BACKENDS.pop(name, None)


def backend_of(backend: object) -> tuple[str, dict[str, Any]]:
    """Return a backend's portable name and the options of its `torch.compile` call."""
    from torch._dynamo.backends.registry import _COMPILER_FNS

    inner = backend
    while hasattr(inner, "_torchdynamo_orig_backend"):
        inner = inner._torchdynamo_orig_backend
    if inner is None or isinstance(inner, torch._TorchCompileInductorWrapper):
        return "inductor", dict(getattr(inner, "config", {}) or {})
    if isinstance(inner, torch._TorchCompileWrapper):
        inner = inner.compiler_fn
    for name, function in _COMPILER_FNS.items():
        if function is inner:
            return name, {}
    module = getattr(inner, "__module__", type(inner).__module__)
    name = f"{module}:{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    if debugging_backends.calls_another(name):
        called = getattr(inner, "backend", None)
        name += f"({called if isinstance(called, str) else backend_of(called)[0]})"
    return name, {}


def compiles_whole_graphs(backend: object) -> bool:
    """Return True if a backend is torch's own: it compiles the graph that it gets as a whole."""
    module = getattr(_innermost(backend), "__module__", "")
    return ":" not in backend_of(backend)[0] and module.partition(".")[0] == "torch"


def dynamic_of(backend: object) -> bool | None:
    """Return the argument `dynamic` of the `torch.compile` call of a backend."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    found = getattr(backend, "dynamic", None)
    return found if isinstance(found, bool) else None


def backend(name: str, options: Mapping[str, object]) -> Callable[..., Any]:
    """Return a backend of torch's own by name: a registered one, or one for debugging.

    Raises `UntrustedError` for any other: a backend is code.
    """
    from torch._dynamo.backends.registry import list_backends, lookup_backend

    if name == "inductor":
        return torch._TorchCompileInductorWrapper("default", dict(options), None)  # type: ignore[no-untyped-call]
    made = debugging_backends.make(name, lambda inner: backend(inner, {}))
    if made is not None:
        return made  # type: ignore[no-any-return]
    if ":" in name or name not in list_backends(exclude_tags=()):
        raise UntrustedError(
            f"the recorded backend {name!r} is not one of torch's own; "
            "name the module that registers it with --import MODULE, or add --trust to run what "
            "the store holds of it"
        )
    return lookup_backend(name)


def before_backend(graph: GraphModule) -> GraphModule:
    """Return a graph after the passes that Dynamo runs between its checkpoint and the backend.

    Regions that the program marked are inlined, by default those that are used once
    (OutputGraph._call_user_compiler).
    """
    from torch._dynamo import config

    every, single = (
        getattr(config, name, False)
        for name in ("inline_invoke_subgraph", "inline_single_use_invoke_subgraph")
    )
    if not (every or single):
        return graph
    from torch._higher_order_ops.passes import inline_invoke_subgraph as passes

    inline = passes.inline_invoke_subgraph if every else passes.inline_single_use_invoke_subgraph
    return inline(graph)
