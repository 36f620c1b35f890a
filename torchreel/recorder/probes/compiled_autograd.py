"""Compiled autograd: the backward of the autograd engine as one graph.

Lives here: the capture (a compile of its own, `!0`), what
it lifts to inputs, the order of the engine's nodes, hooks.  Not here: how Dynamo compiles the graph
(an ordinary compile, `!0/1/0`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torchreel.events.compiled_autograd import (
    AutogradCapture,
    AutogradGraph,
    AutogradHook,
    AutogradNode,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.failing_open import fail_open

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry, Span
    from torchreel.recorder.recorder import Recorder

_MODULE = "torch._dynamo.compiled_autograd"
BEGIN = AttachPoint(
    _MODULE, "AutogradCompilerInstance.begin_capture", "what the graph takes, and its CompileId"
)
END = AttachPoint(_MODULE, "AutogradCompilerInstance.end_capture", "the graph is complete")
ORIGIN = AttachPoint(
    _MODULE, "AutogradCompilerInstance.set_node_origin", "each node that the engine calls, in order"
)
HOOK = AttachPoint(_MODULE, "AutogradCompilerInstance.proxy_call_hook", "each Python hook")
CPP_HOOK = AttachPoint(
    _MODULE, "AutogradCompilerInstance.cpp_tensor_pre_hook", "each hook that is C++"
)
SIZES = AttachPoint(
    _MODULE, "AutogradCompilerInstance.remove_unused_sizes", "which sizes the graph needs"
)
GRAPH = AttachPoint(_MODULE, "AutogradCompilerInstance.create_graph_module", "the graph itself")
ATTACH_POINTS = (BEGIN, END, ORIGIN, HOOK, CPP_HOOK, SIZES, GRAPH)

EVENTS: Events = {
    AutogradCapture: (BEGIN,),
    AutogradNode: (ORIGIN,),
    AutogradHook: (HOOK, CPP_HOOK),
    AutogradGraph: (GRAPH, SIZES),
}

_open: dict[int, Span] = {}
"""The captures under way, by the id of their instance: each is taken out when it is closed."""
_used: dict[int, list[int]] = {}


def _begin(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    capture: AutogradCapture | None,
    result: Any,
    error: BaseException | None,
) -> None:
    """Begin as a tap, because what a probe opens is closed when its function returns."""
    if error is not None or capture is None:
        return
    instance = args[0]
    entry = recorder.entry_here()
    recorder.update_compile(entry, backend="", frame_name="backward")
    _open[id(instance)] = recorder.enter("backward", "", entry)
    # Closed by torch in every case, also when the capture fails.
    instance.stack.callback(_closed(recorder, id(instance), entry))
    recorder.note(capture, entry.compile_id)


def _lifted(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AutogradCapture:
    """Return inputs, sizes and scalars with their origins, before they are replaced by fakes."""
    from torchreel.recorder.event_log import describe

    _, inputs, sizes, scalars, origins, accumulate, check_nans = args
    of_inputs, of_sizes, of_scalars = origins
    return AutogradCapture(
        inputs=[(*origin, describe.result(value)) for value, origin in _paired(inputs, of_inputs)],
        sizes=[(*origin, value) for value, origin in _paired(sizes, of_sizes)],
        scalars=[(*origin, type(value).__name__) for value, origin in _paired(scalars, of_scalars)],
        accumulate_grad=accumulate,
        check_nans=check_nans,
    )


def _paired(values: Any, origins: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each value with its origin, where torch keeps those."""
    for index, value in enumerate(values):
        yield value, origins[index] if index < len(origins) else (None, "")


def _closed(recorder: Recorder, key: int, entry: CompileEntry) -> Callable[[], None]:
    """Return a function that ends a capture, as a failed one if nothing has completed it."""

    def close() -> None:
        with fail_open(str(END)):
            span = _open.pop(key, None)
            _used.pop(key, None)
            if span is not None:
                recorder.finish(entry, "failed")
                recorder.leave(span)

    return close


def _end(recorder: Recorder, call: Call) -> Visit:
    span = _open.pop(id(call.args[0]), None)
    outcome = yield
    if span is not None:
        recorder.leave(span, outcome.error)


def _origin(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    _, name, index, function = args
    forward = getattr(function, "_forward_cls", None)
    made = f"{forward.__name__}{getattr(forward, '_aot_id', '')}" if forward is not None else None
    recorder.note(AutogradNode(index, made), name)


def _hook(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    taken = args[1].node.args
    index = taken[1] if len(taken) > 1 and isinstance(taken[1], int) else None
    recorder.note(AutogradHook(index), str(kwargs.get("hook_type", "")))


def _cpp_hook(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    recorder.note(AutogradHook(args[2]), "cpp_tensor_pre_hook")


def _sizes(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None:
        _used[id(call.args[0])] = sorted(outcome.result)


def _graph(recorder: Recorder, call: Call) -> Visit:
    from torchreel.formats.graphs.codec import encode_graph

    outcome = yield
    if outcome.error is not None:
        return
    used = _used.pop(id(call.args[0]), None)
    recorder.note(AutogradGraph(len(outcome.result.graph.nodes), used), str(call.args[1]))
    with fail_open("compiled autograd graph"):
        recorder.add_graph("backward", "", encode_graph(outcome.result))


PROBES = (
    Tap(BEGIN, _begin, _lifted),
    Probe(END, _end),
    Tap(ORIGIN, _origin),
    Tap(HOOK, _hook),
    Tap(CPP_HOOK, _cpp_hook),
    Probe(SIZES, _sizes),
    Probe(GRAPH, _graph),
)
