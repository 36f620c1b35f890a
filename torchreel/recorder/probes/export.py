"""Export: `torch.export`, `aot_compile` and `make_fx`, which need not pass Dynamo.

Lives here: the compile that an export is, its dynamic shapes, what came of them, and what torch
suggests when they don't hold; the compiles that a function compiled ahead of time, and a direct
`make_fx`, are.  Not here: Dynamo's part of a strict export (a compile of its own), the nodes
(`proxies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel.events.export import ExportEnd, ExportFailure, ExportStart
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Visit
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes import bundles
from torchreel.store.addressing import UNNAMED

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry
    from torchreel.recorder.recorder import Recorder

EXPORT = AttachPoint("torch.export._trace", "_export", "every export, strict or not")
TRACE = AttachPoint(
    "torch.fx.experimental.proxy_tensor", "_MakefxTracer.trace", "a tracing that nothing is around"
)
MODULE = AttachPoint(
    "torch._functorch.aot_autograd", "aot_export_module", "decomposes an exported program"
)
DECOMPOSE = AttachPoint(
    "torch.export._trace", "_aot_export_joint_with_descriptors", "decomposes an exported program"
)
PROGRAM = AttachPoint(
    "torch.export.exported_program", "_decompose_exported_program",
    "an exported program that is about to be decomposed",
)  # fmt: skip
PRECOMPILE = AttachPoint(
    "torch._dynamo.aot_compile", "aot_compile_fullgraph",
    "a function that is compiled ahead of time: Dynamo, the backend, the guards",
)  # fmt: skip
ATTACH_POINTS = (EXPORT, PRECOMPILE, TRACE, MODULE, DECOMPOSE, PROGRAM)

EVENTS: Events = {
    ExportStart: (EXPORT,),
    ExportEnd: (EXPORT,),
    ExportFailure: (EXPORT,),
}

_FIXES = "Suggested fixes:"
"""Beginning of torch's list (ShapeEnv.produce_guards and torch.export.dynamic_shapes)."""


def _export(recorder: Recorder, call: Call) -> Visit:
    module = call.argument(0, "mod")
    entry = _entry(recorder, module, "export")
    span = recorder.enter("joint", "", entry)
    bundles.before_call(recorder, call, entry, bundles.of_export)
    here = recorder.spans.here
    outer = here.cause
    here.cause = _started(recorder, call, module)
    outcome = yield
    if outcome.error is None:
        _exported(recorder, outcome.result)
    elif isinstance(outcome.error, Exception):
        text = str(outcome.error)
        recorder.note(
            ExportFailure(exception=type(outcome.error).__name__, message=text, fixes=fixes(text))
        )
    here.cause = outer
    bundles.after_call(recorder, call, entry, outcome.error, bundles.of_export)
    recorder.leave(span, outcome.error)


def _precompile(recorder: Recorder, call: Call) -> Visit:
    """Record a function that is compiled ahead of time: its graph is compiled after Dynamo."""
    entry = _entry(recorder, call.argument(0, "model"), "aot_compile")
    span = recorder.enter("guards", "", entry)
    bundles.before_call(recorder, call, entry, bundles.of_precompile)
    outcome = yield
    bundles.after_call(recorder, call, entry, outcome.error, bundles.of_precompile)
    recorder.leave(span, outcome.error)


def _entry(recorder: Recorder, function: Any, how: str) -> CompileEntry:
    """Return a compile without a name: Dynamo, if it takes part, has one of its own."""
    code = _code(function)
    return recorder.add_compile(
        UNNAMED,
        next(recorder.spans.unnamed),
        backend=how,
        frame_name=_name(function),
        frame_file=code.co_filename if code is not None else "",
        frame_line=code.co_firstlineno if code is not None else 0,
    )


def _code(function: Any) -> Any:
    forward = getattr(type(function), "forward", function)
    return getattr(forward, "__code__", None)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _started(recorder: Recorder, call: Call, module: Any) -> int:
    from torchreel.recorder.event_log import describe

    arguments, keywords = call.argument(1, "args"), call.argument(2, "kwargs") or {}
    return recorder.note(
        ExportStart(
            strict=call.kwargs.get("strict", True),
            pre_dispatch=call.kwargs.get("pre_dispatch", False),
            arguments=describe.result(tuple(arguments)),
            keywords={str(name): describe.result(value) for name, value in keywords.items()},
            dynamic_shapes=_shapes(call.argument(3, "dynamic_shapes")),
            deferred=call.kwargs.get("prefer_deferred_runtime_asserts_over_guards", False),
        ),
        _name(module),
    )


def _shapes(shapes: Any) -> object:
    """Return dynamic shapes as data: dimensions by name and bounds, hints by their names."""
    if isinstance(shapes, dict):
        return {str(key): _shapes(value) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return tuple([_shapes(value) for value in shapes])
    if shapes is None or isinstance(shapes, (bool, int, str)):
        return shapes
    name = getattr(shapes, "__name__", None)
    if name is not None:
        return (str(name), _bound(shapes, "min"), _bound(shapes, "max"))
    kind = getattr(shapes, "type", None)
    return str(getattr(kind, "name", None) or type(shapes).__name__)


def _bound(dimension: Any, which: str) -> object:
    value = getattr(dimension, which, None)
    return value if isinstance(value, int) else None


def _exported(recorder: Recorder, program: Any) -> None:
    signature = program.graph_signature
    recorder.note(
        ExportEnd(
            nodes=len(program.graph.nodes),
            ranges=tuple(program.range_constraints.items()),
            inputs=[_specified(spec) for spec in signature.input_specs],
            outputs=[_specified(spec) for spec in signature.output_specs],
        )
    )
    _keep(recorder, program.graph_module)


def _specified(spec: Any) -> tuple[str, object, object]:
    return spec.kind.name.lower(), getattr(spec.arg, "name", None), spec.target


def _keep(recorder: Recorder, gm: Any) -> None:
    from torchreel.formats.graphs.codec import encode_graph

    with fail_open("exported graph"):
        if recorder.wants_graphs:
            recorder.add_graph("joint", "", encode_graph(gm))


def fixes(message: str) -> list[str]:
    """Return the changes of dynamic shapes that an error message of torch suggests, one a line."""
    _, found, rest = message.partition(_FIXES)
    lines = [line.strip() for line in rest.strip("\n").splitlines()] if found else []
    end = lines.index("") if "" in lines else len(lines)
    return lines[:end]


def _trace(recorder: Recorder, call: Call) -> Visit:
    """Return `make_fx` where no compile is under way; else it is a part of that."""
    if _is_inside(recorder):
        yield
        return
    span = recorder.enter("joint", "", _entry(recorder, call.args[1], "make_fx"))
    outcome = yield
    if outcome.error is None:
        _keep(recorder, outcome.result)
    recorder.leave(span, outcome.error)


def _is_inside(recorder: Recorder) -> bool:
    from torch._guards import CompileContext

    return recorder.spans.top is not None or CompileContext.try_get() is not None


def _decompose(recorder: Recorder, call: Call) -> Visit:
    """Record the decomposition of an exported program, where no compile is under way."""
    if _is_inside(recorder):
        yield
        return
    module = next(arg for arg in (*call.args, *call.kwargs.values()) if callable(arg))
    span = recorder.enter("joint", "", _entry(recorder, module, "aot_export"))
    outcome = yield
    # A graph with a backward in it has been kept already, by the probe of the stage.
    if outcome.error is None and not call.kwargs.get("trace_joint"):
        _keep(recorder, outcome.result[0])
    recorder.leave(span, outcome.error)


def _program(recorder: Recorder, call: Call) -> Visit:
    """Return the decomposition of an exported program: a compile that begins with a graph."""
    if _is_inside(recorder):
        yield
        return
    program = call.argument(0, "ep")
    entry = _entry(recorder, program.graph_module, "run_decompositions")
    span = recorder.enter("joint", "", entry)
    with fail_open("export checkpoint"):
        if recorder.wants_checkpoint:
            _add_checkpoint(recorder, call, program)
    outcome = yield
    if outcome.error is None:
        _keep(recorder, outcome.result.graph_module)
    recorder.leave(span, outcome.error)


def _add_checkpoint(recorder: Recorder, call: Call, program: Any) -> None:
    from torchreel.formats.checkpoints import decompositions
    from torchreel.formats.checkpoints.document import export_checkpoint
    from torchreel.formats.checkpoints.exported_programs import DecompositionRequest
    from torchreel.recorder.probes.shape_env import note_checkpoint
    from torchreel.torch_compat.tensors import fake_tensors

    names = ("cia_to_decomp", "python_decomp_table")
    tables = decompositions.Tables(*(call.kwargs.get(name) or {} for name in names))
    loss, triton = (
        call.kwargs.get(name) for name in ("joint_loss_index", "decompose_custom_triton_ops")
    )
    doc = export_checkpoint(DecompositionRequest(program, tables, loss, bool(triton)))
    own = decompositions.own(tables)
    recorder.add_checkpoint(bundles.with_objects(recorder, doc, more=own), "pre_grad")
    # No trace is under way yet, in which the ShapeEnv would be found.
    mode = fake_tensors.fake_mode_of(program.graph_module, ())
    note_checkpoint(recorder, mode.shape_env if mode is not None else None, doc.entry, "", 0)


PROBES = (
    Probe(PROGRAM, _program),
    Probe(EXPORT, _export),
    Probe(PRECOMPILE, _precompile),
    Probe(TRACE, _trace),
    Probe(MODULE, _decompose),
    Probe(DECOMPOSE, _decompose),
)
