"""Inductor: the graph as it enters, after the post-grad passes, its lowering, its code.

Lives here: the `aot` checkpoint, and the stages
'post_grad', 'lowering' and 'codegen' (in which the C++ compiler runs).  Not here: what happens
inside of these (`inductor_events`), the generated source (`trace`: it comes with torch's own
structured trace, also when it was found in a cache), its execution (`run`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchreel.recorder.attach import AttachPoint, Call, Probe, Visit
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes import bundles, inductor_events
from torchreel.recorder.probes.inductor_events import EVENTS

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

__all__ = [
    "ATTACH_POINTS",
    "CODEGEN",
    "EVENTS",
    "INNER",
    "LOWERING",
    "MODULE",
    "POST_GRAD",
    "PRE_GRAD",
    "PROBES",
    "partition_of",
]  # fmt: skip

_COMPILE_FX = "torch._inductor.compile_fx"
_GRAPH = "torch._inductor.graph"
PRE_GRAD = AttachPoint(_COMPILE_FX, "_recursive_pre_grad_passes", "the stage 'pre_grad'")
INNER = AttachPoint(_COMPILE_FX, "_compile_fx_inner", "the ATen graph that enters Inductor")
POST_GRAD = AttachPoint(_COMPILE_FX, "_recursive_post_grad_passes", "the graph after the passes")
LOWERING = AttachPoint(_GRAPH, "GraphLowering.run", "the stage 'lowering'")
CODEGEN = AttachPoint(_GRAPH, "GraphLowering.codegen", "the stage 'codegen'")
MODULE = AttachPoint(_GRAPH, "GraphLowering.compile_to_module", "compiles and loads the code")
_RESULT = "torch._functorch._aot_autograd.aot_autograd_result"
CACHED = AttachPoint(
    _RESULT, "GenericAOTAutogradResult._load_and_post_compile", "code that comes from a cache"
)
CACHED_PART = AttachPoint(
    _RESULT, "FxGraphCacheLoadable.load", "the same for one partition, with its generated source"
)
ATTACH_POINTS = (
    PRE_GRAD, INNER, POST_GRAD, LOWERING, CODEGEN, MODULE, CACHED, CACHED_PART,
    *inductor_events.ATTACH_POINTS,
)  # fmt: skip


def partition_of(kwargs: dict[str, object]) -> str:
    """Return the partition of the AOT graph for which Inductor was called with these keywords."""
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"


def _stage(name: str) -> Callable[[Recorder, Call], Visit]:
    def visit(recorder: Recorder, call: Call) -> Visit:
        span = recorder.enter(name, recorder.partition())
        outcome = yield
        recorder.leave(span, outcome.error)

    return visit


def _pre_grad(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("pre_grad", recorder.partition())
    before = inductor_events.signature(call.argument(0, "gm"))
    outcome = yield
    # The passes call themselves for nested graphs: the outermost call is the stage's own.
    if outcome.error is None:
        inductor_events.note_family(recorder, "pre_grad", before, outcome.result, partition="")
    recorder.leave(span, outcome.error)


def _inner(recorder: Recorder, call: Call) -> Visit:
    from torchreel.formats.checkpoints.document import aot_checkpoint

    partition = partition_of(call.kwargs)
    stage = "backward" if partition == "backward" else "forward"
    span = recorder.enter(stage, partition)
    with fail_open("aot checkpoint"):
        gm, inputs = call.argument(0, "gm"), call.argument(1, "example_inputs")
        if recorder.wants_checkpoint:
            doc = aot_checkpoint(gm, inputs, call.kwargs)
            recorder.add_checkpoint(bundles.with_objects(recorder, doc), stage)
    outcome = yield
    recorder.leave(span, outcome.error)


def _post_grad(recorder: Recorder, call: Call) -> Visit:
    from torchreel.formats.graphs.codec import encode_graph

    span = recorder.enter("post_grad", recorder.partition())
    before = inductor_events.signature(call.argument(0, "gm"))
    outcome = yield
    if outcome.error is None:
        inductor_events.note_family(recorder, "post_grad", before, call.argument(0, "gm"))
    # The passes call themselves for nested graphs: only the outermost call has a row of its own.
    if outcome.error is None and span.ref is not None and recorder.wants_graphs:
        with fail_open("post_grad graph"):
            doc = encode_graph(call.argument(0, "gm"))
            recorder.add_graph("post_grad", span.partition, doc)
    recorder.leave(span, outcome.error)


def _cached(recorder: Recorder, call: Call) -> Visit:
    partition = "inference" if call.args[0].compiled_bw is None else "forward"
    span = recorder.enter("codegen", partition)
    outcome = yield
    # A miss is raised as an exception, and handled by compiling after all.
    recorder.leave(span, outcome.error, soft=True)


def _cached_part(recorder: Recorder, call: Call) -> Visit:
    backward = call.args[0]._is_backward()
    span = recorder.enter("codegen", "backward" if backward else recorder.partition())
    outcome = yield
    recorder.leave(span, outcome.error, soft=True)


PROBES = (
    Probe(PRE_GRAD, _pre_grad),
    Probe(INNER, _inner),
    Probe(POST_GRAD, _post_grad),
    Probe(LOWERING, _stage("lowering")),
    Probe(CODEGEN, _stage("codegen")),
    Probe(MODULE, _stage("codegen")),
    Probe(CACHED, _cached),
    Probe(CACHED_PART, _cached_part),
    *inductor_events.PROBES,
)
