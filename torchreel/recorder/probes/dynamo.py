"""Dynamo: frames, attempts, guards, and the graph that reaches the backend.

Lives here: one `compiles` row per attempt, the 'dynamo' and 'guards' stages, the `graph`
checkpoint.  Not here: what the backend does (`aot`, `inductor`).

`_compile` rather than `ConvertFrame.__call__` is the outermost point: above it, Dynamo looks at its
caller's frame to see whether tracing is disabled there, and must not find one of ours.
"""

from __future__ import annotations

import inspect
import linecache
import weakref
from collections.abc import Sequence
from tokenize import TokenError
from types import CellType, CodeType
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.event_log import failures
from torchreel.recorder.event_log.rows import Blob
from torchreel.recorder.event_log.spans import CompileEntry, GraphCall, current_context
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.frames import secrets
from torchreel.recorder.probes import bundles, generated_code

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_CONVERT = "torch._dynamo.convert_frame"
COMPILE = AttachPoint(_CONVERT, "_compile", "one frame: its code, its backend, its CompileId")
ATTEMPT = AttachPoint(_CONVERT, "trace_frame", "one attempt at a frame; a restart is another")
GUARDS = AttachPoint(_CONVERT, "DynamoOutput.build_guards", "the stage 'guards'")
BACKEND = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph._call_user_compiler",
    "the narrowest point before any backend: the Dynamo graph and its inputs",
)
RESET = AttachPoint("torch._dynamo", "reset", "names of compiles begin anew")
_CONTEXTS = (
    AttachPoint("torch._guards", "CompileContext", "which compile a thread works on"),
    AttachPoint("torch._guards", "TracingContext", "the user's stack, the fake mode"),
)
_EXCEPTIONS = tuple(
    AttachPoint("torch._dynamo.exc", name, "control flow of Dynamo is no failure")
    for name in (
        "RestartAnalysis",
        "SpeculationRestartAnalysis",
        "UnspecializeRestartAnalysis",
        "SkipFrame",
        "Unsupported",
        "UserError",
    )
)
_MODES = AttachPoint("torch._C", "_len_torch_function_stack", "whether modes see what we ask")
ATTACH_POINTS = (COMPILE, ATTEMPT, GUARDS, BACKEND, RESET, *_CONTEXTS, *_EXCEPTIONS, _MODES)
EVENTS: Events = {}


def _compile(recorder: Recorder, call: Call) -> Visit:
    code, backend = call.args[0], call.argument(5, "compiler_fn")
    frame = _frame_columns(code) | {"backend": backend_name(backend)}
    with fail_open("frame name"):
        frame["frame_name"] = _name(code, call.argument(4, "closure"))
    with fail_open("secrets"):
        _learn(recorder, call, code)
    entry = recorder.add_compile(call.kwargs["compile_id"], 0, **frame)
    entry.frame = _less_source(frame)
    span = recorder.enter_frame(entry)
    bundle = bundles.before(recorder, call, entry)
    outcome = yield
    recorder.leave(span, outcome.error, soft=_is_soft(call, outcome.error))
    entry.read |= span.entry.read
    if outcome.error is None:
        with fail_open("generated code"):
            generated_code.remember(outcome.result, code, span.entry)
    if bundle is not None:
        bundles.add_state(recorder, call, entry, bundle)
    bundles.after(recorder, call, span.entry, outcome.error)


def _learn(recorder: Recorder, call: Call, code: CodeType) -> None:
    """Let the redactor learn the secrets of a frame, so that no event repeats them."""
    scope, values, cells = (
        call.argument(1, "globals"), call.argument(2, "locals"), call.argument(4, "closure")
    )  # fmt: skip
    recorder.learn(secrets.of_frame(code, scope, values, cells or ()), code.co_filename)
    redactor = recorder.event_log.redactor
    if redactor is not None and redactor.is_strict:
        redactor.learn_texts((), secrets.constants(code, scope, values, cells or ()))


def _is_soft(call: Call, error: BaseException | None) -> bool:
    """Return True if `ConvertFrame.__call__` will let the frame run in eager mode instead."""
    if error is None or not failures.is_soft(error):
        return False
    box = call.kwargs.get("convert_frame_box")
    full_graph = call.argument(6, "one_graph") or getattr(box, "error_on_graph_break", False)
    return not full_graph


def _name(code: CodeType, closure: Sequence[CellType] | None) -> str:
    from torchreel.torch_compat.dynamo.code_objects import wrapped_name

    return wrapped_name(code, closure) or code.co_name


def _frame_columns(code: CodeType) -> dict[str, object]:
    return {
        "frame_name": code.co_name,
        "frame_file": code.co_filename,
        "frame_line": code.co_firstlineno,
        "frame_source": _source(code),
    }


def _source(code: CodeType) -> Blob | None:
    """Return the text of the frame, when it can be found.

    Not by `inspect.getsourcelines`, which resolves the paths of all imported modules: 0.1 s.
    """
    lines = linecache.getlines(code.co_filename)[max(code.co_firstlineno - 1, 0) :]
    try:
        return Blob("".join(inspect.getblock(lines))) if lines else None
    except (SyntaxError, TokenError):  # the file has changed since
        return None


def backend_name(backend: object) -> str:
    """Return the name of a backend: 'inductor', or that of a function."""
    for _ in range(10):
        name = getattr(backend, "compiler_name", None) or getattr(backend, "_compiler_name", None)
        # An object without a name of its own is shown with its address, which says nothing.
        if isinstance(name, str) and " at 0x" not in name:
            return name
        # torch.compile wraps an object in one that has its address for a name.
        inner = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(
            backend, "compiler_fn", None
        )
        if inner is None:
            break
        backend = inner
    return str(getattr(backend, "__name__", None) or type(backend).__name__)


def _attempt(recorder: Recorder, call: Call) -> Visit:
    frame = recorder.spans.top
    entry = recorder.entry_here()
    if frame is None or frame.entry is not entry:
        _describe_attempt(recorder, entry, call)
        # Around Dynamo's part of a strict export there is no frame: the span is the export's.
        if frame is not None and not frame.stage:
            frame.entry.open_spans, entry.open_spans = 0, 1
            frame.entry = entry
    span = recorder.enter("dynamo", entry=entry)
    outcome = yield
    # What goes wrong in here is Dynamo's own to handle, or leaves `_compile` as well.
    soft = outcome.error is not None and failures.is_soft(outcome.error)
    recorder.leave(span, outcome.error, soft=soft)
    if outcome.error is not None and failures.is_restart(outcome.error):
        recorder.finish(entry, "restarted")


def _describe_attempt(recorder: Recorder, entry: CompileEntry, call: Call) -> None:
    """Describe a later attempt: its row was made from its name alone."""
    backend = call.argument(5, "compiler_fn")
    columns = _frame_columns(call.args[0]) | {"backend": backend_name(backend)}
    recorder.update_compile(entry, **columns)
    entry.frame = _less_source(columns)


def _less_source(columns: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in columns.items() if name != "frame_source"}


def _guards(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("guards")
    outcome = yield
    recorder.leave(span, outcome.error)


def _backend(recorder: Recorder, call: Call) -> Visit:
    from torchreel.formats.checkpoints.document import graph_checkpoint
    from torchreel.torch_compat.dynamo.backends import compiles_whole_graphs

    graph, gm, inputs = call.args[0], call.argument(1, "gm"), call.argument(2, "example_inputs")
    span = recorder.enter("pre_grad", "", _entry_of(recorder, graph))
    with fail_open("graph checkpoint"):
        if recorder.wants_checkpoint:
            doc = graph_checkpoint(gm, inputs, graph.compiler_fn, graph.param_name_to_source)
            own = bundles.functions_of(doc, gm)
            recorder.add_checkpoint(
                bundles.with_objects(recorder, doc, graph.compiler_fn, own), "dynamo"
            )
    with fail_open("backend"):
        span.entry.call = GraphCall(id(gm), is_any=compiles_whole_graphs(graph.compiler_fn))
    outcome = yield
    span.entry.call = None
    recorder.leave(span, outcome.error)


# Which compile a graph was traced in, as long as torch may have it compiled once more; by the id
# of its OutputGraph, because it can't be hashed.
_traced: dict[int, tuple[weakref.ref[Any], CompileEntry]] = {}


def _entry_of(recorder: Recorder, graph: Any) -> CompileEntry:
    """Return the compile under way, or a new part of the one that traced this graph.

    For a size that `specialize_on` names, compiled code has its graph compiled once more.
    """
    key, context = id(graph), current_context()
    is_over = context is None or context.compile_id != graph.dynamo_compile_id
    if key in _traced and is_over:
        parent = _traced[key][1]
        return recorder.add_part(parent, **parent.frame)
    entry = recorder.entry_here("pre_grad")
    _traced[key] = (weakref.ref(graph, lambda _: _traced.pop(key, None)), entry)
    return entry


def _reset(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    recorder.spans.reset()


PROBES = (
    Tap(RESET, _reset),
    Probe(COMPILE, _compile, skips="skip"),
    Probe(ATTEMPT, _attempt),
    Probe(GUARDS, _guards),
    Probe(BACKEND, _backend),
)
