"""The contexts of a compile: its id, its tracing context, the attributes of its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import torch
import torch._guards
from torch._guards import CompileContext, CompileId, Source, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule

__all__ = ["CompileContext", "CompileId", "Source", "TracingContext", "tracing"]


def subgraph_name() -> str | None:
    """Return the name of the region that regional compilation is at: torch's trace records have
    it.
    """
    from torch.fx import traceback

    find = getattr(traceback, "_get_regional_inductor_subgraph_name", None)  # since 2.13
    name = find() if find is not None else None
    return name if isinstance(name, str) else None


def mark_as_dynamo_graph(graph: GraphModule, sources: Mapping[str, Any]) -> None:
    """Set Dynamo's attributes on a graph: they tell AOTAutograd which inputs are static."""
    from torch._dynamo.output_graph import GraphCompileReason

    graph._param_name_to_source = dict(sources)  # type: ignore[assignment]
    # Backends that explain graphs collect the reasons of graph breaks.
    graph.compile_subgraph_reason = GraphCompileReason("replayed", [], graph_break=False)  # type: ignore[assignment]
    # OutputGraph.install_subgraph: the bodies of higher-order operators are known by these names.
    for path, module in graph.named_modules():
        if path and isinstance(module, GraphModule):
            module.__name__ = path.rpartition(".")[2]


def compile_context(compile_id: object, attempt: int = 0) -> Any:
    """Return the recorded compile id and attempt, as the current ones."""
    if compile_id is None:
        return contextlib.nullcontext()
    context = CompileContext(CompileId.from_string(str(compile_id)))
    context.attempt = attempt
    return torch._guards.compile_context(context)


@contextlib.contextmanager
def tracing_context(
    mode: FakeTensorMode, aot_name: list[str] | None = None, donated: list[int] | None = None
) -> Iterator[None]:
    """Set the context that Dynamo sets around a backend, for the length of a `with`.

    `aot_name` is the name of the graph that AOTAutograd sets around Inductor, `donated` the inputs
    of a backward graph that Inductor may overwrite, from AOTAutograd's metadata.
    """
    from torch._inductor.virtualized import V

    context = TracingContext(mode)
    with ExitStack() as stack:
        stack.enter_context(torch._guards.tracing(context))
        if aot_name is not None:
            context.aot_graph_name = aot_name
            if donated is not None:
                context.fw_metadata = SimpleNamespace(bw_donated_idxs=donated)  # type: ignore[assignment]
            stack.enter_context(V.set_fake_mode(mode))
            stack.enter_context(torch.no_grad())
        yield
