"""Compiler collectives: what the ranks of a job tell each other before they compile.

Lives here: what this rank saw, what every rank saw, and what was decided from it.  Not here: the
restart that follows, which is an attempt like any other (`frames`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel.events.collectives import CollectiveOutcome, GatheredState, LocalState, MergedState
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

GATHER = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.run_compiler_collective",
    "gathers the states of all ranks, and restarts",
)
MERGE = AttachPoint(
    "torch._dynamo.variables.builder",
    "process_automatic_dynamic",
    "what the attempt that follows makes of them, input by input",
)
ATTACH_POINTS = (GATHER, MERGE)

_STATE = (
    "what the rank's inputs are, by their Sources: `scalar`, `size` and `stride`, with 'dynamic' "
    "for what is to vary (or is no such thing at all), null for what is not known, and "
    "'size * stride of N' for a stride that another dimension makes"
)
EVENTS: Events = {
    LocalState: (GATHER,),
    GatheredState: (GATHER,),
    CollectiveOutcome: (GATHER,),
    MergedState: (MERGE,),
}

_RESTART = "CompileCollectiveRestartAnalysis"


def _gather(recorder: Recorder, call: Call) -> Visit:
    translator = call.args[0].root_tx
    shared = getattr(translator, "distributed_state", None)
    if shared is None or shared.all_states is not None:
        yield
        return
    group = shared.compile_pg
    local = recorder.note(
        LocalState(rank=group.rank(), size=group.size(), state=_states(shared.local_state))
    )
    recorder.event_log.hurry()
    outcome = yield
    here = recorder.spans.here
    outer, here.cause = here.cause, local
    try:
        _note_outcome(recorder, shared.all_states or (), outcome.error)
    finally:
        here.cause = outer


def _note_outcome(recorder: Recorder, found: Any, error: BaseException | None) -> None:
    states = [_states(state) for state in found]
    for rank, state in enumerate(states):
        recorder.note(GatheredState(rank, state))
    names = sorted({name for state in states for name in state})
    differing = tuple(
        name for name in names if any(state.get(name) != states[0].get(name) for state in states)
    )
    restarts = type(error).__name__ == _RESTART
    message = None if restarts or error is None else f"{type(error).__name__}: {error}"
    recorder.note(
        CollectiveOutcome(
            outcome="restart" if restarts else "failed", error=message, differing=differing
        )
    )


def _states(local_state: Any) -> dict[str, object]:
    """Return a copy of a rank's automatic-dynamic state, by Source: torch goes on writing to it."""
    return {str(name): _entry(entry) for name, entry in local_state.automatic_dynamic.items()}


def _entry(entry: Any) -> dict[str, object]:
    return {name: _cell(getattr(entry, name)) for name in ("scalar", "size", "stride")}


def _cell(value: Any) -> object:
    """Return a number, or the spelling of a placeholder: AutoDynamic, AutoUnset, InferStride."""
    if isinstance(value, tuple):
        return tuple(_cell(item) for item in value)
    kind = type(value).__name__
    if kind == "InferStride":
        return f"size * stride of {value.dim}"
    return {"AutoDynamic": "dynamic", "AutoUnset": None}.get(kind, value)


def _merge(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    shared = args[0].distributed_state
    if error is None and shared is not None and shared.all_states is not None:
        own, name = args[2], str(args[1])
        recorder.note(MergedState(_entry(own), _entry(result)), name)


PROBES = (Probe(GATHER, _gather), Tap(MERGE, _merge))
