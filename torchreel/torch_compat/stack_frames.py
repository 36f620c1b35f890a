"""Finds the objects of the compiler in stack frames: graphs, lowerings, tracers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

from torch.fx import GraphModule


def nearest_graph(frames: Sequence[FrameType]) -> GraphModule | None:
    """Return the graph module that the innermost of some frames works on."""
    from torch.fx import Graph

    for frame in frames:
        for value in frame.f_locals.values():
            if isinstance(value, GraphModule):
                return value
            if isinstance(value, Graph) and isinstance(value.owning_module, GraphModule):
                return value.owning_module
            module = getattr(value, "module", None) if _lowering(value) else None
            if isinstance(module, GraphModule):
                return module
    return None


def nearest_lowering(frames: Sequence[FrameType]) -> object:
    """Return the GraphLowering that the innermost of some frames works on, if there is one."""
    values = (value for frame in frames for value in frame.f_locals.values())
    return next((value for value in values if _lowering(value)), None)


def nearest_tracer(frames: Sequence[FrameType]) -> object:
    """Return Dynamo's translator of the innermost frame that it is tracing, if it traces one."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    values = (value for frame in frames for value in frame.f_locals.values())
    return next((v for v in values if isinstance(v, InstructionTranslatorBase)), None)


def _lowering(value: object) -> bool:
    graph = sys.modules.get("torch._inductor.graph")
    return graph is not None and isinstance(value, graph.GraphLowering)
