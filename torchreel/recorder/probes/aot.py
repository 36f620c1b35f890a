"""AOTAutograd: the joint graph, and the graphs that are handed to the compilers.

Lives here: the stages 'joint', 'forward' and 'backward', and their graphs.  Not here: what Inductor
makes of them (`inductor`).  Serves every backend that is built on AOTAutograd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.recorder.attach import AttachPoint, Call, Probe, Visit
from torchreel.recorder.guard import fail_open
from torchreel.recorder.kinds import Kind

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_COMPILE = "torch._functorch._aot_autograd.graph_compile"
STATE = AttachPoint(
    "torch._functorch.aot_autograd", "create_aot_state", "runs the function for its metadata"
)
JOINT = AttachPoint(_COMPILE, "aot_dispatch_autograd_graph", "traces the joint graph")
BASE = AttachPoint(_COMPILE, "aot_dispatch_base_graph", "traces the graph without autograd")
PARTITION = AttachPoint(_COMPILE, "_aot_stage2a_partition", "splits the joint graph")
FORWARD = AttachPoint(
    _COMPILE, "_aot_stage2b_compile_forward_or_inference", "the forward or inference graph"
)
BACKWARD = AttachPoint(_COMPILE, "_aot_stage2b_bw_compile", "the backward graph")
ATTACH_POINTS = (STATE, JOINT, BASE, PARTITION, FORWARD, BACKWARD)
KINDS: tuple[Kind, ...] = ()


def _add_graph(recorder: Recorder, stage: str, partition: str, gm: object) -> None:
    import torch

    from torchreel.store.portable.graphs import encode_graph

    with fail_open(f"{stage} graph"):
        if isinstance(gm, torch.fx.GraphModule):
            recorder.add_graph(stage, partition, encode_graph(gm))


def _tracing(recorder: Recorder, call: Call) -> Visit:
    span = recorder.enter("joint")
    outcome = yield
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
    recorder.leave(span, outcome.error)


PROBES = (
    Probe(STATE, _tracing),
    Probe(JOINT, _joint),
    Probe(BASE, _tracing),
    Probe(PARTITION, _tracing),
    Probe(FORWARD, _forward),
    Probe(BACKWARD, _backward),
)
