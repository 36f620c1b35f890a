"""Selective activation checkpointing: what the program's policy answers for each operator.

Lives here: the answers, which decide with what AOTAutograd splits a graph. The policy itself is
code of the program, and is called once for each operator, as without the recorder. Not here: the
split (`aot`), the call of the region (`subgraphs`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torchreel.events.aot import SavePolicy
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit, wrap

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

REGION = AttachPoint(
    "torch._higher_order_ops.wrap",
    "tag_activation_checkpoint_impl",
    "runs a region of activation checkpointing while a graph is traced",
)
CONTEXT = AttachPoint(
    "torch.utils.checkpoint",
    "_CachingTorchDispatchMode.__init__",
    "what asks the policy of a region, in an attribute `policy_fn`",
)
ATTACH_POINTS = (REGION, CONTEXT)
EVENTS: Events = {SavePolicy: (CONTEXT,)}


class _Here(threading.local):
    """The regions that this thread is in: the name of each, its number, whether it has a policy."""

    def __init__(self) -> None:
        self.regions: list[tuple[str, int, bool]] = []


_here = _Here()


def _region(recorder: Recorder, call: Call) -> Visit:
    from torchreel.torch_compat.counters import checkpoint_counter
    from torchreel.torch_compat.graph_calls.activation_checkpoints import has_policy, node_under_way

    outer = [name for name, *_ in _here.regions[-1:]]
    name = ".".join([*outer, node_under_way()])
    _here.regions.append((name, checkpoint_counter(), has_policy(call.args[0])))
    try:
        yield
    finally:
        _here.regions.pop()


def _context(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: object,
    error: BaseException | None,
) -> None:
    name, number, has_policy = _here.regions[-1] if _here.regions else ("", 0, False)
    if error is None and has_policy:
        context = args[0]
        context.policy_fn = wrap(context.policy_fn, Tap(CONTEXT, _Asked(name, number)))


class _Asked:
    """Notes each answer of one policy."""

    def __init__(self, region: str, run: int) -> None:
        self.region, self.run = region, run

    def __call__(
        self,
        recorder: Recorder,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        token: object,
        result: object,
        error: BaseException | None,
    ) -> None:
        from torchreel.torch_compat.graph_calls.activation_checkpoints import answer_of

        if error is None:
            recorder.note(SavePolicy(self.region, self.run, answer_of(result)), str(args[1]))


PROBES = (Probe(REGION, _region), Tap(CONTEXT, _context))
