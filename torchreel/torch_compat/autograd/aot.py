"""AOTAutograd: its entry points, the graph under way, its descriptors."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch.fx.experimental.symbolic_shapes as symbolic_shapes
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.utils import _pytree as pytree


@cache
def record_classes() -> dict[str, type]:
    """Return AOTAutograd's descriptors, and the keys of the paths at which unbacked symbols are
    bound.
    """
    import torch._functorch._aot_autograd.descriptors as descriptors

    keys = (
        pytree.SequenceKey, pytree.MappingKey, pytree.GetAttrKey, symbolic_shapes.ConvertIntKey,
        symbolic_shapes.CallMethodKey, symbolic_shapes.InnerTensorKey, symbolic_shapes.DivideByKey,
    )  # fmt: skip
    own = {
        name: value
        for name, value in vars(descriptors).items()
        if isinstance(value, type) and value.__module__ == descriptors.__name__
    }
    return {**own, **{key.__name__: key for key in keys}}


def aot_graph_name() -> list[str]:
    """Return the name of the AOT graph under way (`0_forward`): it stands in the output code."""
    from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name

    context = TracingContext.try_get()
    stack = getattr(context, "aot_graph_name", None) if context is not None else None
    return [str(name) for name in stack] if stack else [str(get_aot_graph_name())]


def donated_inputs() -> list[int] | None:
    """Return the inputs of a backward graph whose memory Inductor may reuse (saved, and dead after
    it).
    """
    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    donated = getattr(metadata, "bw_donated_idxs", None)
    return None if donated is None else [int(index) for index in donated]


def backward_now(wanted: bool) -> Any:
    """Compile the backward graph together with the forward one."""
    if not wanted:
        return contextlib.nullcontext()
    from torch._functorch import config

    return config.patch(force_non_lazy_backward_lowering=True)


def aot_alone(given: Mapping[str, Any], graph: GraphModule, inputs: Sequence[object]) -> object:
    """AOTAutograd for a graph that a backend compiles apart; what it makes runs as it is."""
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import aot_autograd

    known = inspect.signature(aot_autograd.aot_module_simplified).parameters
    kwargs = {name: value for name, value in given.items() if value or name in known}
    compiler: Any = boxed_nop
    return aot_autograd.aot_module_simplified(graph, inputs, fw_compiler=compiler, **kwargs)
