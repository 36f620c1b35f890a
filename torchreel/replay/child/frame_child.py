"""The process of a replay of frames: loads bundles, lets Dynamo trace them, under the recorder.

Lives here: `python -m torchreel.replay.child.frame_child`, which reads one request (JSON) from
standard input.  Not here: starting it (`launch`), how a frame is traced (`frames.tracing`).  One
process traces frames one after the other, as the recorded one did: a recompile needs what was
compiled before.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchreel.errors import TorchreelError, UnsupportedError
from torchreel.replay.child.frames import patches
from torchreel.replay.child.stopping.hang import ending_when_hung
from torchreel.sandbox.processes import exit_quickly, follow_parent

if TYPE_CHECKING:
    from torchreel.replay.child.frames.bundles import LoadedFrame
    from torchreel.replay.child.frames.tracing import Frames
    from torchreel.store.documents.jsontypes import Json

_NEVER = 1 << 62
SOURCE_GUARD = "__import__('torch')"
"""Expression of the guard that the first compile has which needs the source of pytree's classes."""


@dataclass(frozen=True)
class SequenceStep:
    """One frame to trace."""

    id: int
    """The row of the recorded compile: a name comes again when the program resets Dynamo."""
    place: str
    """Its address in the store, for messages."""
    compile_id: str
    data: str
    """Path of a file with the pickle."""
    document: str
    """Path of a file with what stands beside it."""
    missing: str = ""
    wanted: bool = True
    """True if it is recorded: a recompile needs its history, and that only once."""
    backward: bool = False
    execute: bool = False
    execute_backward: str = ""
    compile_cpp: bool = False
    items: Sequence[tuple[Json, Json]] = ()
    """Sources of 0-d tensors whose values became symbols, and those values."""
    lookups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The outcome of each lookup in the fake-tensor cache, by stage (`fake_cache.Lookup`)."""
    traced_patterns: Sequence[str] = ()
    """Libraries of patterns that Inductor traced in this very compile."""
    traced_later: Sequence[str] = ()
    """Those that it traced in a later one: a cache gave the code of this one, so it had no need."""
    source_of_nodes: bool = False
    """True if an earlier compile had made the source of pytree's classes, and has its guard."""
    taken: Sequence[str] = ()
    """Names in the globals of the frame that earlier compiles had put there."""
    written: Sequence[str] = ()
    """The generated files that torch writes to its trace in this compile, and not before."""
    entries: Sequence[tuple[str, str]] = ()
    """The compiles whose code could not be reused, in the order in which Dynamo checked them.

    With each, the reason why its entry was void, if an object was gone; else ''.
    """
    remainders: Sequence[Json] = ()
    """Those that became known to be zero (`remainders.learned_in`)."""
    operators: Mapping[str, Json] = field(default_factory=dict)
    """Descriptions of operators that torch does not define, by their names.  A stand-in is made of
    one that the bundle does not have, as of an operator of a `torch.library.Library`."""


@dataclass(frozen=True)
class FrameRequest:
    """A request of the parent: the frames to trace, in order, and the store to record into."""

    steps: list[SequenceStep]
    report: str
    store: str
    replay_of: int
    entry: str = "frame"
    trust: bool = False
    imports: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The machine that the recorded process ran on (`facts.Facts`)."""
    compile_timeout: float | None = None
    sought: Mapping[str, Any] | None = None
    """The place to stop at (`time_travel.Sought`), in the one frame that is wanted."""

    @property
    def interactive(self) -> bool:
        """Return True if the replay stops for a prompt: then the child has the terminal."""
        return self.sought is not None and bool(self.sought["interactive"])


@dataclass
class FrameOutcome:
    """The outcome of one frame, beside its recording."""

    refused: str = ""
    substitute: str = ""
    """The backend that stood in for the recorded one."""
    span: list[int] = field(default_factory=lambda: [0, 0])
    """The times when it began and ended (`time.time_ns()`): its compiles lie between them."""
    notes: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    """The operators that this process lacked."""
    no_stand_in: str = ""
    """The reason why nothing stands in for an operator that this process lacks."""
    disordered: list[int] = field(default_factory=list)
    """Numbers of items of sets that have another order than they had."""
    frozen: bool = False
    """True if Inductor froze the weights (`freezing`): small ones are constants of the code."""


@dataclass
class FrameReport:
    """The report of the child, beside its recording; `outcomes` has the outcome of each compile."""

    finished: bool = False
    refused: str = ""
    notes: list[str] = field(default_factory=list)
    outcomes: dict[str, FrameOutcome] = field(default_factory=dict)
    stopped: Mapping[str, Any] | None = None
    """The place where it stopped (`time_travel.Stop`); None if it went on to its end."""

    def write(self, path: str) -> None:
        """Save, in one step."""
        Path(path).write_text(json.dumps(asdict(self)))


def main() -> None:
    """Carry out the request on standard input, or in the file that is named."""
    follow_parent()
    data = json.loads(Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read())
    request = FrameRequest(**{**data, "steps": [SequenceStep(**step) for step in data["steps"]]})
    report = FrameReport()
    try:
        _replay(request, report)
        report.finished = True
    except TorchreelError as error:
        report.refused = str(error)
    finally:
        report.write(request.report)


def _replay(request: FrameRequest, report: FrameReport) -> None:
    import torchreel.recorder.session as recording
    from torchreel.replay.child.frames.tracing import Frames
    from torchreel.replay.imposed import torch_machine
    from torchreel.replay.imposed.facts import Facts, device_notes, recorder_settings

    for name in request.imports:
        importlib.import_module(name)
    frames = Frames()
    facts = Facts(**request.facts)
    run = any(step.execute for step in request.steps)
    with ExitStack() as stack:
        # Before the recorder attaches: it is to see what Inductor learns of the machine.
        unlike = stack.enter_context(torch_machine.imposed(facts, run=run))
        report.notes += device_notes(facts)
        report.notes += [f"not imposed: {text}" for text in unlike]
        recorded = False
        for step in request.steps:
            if step.wanted and not recorded:
                recorded = True
                recorder = stack.enter_context(
                    recording.record(
                        request.store,
                        compile_timeout=request.compile_timeout,
                        settings=recorder_settings(facts, trust=request.trust),
                        kind="replay",
                        replay_of=request.replay_of,
                        entry=request.entry,
                    )
                )
                stack.enter_context(ending_when_hung(recorder, request.compile_timeout))
            outcome = report.outcomes[str(step.id)] = FrameOutcome()
            _step(step, request, frames, outcome, report)


def _step(
    step: SequenceStep,
    request: FrameRequest,
    frames: Frames,
    outcome: FrameOutcome,
    report: FrameReport,
) -> None:
    from torchreel.replay.child.frames.bundles import LoadedBundle
    from torchreel.replay.child.frames.tracing import unsupported

    bundle = LoadedBundle(
        Path(step.data).read_bytes(), Path(step.document).read_bytes(), step.missing, step.place
    )
    try:
        outcome.refused = unsupported(bundle.call)
        if not outcome.refused:
            _trace(step, bundle, request, frames, outcome, report)
    except TorchreelError as error:
        outcome.refused = str(error)


def _trace(
    step: SequenceStep,
    bundle: Any,
    request: FrameRequest,
    frames: Frames,
    outcome: FrameOutcome,
    report: FrameReport,
) -> None:
    from torchreel.formats.frames.parts import Opaque
    from torchreel.formats.operators import stand_ins
    from torchreel.replay import dynamo_names
    from torchreel.replay.accuracy.results import run_backward_as
    from torchreel.replay.child.frames.tracing import SUBSTITUTE, Substitute, imposed, run, trace
    from torchreel.replay.compare.verdict import NOT_RESTORED
    from torchreel.replay.imposed import remainders
    from torchreel.torch_compat import distributed
    from torchreel.torch_compat.autograd import aot
    from torchreel.torch_compat.inductor import code_generation

    call = bundle.call
    if call.world is not None:
        distributed.impose_world(*call.world)
    operators = {**bundle.operators, **step.operators}
    stand_ins.offer(operators)
    frame = _loaded(bundle)
    outcome.notes += frame.notes
    outcome.disordered += frame.disordered
    _stand_in(operators, outcome)
    if call.filtered and frame.guard_filter is None:
        raise UnsupportedError(
            "a function of the program's chose among the guards, and is not in the bundle"
        )
    if call.modes and (not frame.modes or Opaque in map(type, frame.modes)):
        raise UnsupportedError(f"torch function modes were active that were not kept: {call.modes}")
    function = frames.function(frame, step.compile_id)
    backend = frames.backend(call, request.imports)
    if isinstance(backend, Substitute):
        outcome.substitute = SUBSTITUTE
    dynamo_names.make_source_of_nodes(step.source_of_nodes)
    dynamo_names.void_entries(function.__code__, step.entries)
    with (
        imposed(call, step.compile_id, frame.config, trust=request.trust) as left,
        nullcontext() if step.compile_cpp else code_generation.without_cpp_compiler(),
        aot.backward_now(step.backward),
        dynamo_names.item_values(step.items),
        dynamo_names.order_of_entries(step.entries),
        dynamo_names.files_written(step.written),
        dynamo_names.taken_names(function.__globals__, step.taken),
        remainders.imposed(step.remainders),
        _patterns(step),
        _lookups(step),
    ):
        outcome.notes += [f"{NOT_RESTORED}{name}" for name in left]
        outcome.frozen = code_generation.is_freezing()
        outcome.span = [time.time_ns(), _NEVER]
        report.write(request.report)  # should the compile kill this process
        with _Failing(outcome), _stopping(step, request, frame, report):
            result = (run if step.execute else trace)(function, frame, call, backend)
            if step.execute_backward:
                given = [*frame.args, *frame.kwargs.values()]
                run_backward_as(step.execute_backward, result, given)
        outcome.span[1] = time.time_ns()


def _stand_in(operators: Mapping[str, Json], outcome: FrameOutcome) -> None:
    """Register stand-ins for the operators that neither this process nor the bundle defines."""
    from torchreel.formats.operators import stand_ins

    try:
        outcome.stand_ins += stand_ins.register(dict(operators))
    except TorchreelError as error:
        outcome.no_stand_in = str(error)


def _patterns(step: SequenceStep) -> AbstractContextManager[None]:
    """Trace the patterns that the recorded process had traced before, where it is recorded."""
    from torchreel.recorder.attach import active
    from torchreel.replay.imposed.pattern_libraries import pattern_libraries, put_off

    recorder = active()
    if recorder is None:
        return put_off(step.traced_later)
    return pattern_libraries(recorder, step.traced_patterns)


def _lookups(step: SequenceStep) -> AbstractContextManager[None]:
    """Have the fake-tensor cache return what it returned in the recorded process."""
    from torchreel.recorder.attach import active
    from torchreel.replay.imposed import fake_cache

    recorder = active()
    if recorder is None or not step.lookups:
        return nullcontext()
    return fake_cache.imposed(recorder, fake_cache.parsed(step.lookups))


def _loaded(bundle: Any) -> LoadedFrame:
    """Return the frame of a bundle.

    Raises `UnsupportedError` if the program's code raises an exception during the loading.
    """
    import torch

    try:
        # A module of the program may compile while it is imported: that is not to be replayed.
        with torch.compiler.set_stance("force_eager"):
            patches.take_out()
            frame: LoadedFrame = bundle.load()
            refused = patches.put(frame.patches)
    except TorchreelError:
        raise
    except Exception as error:
        reason = f"the frame can't be set up: {type(error).__name__}: {error!s:.200}"
        raise UnsupportedError(reason) from error
    notes = (f"{name} was changed by the program, and can't be changed here" for name in refused)
    return replace(frame, notes=(*frame.notes, *notes))


@contextmanager
def _stopping(
    step: SequenceStep, request: FrameRequest, frame: LoadedFrame, report: FrameReport
) -> Iterator[None]:
    """Stop at the place in the request, if there is one; the report has the stop."""
    from torchreel.recorder.attach import active

    recorder = active()
    if request.sought is None or not step.wanted or recorder is None:
        yield
        return
    from torchreel.recorder.event_log.failures import Stopped
    from torchreel.replay.child.stopping.prompt import Prompt
    from torchreel.replay.child.stopping.stops import Stops, parse, stop_report, watching
    from torchreel.replay.compare.time_travel import FRAME

    prompt = Prompt(lambda: _objects(frame), recorder) if request.interactive else None
    stops = Stops(parse(request.sought), FRAME, prompt.ask if prompt is not None else None)
    with suppress(Stopped), watching(recorder, stops):
        yield
    report.stopped = stop_report(stops)


def _objects(frame: LoadedFrame) -> dict[str, Any]:
    """Return the objects of a frame that a prompt offers, by name."""
    from torchreel.torch_compat.tensors import fake_tensors

    mode = fake_tensors.current_fake_mode()
    return {
        "graph": frame.function, "inputs": [*frame.args, *frame.kwargs.values()],
        "fake_mode": mode, "shape_env": getattr(mode, "shape_env", None),
    }  # fmt: skip


class _Failing:
    """End an exception of the compile here; it may be the recorded failure, and is an event."""

    def __init__(self, outcome: FrameOutcome) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, TorchreelError):
            return False
        from torchreel.recorder.session import note_uncaught

        note_uncaught(error)
        if not _was_recorded(error):
            self._outcome.notes.append(f"the call ended with {type(error).__name__}: {error}")
        return True


def _was_recorded(error: Exception) -> bool:
    """Return True if the recorder has this failure; the history of a recompile is not recorded."""
    from torchreel.recorder.attach import active

    recorder = active()
    return recorder is None or recorder.has_failed(error)


def parse(data: Mapping[str, Any]) -> FrameReport:
    """Return the report that a child wrote."""
    outcomes = {place: FrameOutcome(**found) for place, found in data["outcomes"].items()}
    return FrameReport(data["finished"], data["refused"], data["notes"], outcomes, data["stopped"])


if __name__ == "__main__":
    main()
    exit_quickly()
