"""The process of one replay: restores a checkpoint and runs its stage under the recorder.

Lives here: `python -m torchreel.replay.child.checkpoint_child`, which reads one request (JSON) from
standard input, or from the file that is named: then it has the terminal.  Not here: starting it and
what becomes of it (`launch`).  A process of its own, because a replay can abort (fake CUDA tensors
on a CPU build), crash (that may be the recorded failure) or hang.

It reports through a file: what it could not restore, or why it refuses.  An exception of the
replayed stage is no report: the recorder has it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchreel import sandbox
from torchreel.errors import TorchreelError, UnsupportedError, UsageError
from torchreel.recorder.event_log.failures import Stopped
from torchreel.recorder.event_log.spans import Mark
from torchreel.replay.child.stopping.hang import ending_when_hung
from torchreel.sandbox.processes import exit_quickly, follow_parent
from torchreel.store.failures.raised import lineage
from torchreel.store.failures.signature import REPEATED_BACKWARD

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder
    from torchreel.replay.accuracy.comparison import Difference
    from torchreel.replay.child.restore import Restored
    from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class Request:
    """A request of the parent: the checkpoint to replay, and the store to record into."""

    checkpoint: str
    """Path of a file with the checkpoint's bytes."""
    report: str
    """Path of the file to write."""
    store: str
    replay_of: int
    entry: str
    attempt: int = 0
    backward: bool = False
    """Compile the backward graph too: the recorded program called `backward()`."""
    execute: bool = False
    """Run the compiled code on synthesised inputs: the recorded failure happened there."""
    execute_backward: str = ""
    """Run the compiled backward too, or differentiate it ('double backward'): it happened there."""
    compare: bool = False
    """Run it in eager mode too, and compare: the recorded failure is a wrong result."""
    compile_cpp: bool = False
    """Compile the generated C++: the recorded failure was the compiler's, or came later."""
    trust: bool = False
    imports: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """Paths of the checkpoints before it: what the compiler needs of those, was not redacted."""
    compile_timeout: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The facts of its machine that the recorded compile read (`facts.Facts`)."""
    changed: tuple[tuple[str, Any], ...] = ()
    """Config entries that are not the recorded ones: name and value."""
    devices: tuple[str, ...] = ()
    """Devices that are not the recorded ones."""
    python: str = ""
    """The interpreter to run; this one by default."""
    folder: str = ""
    """The one folder that it may write to; without one it is not confined."""
    programs: tuple[str, ...] = ()
    """The programs that it may start if it is confined: the C++ compiler."""
    traced_patterns: tuple[str, ...] = ()
    """Libraries of patterns that Inductor traced in this very compile."""
    known: tuple[tuple[Json, bool], ...] = ()
    """Assertions whose value was known before: each is noted once."""
    lookups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The outcome of each lookup in the fake-tensor cache, by stage (`fake_cache.Lookup`)."""
    static_inputs: tuple[bool, ...] = ()
    """Of each tensor that is an input whether its sizes became numbers (`real_inputs.static`)."""
    replacements: tuple[tuple[str, Json], ...] = ()
    """The replacements of symbols, in order (`fake_cache.replacements_of`)."""
    remainders: tuple[Json, ...] = ()
    """Those that became known to be zero (`remainders.learned`)."""
    sought: Mapping[str, Any] | None = None
    """The place to stop at (`time_travel.Sought`)."""

    @property
    def interactive(self) -> bool:
        """Return True if the replay stops for a prompt: then the child has the terminal."""
        return self.sought is not None and bool(self.sought["interactive"])


@dataclass
class Report:
    """The report of the child, beside the recording that it made."""

    finished: bool = False
    refused: str = ""
    misused: str = ""
    """The reason why the request makes no sense here."""
    notes: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    """The operators that are not defined here, and have stand-ins."""
    stopped: Mapping[str, Any] | None = None
    """The place where it stopped (`time_travel.Stop`); None if it went on to its end."""

    def write(self, path: str) -> None:
        """Save, in one step."""
        Path(path).write_text(json.dumps(asdict(self)))


def main() -> None:
    """Carry out the request on standard input, or in the file that is named."""
    follow_parent()
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read()
    request = Request(**json.loads(text))
    report = Report()
    try:
        _replay(request, report)
        report.finished = True
    except UsageError as error:
        report.misused = str(error)
    except TorchreelError as error:
        report.refused = str(error)
    except OSError as error:
        report.refused = sandbox.denied(lineage(error))
        if not report.refused:
            raise
    finally:
        report.write(request.report)


def _confine(request: Request, report: Report) -> None:
    """Give up what is not needed, before anything of the store is read."""
    for name in request.imports:  # the user's own choice; they may write where they like
        importlib.import_module(name)
    if request.folder:
        folder = Path(request.folder)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        programs = tuple(map(Path, request.programs))
        lacking = sandbox.confine(sandbox.Confinement(folder, programs))
        report.notes += [f"sandbox: {text}" for text in lacking]


def _replay(request: Request, report: Report) -> None:
    _confine(request, report)
    import torchreel.recorder.session as recording
    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.formats.operators import stand_ins
    from torchreel.replay.accuracy.comparison import compare
    from torchreel.replay.accuracy.results import run_backward, run_backward_as
    from torchreel.replay.child import checks, restore
    from torchreel.replay.compare.verdict import NOT_RECORDED, NOT_RESTORED, stand_in_note
    from torchreel.replay.imposed import fake_cache, remainders, torch_machine
    from torchreel.replay.imposed.facts import Facts, device_notes, recorder_settings
    from torchreel.torch_compat.inductor import code_generation

    facts = Facts(**request.facts)
    doc = CheckpointDoc.from_bytes(Path(request.checkpoint).read_bytes())
    doc = restore.with_static_inputs(doc, request.static_inputs)
    if doc.extra.get("aot_compilation"):
        raise UnsupportedError(
            "this compile is AOTInductor's: what it makes has the weights in it, and they are not "
            "in the event log, so it is not replayed; a torch.compile of the same model is."
        )
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
            fake_cache.imposed(
                recorder, fake_cache.parsed(request.lookups), _replacements(restored, request)
            ),
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
                with _apart(recorder):  # eager's run is no part of what was recorded
                    expected = restore.results_of(doc)
                _note(recorder, compare(expected, restore.results_of(doc, compiled)))
            elif request.execute:
                replayed.running = "forward"
                result, inputs = restore.execute(doc, compiled)
                if request.execute_backward:
                    replayed.running = request.execute_backward
                    if request.execute_backward == REPEATED_BACKWARD:
                        run_backward(result)  # else it is compiled for a graph that is kept
                        result, inputs = restore.execute(doc, compiled)
                    run_backward_as(request.execute_backward, result, inputs)


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
    from torchreel.recorder.probes.shape_registry import shadow_of
    from torchreel.replay.imposed import pattern_libraries

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
    from torchreel.replay.child.stopping.prompt import Prompt
    from torchreel.replay.child.stopping.stops import Stops, parse, stop_report, watching
    from torchreel.replay.compare.selection import Point

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


@contextmanager
def _apart(recorder: Recorder) -> Iterator[None]:
    """Record nothing that this thread does inside of the `with`."""
    here = recorder.spans.here
    here.inside = True
    try:
        yield
    finally:
        here.inside = False


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
        from torchreel.recorder.event_log.spans import GraphCall

        doc = restored.doc
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


def parse(data: Mapping[str, Any]) -> Report:
    """Return the report that a child wrote."""
    return Report(**data)


if __name__ == "__main__":
    main()
    exit_quickly()
