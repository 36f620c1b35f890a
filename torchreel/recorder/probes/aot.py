"""AOTAutograd: the joint graph, and the graphs that are handed to the compilers.

Lives here: the stages 'joint', 'forward' and 'backward'
with their graphs, and what AOTAutograd found out about views and mutations (`aot_events`).  Not
here: what Inductor makes of them (`inductor`).  Serves every backend that is built on AOTAutograd,
and `aot_function` without any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.recorder.attach import AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes import aot_events
from torchreel.recorder.probes.aot_events import (
    BACKWARD,
    BASE_GROUPS,
    BASES,
    BW_COMPILER,
    DEDUPE,
    EVENTS,
    LATE,
    PARTITION,
    STATE,
)

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

__all__ = ["ATTACH_POINTS", "BACKWARD", "EVENTS", "PARTITION", "PROBES", "STATE"]

_COMPILE = "torch._functorch._aot_autograd.graph_compile"
JOINT = AttachPoint(_COMPILE, "aot_dispatch_autograd_graph", "traces the joint graph")
BASE = AttachPoint(_COMPILE, "aot_dispatch_base_graph", "traces the graph without autograd")
FORWARD = AttachPoint(
    _COMPILE, "_aot_stage2b_compile_forward_or_inference", "the forward or inference graph"
)
FUNCTION = AttachPoint(
    "torch._functorch._aot_autograd.runtime_wrappers",
    "AOTDispatchAutograd.post_compile",
    "makes the autograd function of two graphs, compiled or from a cache",
)
ATTACH_POINTS = (
    STATE, DEDUPE, BASES, BASE_GROUPS, JOINT, BASE, PARTITION, FORWARD, BACKWARD, LATE, BW_COMPILER,
    FUNCTION,
)  # fmt: skip


def _add_graph(recorder: Recorder, stage: str, partition: str, gm: object) -> None:
    import torch

    from torchreel.formats.graphs.codec import encode_graph

    with fail_open(f"{stage} graph"):
        if recorder.wants_graphs and isinstance(gm, torch.fx.GraphModule):
            recorder.add_graph(stage, partition, encode_graph(gm))


def _tracing(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("joint")
    outcome = yield
    recorder.leave(span, outcome.error)


def _state(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("joint")
    outcome = yield
    if outcome.error is None:
        aot_events.note_metadata(recorder, outcome.result)
    recorder.leave(span, outcome.error)


def _partition(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("joint")
    outcome = yield
    if outcome.error is None:
        aot_events.note_partition(recorder, call, outcome.result)
    recorder.leave(span, outcome.error)


def _joint(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("joint")
    outcome = yield
    if outcome.error is None:
        _add_graph(recorder, "joint", "", outcome.result[0])
    recorder.leave(span, outcome.error)


def _forward(recorder: Recorder, call: Call) -> Visit:
    partition = "inference" if call.kwargs.get("is_inference") else "forward"
    span = recorder.enter("forward", partition)
    _add_graph(recorder, "forward", partition, call.argument(0, "fw_module"))
    outcome = yield
    recorder.leave(span, outcome.error)


def _backward(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("backward", "backward")
    _add_graph(recorder, "backward", "backward", call.argument(0, "bw_module"))
    outcome = yield
    if outcome.error is None:
        aot_events.expect_backward(outcome.result[0], span.entry)
    recorder.leave(span, outcome.error)


PROBES = (
    Probe(STATE, _state),
    Probe(DEDUPE, aot_events.dedupe),
    Probe(BASES, aot_events.synthetic_bases),
    Probe(JOINT, _joint),
    Probe(BASE, _tracing),
    Probe(PARTITION, _partition),
    Probe(FORWARD, _forward),
    Probe(BACKWARD, _backward),
    Probe(LATE, aot_events.late_backward),
    Tap(FUNCTION, aot_events.autograd_function),
)
