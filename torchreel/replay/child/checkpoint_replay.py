"""One replay from a checkpoint, in the process that was made for it and gave up all else.

Lives here: restoring the checkpoint, and running its stage under the recorder.  Not here: the
process, which imports this once it is confined (`checkpoint_child`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType

import torchreel.recorder.session as recording
from torchreel import sandbox
from torchreel.errors import TorchreelError, UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.operators import stand_ins
from torchreel.recorder.event_log.failures import Stopped
from torchreel.recorder.event_log.spans import GraphCall, Mark
from torchreel.recorder.probes.shape_registry import shadow_of
from torchreel.recorder.recorder import Recorder
from torchreel.replay.accuracy.comparison import Difference, compare
from torchreel.replay.accuracy.results import run_backward, run_backward_as
from torchreel.replay.child import checks, restore
from torchreel.replay.child.checkpoint_request import Report, Request
from torchreel.replay.child.restore import Restored
from torchreel.replay.child.stopping.hang import ending_when_hung
from torchreel.replay.child.stopping.prompt import Prompt
from torchreel.replay.child.stopping.stops import Stops, parse, stop_report, watching
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.verdict import NOT_RECORDED, NOT_RESTORED, stand_in_note
from torchreel.replay.imposed import fake_cache, pattern_libraries, remainders, torch_machine
from torchreel.replay.imposed.facts import Facts, device_notes, recorder_settings
from torchreel.store.failures.raised import lineage
from torchreel.store.failures.signature import REPEATED_BACKWARD
from torchreel.torch_compat.inductor import code_generation


def replay(request: Request, report: Report) -> None:
    """Restore the checkpoint of a request, and run its stage; what is lost is in the report.

    Raises TorchreelError where that is refused.
    """
    facts = Facts(**request.facts)
    doc = _document(request)
    checks.check_config(request.changed, trust=request.trust)
    with (
        torch_machine.without_other_programs() if request.folder else nullcontext(),
        torch_machine.imposed(facts, run=request.execute or request.compare) as unlike,
        restore.imposed(doc, trust=request.trust, attempt=request.attempt) as left,
        nullcontext() if request.compile_cpp else code_generation.without_cpp_compiler(),
    ):
        checks.check_devices(request.devices)
        restored = restore.restore(doc, trust=request.trust)
        report.stand_ins += restore.stand_in_for(doc)
        report.notes += map(stand_in_note, report.stand_ins)
        report.notes += device_notes(facts)
        report.notes += [f"not imposed: {text}" for text in unlike]
        report.notes += [f"{NOT_RESTORED}{name}" for name in left]
        report.notes += [f"not restored: {text}" for text in sorted(set(restored.lost))]
        _run_recorded(request, report, restored, facts)


def _document(request: Request) -> CheckpointDoc:
    doc = CheckpointDoc.from_bytes(Path(request.checkpoint).read_bytes())
    if doc.extra.get("aot_compilation"):
        raise UnsupportedError(
            "this compile is AOTInductor's: what it makes has the weights in it, and they are not "
            "in the event log, so it is not replayed; a torch.compile of the same model is."
        )
    return restore.with_static_inputs(doc, request.static_inputs)


def _run_recorded(request: Request, report: Report, restored: Restored, facts: Facts) -> None:
    """Run the stage under a recorder, which writes into the store of the request."""
    lookups = fake_cache.parsed(request.lookups)
    with (
        recording.record(
            request.store,
            compile_timeout=request.compile_timeout,
            settings=recorder_settings(facts, trust=request.trust),
            kind="replay",
            replay_of=request.replay_of,
            entry=request.entry,
        ) as recorder,
        ending_when_hung(recorder, request.compile_timeout),
        _seen_before(recorder, restored, request),
        _stopping(recorder, restored, request, report),
        fake_cache.imposed(recorder, lookups, _replacements(restored, request)),
        remainders.imposed(request.remainders),
        _OneCompile(recorder, restored) as replayed,
    ):
        for document in (*request.before, request.checkpoint):
            recorder.keep_words_of(Path(document).read_bytes())
        report.write(request.report)  # should the stage kill this process
        compiled = restore.run(restored, backward=request.backward, trust=request.trust)
        report.notes += [
            f"{NOT_RECORDED}the backward of {name} (code from a cache has no joint graph)"
            for name in stand_ins.guessed()
        ]
        if request.compare:
            with recorder.spans.here.unrecorded():  # eager's run is not of the compile
                expected = restore.results_of(restored.doc)
            _note(recorder, compare(expected, restore.results_of(restored.doc, compiled)))
        elif request.execute:
            replayed.execute(request, compiled)


def _replacements(restored: Restored, request: Request) -> list[tuple[object, object]]:
    """Return those of symbols that the checkpoint has, as SymPy."""
    known = restored.symbols
    return [
        (known[symbol], restored.expression(spelled))
        for symbol, spelled in request.replacements
        if symbol in known
    ]


@contextmanager
def _seen_before(recorder: Recorder, restored: Restored, request: Request) -> Iterator[None]:
    """Mark as known what the recorded compile did before its checkpoint: it is no event here."""
    shadow = shadow_of(recorder, restored.env)
    shadow.look(recorder, restored.env)
    shadow.known |= {(restored.expression(expr), value) for expr, value in request.known}
    with pattern_libraries.pattern_libraries(recorder, seen=request.traced_patterns):
        yield


@contextmanager
def _stopping(
    recorder: Recorder, restored: Restored, request: Request, report: Report
) -> Iterator[None]:
    """Stop where the request says, if it does; whether it did is in the report."""
    if request.sought is None:
        yield
        return
    objects = {
        "graph": restored.graph, "inputs": restored.inputs,
        "fake_mode": restored.mode, "shape_env": restored.env,
    }  # fmt: skip
    prompt = Prompt(lambda: objects, recorder) if request.interactive else None
    point = Point(request.entry, restored.doc.partition)
    stops = Stops(parse(request.sought), point, prompt.ask if prompt is not None else None)
    with watching(recorder, stops):
        yield
    report.stopped = stop_report(stops)


def _note(recorder: Recorder, difference: Difference | None) -> None:
    """Write a wrong result down like any other failure."""
    if difference is not None:
        recorder.add_wrong_result(difference.signature(), str(difference))


class _OneCompile:
    """A compile row for a stage that is entered without Dynamo.

    The decomposition of an exported program is a compile by itself.  An exception of the stage ends
    here, in the event log: it may be the recorded failure.  So does a stop.
    """

    def __init__(self, recorder: Recorder, restored: Restored) -> None:
        doc = self.doc = restored.doc
        stage = "pre_grad" if doc.entry == "graph" else "forward"
        own = doc.entry == "export"
        self.recorder = recorder
        self.span = None if own else recorder.enter(stage, doc.partition)
        if self.span is not None:
            # A backend of the program may compile parts of the graph apart, as when recorded.
            call = GraphCall(id(restored.graph), is_any=":" not in doc.backend)
            self.span.entry.call = call
        self.running = ""
        """The part of the compiled code that runs: forward, or a partition of the backward."""

    def execute(self, request: Request, compiled: object) -> None:
        """Run compiled code on inputs made here, and its backward where the request wants that."""
        doc, partition = self.doc, request.execute_backward
        self.running = "forward"
        result, inputs = restore.execute(doc, compiled)
        if not partition:
            return
        self.running = partition
        if partition == REPEATED_BACKWARD:
            run_backward(result)  # else it is compiled for a graph that is kept
            result, inputs = restore.execute(doc, compiled)
        run_backward_as(partition, result, inputs)

    def __enter__(self) -> _OneCompile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        replayed = isinstance(error, Exception) and not isinstance(error, TorchreelError)
        if error is not None and replayed and self.running and self.span is not None:
            # As in the recorded program, where it left what the compiler had returned.
            partition = self.running if self.running != "forward" else ""
            self.recorder.add_failure(error, Mark(id(error), self.span.entry, "run", partition))
        replayed = replayed or isinstance(error, Stopped)
        if self.span is not None:
            self.recorder.leave(self.span, error if replayed else None)
        if error is not None and (why := _refusal(error)):
            raise UnsupportedError(why)
        return replayed


def _refusal(error: BaseException) -> str:
    """Return why the sandbox or the imposed machine stopped a compile; '' if neither did."""
    ours = (str(one) for one in lineage(error) if isinstance(one, UnsupportedError))
    return sandbox.denied(lineage(error)) or next(ours, "")
