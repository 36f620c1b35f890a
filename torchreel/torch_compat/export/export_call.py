"""The call of torch.export, or of `aot_compile`, that a bundle holds, in the place of a frame.

Lives here: the functions whose code and arguments are kept.  Not here: when they are kept (the
recorder's probes), and how they are called again (`torchreel.replay.child.frames`).
"""

from __future__ import annotations

from typing import Any

from torchreel.torch_compat.versions.names import TorchName

EXPORT = TorchName("torch.export._trace", "_export", "what torch.export.export calls")
OPTIONS = (
    "strict",
    "preserve_module_call_signature",
    "pre_dispatch",
    "prefer_deferred_runtime_asserts_over_guards",
)
"""The keywords of `_export` that decide what it does."""


def export_again(
    mod: Any, args: Any, kwargs: Any, dynamic_shapes: Any, options: dict[str, Any]
) -> Any:
    """Export a module as it was exported; cloudpickle keeps this function by its code."""
    from torch.export import _trace

    return _trace._export(mod, args, kwargs, dynamic_shapes, **options)


PRECOMPILE = TorchName(
    "torch._dynamo.aot_compile",
    "aot_compile_fullgraph",
    "what `aot_compile` calls",
)


def precompile_again(
    model: Any,
    example_inputs: Any,
    guard_filter: Any,
    backend: str,
    options: dict[str, Any],
    dynamic: bool | None,
) -> Any:
    """Compile a function ahead of time as it was; cloudpickle keeps this function by its code."""
    from torch._dynamo import aot_compile, hooks

    from torchreel.torch_compat.dynamo import backends

    return aot_compile.aot_compile_fullgraph(
        model, example_inputs, hooks.Hooks(guard_filter_fn=guard_filter),
        backends.backend(backend, options), dynamic,
    )  # fmt: skip
