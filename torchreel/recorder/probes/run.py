"""The compiled code's own execution: the stage 'run', and errors of later calls.

Lives here: the first call of every graph that Inductor compiled, and the attribution of uncaught
exceptions: of what any backend returned, of compiled backwards, and that a compile was forbidden
(`set_stance("fail_on_recompile")`).  Not here: anything on the path of later calls: the first call
that succeeds puts the original function back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from torchreel.patterns import lazy_text
from torchreel.recorder import attach, failing_open
from torchreel.recorder.attach import (
    AttachPoint,
    Call,
    Events,
    Probe,
    Tap,
    Visit,
    unwind,
)
from torchreel.recorder.event_log.spans import CompileEntry, Mark, Span
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes import aot_events, generated_code
from torchreel.recorder.probes.inductor import partition_of
from torchreel.recorder.probes.output_graph import GLOBAL
from torchreel.store.addressing import UNNAMED
from torchreel.torch_compat.patching import hide_frame

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

POST_COMPILE = AttachPoint(
    "torch._inductor.output_code",
    "CompiledFxGraph.post_compile",
    "the last step before a graph can be called, compiled or from a cache; `current_callable` is "
    "the attribute that every call looks up",
)
ATTACH_POINTS = (POST_COMPILE, GLOBAL)
_TWICE = "CompiledFunctionBackward.backward"
"""Called by AOTAutograd to differentiate a compiled backward, which it refuses."""
_NAMED_FRAME = lazy_text(r"filename: '(.*?)', function name: '(.*?)', line number: (\d+)")
EVENTS: Events = {}

# Which graph object belongs to which compile; by id, because it can't be hashed.
_origins: dict[int, tuple[weakref.ref[Any], CompileEntry, str]] = {}


def _post_compile(recorder: Recorder, call: Call) -> Visit:
    graph = call.args[0]
    entry = recorder.entry_here()
    outcome = yield
    if outcome.error is None and graph.current_callable is not None:
        partition = _partition(recorder, call)
        _remember(graph, entry, partition)
        graph.current_callable = _first_call(graph, entry, partition)


def _partition(recorder: Recorder, call: Call) -> str:
    kwargs = dict(call.argument(3, "graph_kwargs") or {})
    return partition_of({**(call.args[0].fx_kwargs or {}), **kwargs})


def _remember(graph: Any, entry: CompileEntry, partition: str) -> None:
    key = id(graph)
    _origins[key] = (weakref.ref(graph, lambda _: _origins.pop(key, None)), entry, partition)


def _first_call(graph: Any, entry: CompileEntry, partition: str) -> Callable[[Any], Any]:
    """Return a stand-in for the compiled function, until it has run once."""
    original: Callable[[Any], Any] = graph.current_callable
    owner = weakref.ref(graph)

    def run(inputs: Any) -> Any:
        recorder = attach.active()
        span = None if recorder is None or recorder.busy else _enter(recorder, entry, partition)
        try:
            result = original(inputs)
        except BaseException as error:
            _leave(recorder, span, error)
            hide_frame(error)
            raise
        _leave(recorder, span, None)
        _restore(owner, run, original)
        return result

    return run


def _restore(owner: weakref.ref[Any], stand_in: object, original: object) -> None:
    with fail_open("run"):
        graph = owner()
        if graph is not None and graph.current_callable is stand_in:
            graph.current_callable = original


def _enter(recorder: Recorder, entry: CompileEntry, partition: str) -> Span | None:
    span, depth = None, len(recorder.spans.here.stack)
    try:
        with fail_open("run"):
            failing_open.check("run")
            span = recorder.enter("run", partition, entry)
            recorder.event_log.commit("run")
    except BaseException as error:
        unwind(recorder, depth, "run", error)
        raise
    return span


def _leave(recorder: Recorder | None, span: Span | None, error: BaseException | None) -> None:
    if recorder is None or span is None:
        return
    with fail_open("run"):
        recorder.leave(span, error)


def note_uncaught(recorder: Recorder, error: Exception) -> None:
    """Write down an exception of a later call: of compiled code, or that it may not be compiled."""
    if recorder.has_failed(error) or isinstance(error, StopIteration):
        return
    frames = list(_frames(error))
    if (refused := _of_repeated_backward(frames)) is not None:
        recorder.add_failure(error, Mark(id(error), *refused))
    elif found := [origin for frame in frames if (origin := _of_frame(frame)) is not None]:
        entry, partition = found[-1]  # the innermost
        recorder.add_failure(error, Mark(id(error), entry, "run", partition))
    elif (own := generated_code.of_error(error)) is not None:
        recorder.add_failure(error, Mark(id(error), own, "run", ""))
    elif frames and _forbids(frames[-1]):
        columns = _named_frame(str(error))
        entry = recorder.add_compile(UNNAMED, next(recorder.spans.unnamed), **columns)
        recorder.add_failure(error, Mark(id(error), entry, "dynamo", ""))


def _frames(error: Exception) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _forbids(frame: FrameType) -> bool:
    """Return True if Dynamo raises in this frame because it may not compile another one."""
    code = frame.f_code
    return code.co_name == "fail_callback" and code.co_filename.endswith("_dynamo/eval_frame.py")


def _named_frame(message: str) -> dict[str, object]:
    """Return the frame that Dynamo's message names; the frame itself is gone, and its object
    unsafe.
    """
    found = _NAMED_FRAME.search(message)
    if found is None:
        return {}
    file, name, line = found.groups()
    return {"frame_file": file, "frame_name": name, "frame_line": int(line)}


# Dynamo's prefix of the name under which a frame calls its compiled graph.
_GRAPH_NAME = "__compiled_fn"
# What holds compiled code while it runs: the local variable, by the function that has it.
_HOLDERS = {
    "CompiledFxGraph.__call__": "self",
    "DisableContext.__call__.<locals>._fn": "fn",
}
# AOTAutograd's functions around a compiled backward, the innermost first, and what finds it.
_CHECKING = ["_check", "_check_with"]
"""The functions in which torch._check raises."""
_BACKWARD_RUN = "CompiledFunction._backward_impl"
_BACKWARDS: dict[str, Callable[[FrameType], Any]] = {
    _BACKWARD_RUN: lambda frame: frame.f_locals.get("backward_compiler"),
    "CompiledFunction.backward": lambda frame: _backward_compiler(
        frame.f_locals["CompiledFunction"]._backward_impl
    ),
    _TWICE: lambda frame: _backward_compiler(frame.f_locals["ctx"]._forward_cls.forward),
}


def _backward_compiler(function: Any) -> Any:
    """Find the compiler of a backward in the closures of AOTAutograd's functions that run it."""
    if isinstance(function, partial):  # in a context of its own
        function = function.args[0]
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if "backward_compiler" in cells:
        return cells["backward_compiler"].cell_contents
    inner = next(cells[name] for name in ("impl_fn", "_impl_") if name in cells)
    return _backward_compiler(inner.cell_contents)


def _of_backward(frame: FrameType) -> tuple[CompileEntry, str] | None:
    """Return the compile whose backward AOTAutograd runs in a frame, and the partition; else None.

    The partition is `DOUBLE_BACKWARD` where the backward is to be differentiated again.
    """
    name = frame.f_code.co_qualname.rpartition("<locals>.")[2]
    if name not in _BACKWARDS:
        return None
    from torchreel.store.failures.signature import DOUBLE_BACKWARD

    with fail_open("run"):
        entry = aot_events.of_backward(_BACKWARDS[name](frame))
        if entry is not None:
            return entry, DOUBLE_BACKWARD if name == _TWICE else "backward"
    return None


def _of_repeated_backward(frames: list[FrameType]) -> tuple[CompileEntry, str, str] | None:
    """Return the compile whose backward was refused because the program keeps its graph.

    AOTAutograd checks that itself, where the backward has donated buffers.
    """
    if len(frames) < 3 or [frame.f_code.co_name for frame in frames[-2:]] != _CHECKING:
        return None
    caller = frames[-3]
    if not caller.f_code.co_qualname.endswith(_BACKWARD_RUN):
        return None
    from torchreel.store.failures.signature import REPEATED_BACKWARD

    if caller.f_locals.get("saved_tensors_use_once") is not False:
        return None
    found = _of_backward(caller)
    return None if found is None else (found[0], "run", REPEATED_BACKWARD)


def _of_frame(frame: FrameType) -> tuple[CompileEntry, str] | None:
    """Return the compile whose code a frame runs, and the partition; None if it runs none."""
    if (found := _of_backward(frame)) is not None:
        return found
    name = frame.f_code.co_qualname
    holder = frame.f_locals.get(_HOLDERS[name]) if name in _HOLDERS else None
    known = _origins.get(id(holder))
    return known[1:] if known is not None and known[0]() is holder else None


def _install(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    """Remember the compiled graph that a frame calls, whatever the backend returned."""
    name, value = args[1:3]
    if error is None and name.startswith(_GRAPH_NAME):
        compiled = getattr(value, "_torchdynamo_orig_callable", None)
        if compiled is not None:
            _remember(compiled, recorder.entry_here("pre_grad"), "")


PROBES = (Probe(POST_COMPILE, _post_compile), Tap(GLOBAL, _install))
