"""`replay`: one recorded compile again, and whether it came out the same.

Lives here: from a compile in a store to a verdict.  Not here: the child (`child`, `launch`), the
comparison (`compare`).  Called by `torchreel replay` and by programs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from torchreel.errors import UnsupportedError, UsageError
from torchreel.events.scalars import KnownAssert
from torchreel.replay import what_if
from torchreel.replay.child.checkpoint_request import Report, Request
from torchreel.replay.compare import time_travel
from torchreel.replay.compare.causes import likely
from torchreel.replay.compare.compiles import (
    EventComparison,
    Question,
    Side,
    compare,
    is_bare,
    without_kernels,
)
from torchreel.replay.compare.lanes import allowed_of, facts_at_start, mark_of
from torchreel.replay.compare.selection import MARK, Point
from torchreel.replay.compare.time_travel import Sought, Stop, Target, Until
from torchreel.replay.compare.verdict import DIVERGED, IDENTICAL, REFUSED, Comparison, Verdict
from torchreel.replay.frame_verdicts import CAPTURING, export_around, without_dynamo
from torchreel.replay.imposed import fake_cache, pattern_libraries, real_inputs, remainders
from torchreel.replay.imposed.documents import document_bytes
from torchreel.replay.imposed.facts import facts_of
from torchreel.replay.options import (
    ReplayOptions,
    backward_that_failed,
    check_version,
    had_backward,
    hang_limit,
    known_classes,
    note,
    target_of,
)
from torchreel.replay.processes.fork_server import warm
from torchreel.replay.processes.launch import (
    DEFAULT_TIMEOUT,
    TIMED_OUT,
    TOO_LARGE,
    ChildEnd,
    launch,
)
from torchreel.replay.what_if import Changes
from torchreel.store import queries
from torchreel.store.addressing import UNNAMED, is_capture
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Checkpoint, Compile, Failure


def replay(
    store: Store,
    compile: Compile,
    entry: str = "graph",
    *,
    trust: bool = False,
    imports: Sequence[str] = (),
    timeout: float | None = None,
    memory: int | None = None,
    allow: Iterable[str] = (),
    changes: Changes | None = None,
    until: Until | None = None,
    listener: Callable[[str], None] | None = None,
) -> Verdict:
    """Replay a compile from its checkpoint(s) and compare every later stage.

    `entry` is 'graph' (the Dynamo graph, or an exported program that is decomposed; with `trust`
    the frame, where that was kept and nothing was compiled after Dynamo, or the graph can't be
    rebuilt), 'aot' (each
    ATen graph that entered Inductor), 'shapes' (the ShapeEnv alone, from its events) or 'frame'
    (Dynamo itself: a frame needs `trust`).
    `trust` restores config entries that name commands, paths or code; `imports` are modules that
    define what torch itself does not (operators, backends); `timeout` in seconds and
    `memory` in bytes for each child;
    `allow` names classes of difference to be set aside (`compared.ON_REQUEST`); `changes` is what
    to do otherwise than recorded (`what_if.changes`): the verdict says what that changed; `until`
    is how far to go (`time_travel.until`), which the verdict says as well.
    The replay becomes a recording of the same store (of a temporary one when that is read-only).
    Raises UsageError for another entry, UnsupportedError when there is no checkpoint or frame.
    """
    if entry not in ENTRIES:
        raise UsageError(f"There is no entry {entry!r}: use {' or '.join(ENTRIES)}.")
    asked = changes or Changes()
    if asked and entry not in what_if.ENTRIES:
        raise UsageError(f"Only a replay from {' or '.join(what_if.ENTRIES)} can be changed.")
    goal = until or Until()
    if goal:
        time_travel.check(goal, entry)
    options = ReplayOptions(
        trust, tuple(imports), timeout or DEFAULT_TIMEOUT, known_classes(allow), asked, goal,
        memory,
    )  # fmt: skip
    check_version(store, compile, options)
    verdict = ENTRIES[entry](store, compile, entry, options, listener or (lambda text: None))
    verdict = what_if.concluded(verdict, asked) if asked else _without_missing(verdict)
    refused = verdict.verdict == REFUSED and verdict.entry == "graph"
    if refused and _can_trace_again(store, compile, options):
        verdict = _from_frame_instead(store, compile, verdict, options)
    if verdict.verdict == REFUSED:
        verdict = _with_pieces(store, compile, verdict)
    note(store, compile, verdict)
    return verdict


def _without_missing(verdict: Verdict) -> Verdict:
    """Turn a divergence into a refusal if the replay lacked a part of the recorded config."""
    if verdict.verdict != DIVERGED or not verdict.missing:
        return verdict
    detail = (
        f"the recorded compile had what this replay was made without: {', '.join(verdict.missing)} "
        f"(config entries that name code, commands or paths are restored with --trust). {verdict}"
    )
    return replace(verdict, verdict=REFUSED, detail=detail, cause="")


def _with_pieces(store: Store, compile: Compile, verdict: Verdict) -> Verdict:
    """Add to a refusal the pieces of the compile that can be replayed by themselves."""
    pieces = [row.place for row in queries.pieces_of(store, compile)]
    if not pieces:
        return verdict
    places = " to ".join(dict.fromkeys((pieces[0], pieces[-1])))
    said = f"the parts that its backend compiled apart are replayed by themselves: {places}"
    return replace(verdict, detail=f"{verdict.detail}; {said}")


def _from_checkpoints(
    store: Store, compile: Compile, entry: str, options: ReplayOptions, say: Callable[[str], None]
) -> Verdict:
    """Replay from the one Dynamo graph, or from each ATen graph that entered Inductor."""
    checkpoints = _checkpoints(store, compile, entry)
    entry = checkpoints[0].entry
    bare = Point("graph", "", checkpoints[0].ordinal)
    if (
        entry == "graph"
        and _can_trace_again(store, compile, options)
        and is_bare(Side(store, compile), bare)
    ):
        said = "nothing was compiled after Dynamo's graph, so Dynamo itself was replayed"
        verdict = _frame(store, compile, "frame", options, say)
        return replace(verdict, notes=(said, *verdict.notes))
    target = None
    if options.until:
        one, target = time_travel.chosen(store, compile, checkpoints, options.until)
        checkpoints = [one]
    with ExitStack() as stack:
        into = target_of(store, stack)
        if len(checkpoints) > 1:
            stack.enter_context(warm())
        verdicts = []
        for checkpoint in checkpoints:
            say(f"replaying {compile.place} from {entry} {checkpoint.partition}".rstrip())
            sought = _sought(store, compile, checkpoint, target, options.until)
            verdicts.append(_one(store, compile, checkpoint, into, options, sought))
    return _merge(entry, verdicts)


def _from_frame_instead(
    store: Store, compile: Compile, verdict: Verdict, options: ReplayOptions
) -> Verdict:
    """Return the verdict from the frame if that is identical; else the refusal, and a note on it.

    A graph may call functions of the program, which have no form as data; its frame brings them.
    """
    if verdict.compared or verdict.detail in (TIMED_OUT, TOO_LARGE):
        return verdict
    found = _frame(store, compile, "frame", options, lambda text: None)
    if found.verdict != IDENTICAL:
        # The answer to what was asked is the refusal; the other is seen with --entry frame.
        note = f"from the frame (--entry frame --trust): {found}"
        return replace(verdict, notes=(*verdict.notes, note))
    said = f"the frame was replayed, because from the graph it is refused: {verdict.detail}"
    return replace(found, notes=(said, *found.notes))


def _can_trace_again(store: Store, compile: Compile, options: ReplayOptions) -> bool:
    """Return True if Dynamo may, and can, trace the frame of a compile again."""
    if not options.trust or options.until or options.changes:
        return False
    name = (compile.compile_id, compile.generation)
    attempts = [
        row
        for row in queries.compiles(store, compile.recording_id)
        if (row.compile_id, row.generation) == name
    ]
    return any(queries.has_frame(store, row) for row in attempts)


def _shapes(
    store: Store, compile: Compile, entry: str, options: ReplayOptions, say: Callable[[str], None]
) -> Verdict:
    from torchreel.replay.shape_env.checks import replay_shapes

    return replay_shapes(store, compile, options.until.event)


def _frame(
    store: Store, compile: Compile, entry: str, options: ReplayOptions, say: Callable[[str], None]
) -> Verdict:
    from torchreel.replay.sequence import replay_frame

    say(f"replaying the frame of {compile.place}")
    return replay_frame(store, compile, options)


def _checkpoints(store: Store, compile: Compile, entry: str) -> list[Checkpoint]:
    entries = ("graph", "export") if entry == "graph" else (entry,)
    found = [c for c in queries.checkpoints(store, compile) if c.entry in entries]
    export = export_around(queries.compiles(store, compile.recording_id), compile)
    if found and (export is None or compile.backend not in CAPTURING):
        return found
    failure = queries.failure_of(store, compile)
    if failure is not None and failure.stage == "dynamo":
        raise UnsupportedError(
            f"compile {compile.place} failed while Dynamo traced ({failure.exception_type}), so no "
            "graph reached a backend and there is nothing to replay from: replay Dynamo itself "
            "with --entry frame --trust."
        )
    if export is not None:
        raise UnsupportedError(_of_export(compile, export))
    if is_capture(compile.compile_id):
        raise UnsupportedError(_of_capture(store, compile))
    if queries.is_without_graph(store, compile):
        raise UnsupportedError(
            f"Dynamo made no graph of the frame of compile {compile.place}: it left the frame to "
            "Python, or there was nothing to compile. Replay Dynamo itself with --entry frame "
            "--trust, where the frame was recorded (--frames all)."
        )
    if entry == "aot":
        raise UnsupportedError(
            f"compile {compile.place} has no 'aot' checkpoint: its code came from a cache, or it "
            "failed before Inductor; replay it with --entry graph."
        )
    others = queries.checkpoints(store, compile)
    if others:
        raise UnsupportedError(
            f"compile {compile.place} has no 'graph' checkpoint, since it did not come through "
            f"Dynamo: replay it with --entry {others[0].entry}."
        )
    if compile.compile_id == UNNAMED:
        raise UnsupportedError(without_dynamo(store, compile))
    raise UnsupportedError(
        f"compile {compile.place} has no 'graph' checkpoint: it was not recorded completely (see "
        "what was lost with 'torchreel show')."
    )


def _of_capture(store: Store, compile: Compile) -> str:
    """Return the reason why a compiled-autograd capture is not replayed, and compiles that are."""
    inner = f"{compile.compile_id}/"
    known = queries.compiles(store, compile.recording_id)
    found = [one.place for one in known if one.compile_id.startswith(inner)]
    then = f"What Dynamo compiled of its graph is replayed: {', '.join(found)}." if found else ""
    return (
        f"compile {compile.place} is the capture of a backward by compiled autograd, which begins "
        "with the autograd nodes of the program, and those are not in the event log. "
        f"{then}".rstrip()
    )


def _of_export(compile: Compile, export: Compile) -> str:
    """Return the reason why an export is not replayed from a graph, and what to do instead."""
    call = "torch.export" if export.backend == "export" else "aot_compile"
    what = f"a call of {call}" if compile.id == export.id else f"Dynamo's part of a call of {call}"
    return (
        f"compile {compile.place} is {what}, which begins with Python code of the program and not "
        f"with a graph: replay {export.place} with --entry frame --trust, where the call was kept "
        "(exports that fail are, others with --frames all)."
    )


def _sought(
    store: Store, compile: Compile, checkpoint: Checkpoint, target: Target | None, until: Until
) -> Sought | None:
    if not until:
        return None
    point = Point(checkpoint.entry, checkpoint.partition, checkpoint.ordinal)
    known = facts_at_start(store, compile, point)
    return Sought(
        until.stage,
        until.partition,
        target,
        tuple((kind, name, data.decode()) for kind, name, data in sorted(known)),
        tuple(allowed_of(store, compile)),
        until.interactive,
        time_travel.event_log_of(store, [compile], point) if until.interactive else None,
    )


def _one(
    store: Store,
    compile: Compile,
    checkpoint: Checkpoint,
    target: str,
    options: ReplayOptions,
    sought: Sought | None,
) -> Verdict:
    failure = queries.failure_of(store, compile)
    point = Point(checkpoint.entry, checkpoint.partition, checkpoint.ordinal)
    with tempfile.TemporaryDirectory(prefix="torchreel-request-") as folder:
        blob = Path(folder) / "checkpoint.json"
        data = document_bytes(store, compile, checkpoint)
        blob.write_bytes(what_if.applied(data, options.changes))
        request = Request(
            checkpoint=str(blob),
            report=str(Path(folder) / "report.json"),
            store=str(Path(target).absolute()) if "://" not in target else target,
            replay_of=compile.id,
            entry=checkpoint.entry,
            attempt=compile.attempt,
            backward=had_backward(store, compile),
            execute=_failed_at(failure, "run"),
            execute_backward=backward_that_failed(failure),
            compare=failure is not None and _is_wrong(failure),
            compile_cpp=_failed_at(failure, "run", "codegen"),
            trust=options.trust,
            imports=options.imports,
            before=tuple(_written_before(store, compile, checkpoint, Path(folder))),
            traced_patterns=_traced_patterns(store, compile, checkpoint),
            known=_known_before(store, compile, checkpoint),
            lookups=fake_cache.as_data(fake_cache.lookups_of(store, compile, point)),
            static_inputs=_static_inputs(store, compile, point),
            replacements=tuple(fake_cache.replacements_of(store, compile, point)),
            remainders=remainders.learned(store, compile, point),
            compile_timeout=hang_limit(failure, options.timeout),
            facts=asdict(what_if.machine(facts_of(store, compile), options.changes)),
            changed=options.changes.config,
            devices=tuple(new for _, new in options.changes.devices),
            python=options.changes.python or "",
            sought=None if sought is None else asdict(sought),
        )
        ended = launch(request, options.timeout, memory=options.memory)
    return _judge(store, compile, checkpoint, request.store, ended, options)


def _written_before(
    store: Store, compile: Compile, checkpoint: Checkpoint, folder: Path
) -> Iterator[str]:
    """Write the compile's checkpoints before this one to files, and yield their paths."""
    for number, one in enumerate(queries.checkpoints(store, compile)):
        if one.id < checkpoint.id:
            file = folder / f"before-{number}.json"
            file.write_bytes(store.read_blob(one.digest))
            yield str(file)


def _traced_patterns(store: Store, compile: Compile, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the libraries of patterns that Inductor traced after a checkpoint, as a process does
    once.
    """
    point = Point(checkpoint.entry, checkpoint.partition, checkpoint.ordinal)
    mark = mark_of(queries.events(store, compile, MARK), point)
    begin = mark.seq if mark is not None else 0
    return pattern_libraries.traced(store, compile, begin)


def _static_inputs(store: Store, compile: Compile, point: Point) -> tuple[bool, ...]:
    if point.entry != "graph":
        return ()
    return tuple(real_inputs.static(real_inputs.conversion(store, compile, point)))


def _known_before(
    store: Store, compile: Compile, checkpoint: Checkpoint
) -> tuple[tuple[Json, bool], ...]:
    """Return the assertions whose value was known by a checkpoint, or when its inputs had become
    fake.
    """
    point = Point(checkpoint.entry, checkpoint.partition, checkpoint.ordinal)
    mark = mark_of(queries.events(store, compile, MARK), point)
    if mark is None:
        return ()
    # An exported program has the ShapeEnv of the export that made it.
    where = compile if point.entry != "export" else queries.recording(store, compile.recording_id)
    known = queries.events(store, where, KnownAssert.kind)
    converting = (
        {event.seq for event in real_inputs.conversion(store, compile, point)} if known else ()
    )
    return tuple(
        (event.fields.expr, bool(event.fields.value))
        for event in known
        if isinstance(event.fields, KnownAssert)
        and (event.seq < mark.seq or event.seq in converting)
        and event.env == mark.env
    )


def _failed_at(failure: Failure | None, *stages: str) -> bool:
    return failure is not None and failure.stage in stages


def _is_wrong(failure: Failure) -> bool:
    """Return True if a compiled graph computed a result other than eager's."""
    return failure.failure_class == "wrong_result" and not failure.is_found


def _judge(
    store: Store,
    compile: Compile,
    checkpoint: Checkpoint,
    target: str,
    ended: ChildEnd,
    options: ReplayOptions,
) -> Verdict:
    entry = checkpoint.entry
    notes = tuple(ended.report.notes) if ended.report is not None else ()
    if isinstance(ended.report, Report) and ended.report.misused:
        raise UsageError(ended.report.misused)
    if ended.report is not None and ended.report.refused:
        return Verdict(REFUSED, entry, detail=ended.report.refused, notes=notes)
    if ended.too_large:
        return Verdict(REFUSED, entry, detail=TOO_LARGE, notes=notes)
    if ended.recording_id is None:
        why = _silent(ended)
        if ended.report is None and options.changes.python is not None:
            python = options.changes.python
            why += f" (torchreel has to be installed there too: {python} -m pip install torchreel)"
        return Verdict(REFUSED, entry, detail=why, notes=notes)
    with Store.open(target) as other:
        found = queries.compiles(other, ended.recording_id)
        again = found[0] if found else None
        point = Point(entry, checkpoint.partition, checkpoint.ordinal)
        cut = queries.is_cut(store, compile)
        allow = options.allow | ({"version"} if options.changes.python else set())
        stand_ins = frozenset(ended.report.stand_ins if isinstance(ended.report, Report) else ())
        question = Question(point, allow, cut, options.until, _stop(ended), stand_ins)
        outcome = compare(Side(store, compile), Side(other, again), question)
        stopped = ended.timed_out and not outcome.failed_alike
        if stopped:
            question = replace(question, unfinished=True)
            outcome = compare(Side(store, compile), Side(other, again), question)
        cause = "" if outcome.agrees else _cause((store, compile), (other, again), outcome)
    notes += outcome.notes
    if stopped and outcome.agrees:
        recording = ended.recording_id
        return Verdict(REFUSED, entry, outcome.compared, TIMED_OUT, "", recording, notes)
    if options.until and question.stop is None and not options.until.interactive:
        notes += (f"the replay ended before {options.until}",)
    verdict = _conclude(entry, outcome, ended.recording_id, notes, cause)
    parted = entry == "graph" and verdict.verdict == DIVERGED
    why = real_inputs.refusal(real_inputs.conversion(store, compile, point)) if parted else ""
    failure = queries.failure_of(store, compile)
    if not why and verdict.verdict == DIVERGED and _failed_at(failure, "run"):
        why = without_kernels([outcome], stand_ins) or _of_generated_code(failure)
    return replace(verdict, verdict=REFUSED, detail=why, cause="") if why else verdict


def _of_generated_code(failure: Failure | None) -> str:
    """Return why a failure of the code that Dynamo generated for a frame did not come; '' for any
    other.
    """
    frames = () if failure is None else failure.signature.frames
    if not any(frame.startswith("torch._dynamo.eval_frame:") for frame in frames[:1]):
        return ""
    return (
        "what failed is the code that Dynamo generated for the frame, around the graph: replay it "
        "with --entry frame --trust"
    )


def _stop(ended: ChildEnd) -> Stop | None:
    """Return the place where the child stopped, if it did."""
    stopped = ended.report.stopped if isinstance(ended.report, Report) else None
    return None if stopped is None else Stop(**stopped)


def _cause(
    recorded: tuple[Store, Compile],
    replayed: tuple[Store, Compile | None],
    outcome: EventComparison,
) -> str:
    first = outcome.divergence.recorded if outcome.divergence is not None else ""
    return likely(recorded, replayed, first)


def _silent(ended: ChildEnd) -> str:
    last = ended.errors.strip().splitlines()
    why = f": {last[-1]}" if last else ""
    return (
        f"the child of the replay ended with status {ended.status} before it recorded anything{why}"
    )


_NOTHING = "the recording holds nothing after this checkpoint that could be compared"
_NOTHING_AFTER = (
    f"{_NOTHING}: its backend runs the graph as it is; what Dynamo did is replayed with --entry "
    "frame --trust, where the frame was recorded (--frames all)"
)


def _conclude(
    entry: str, outcome: EventComparison, recording: int, notes: tuple[str, ...], cause: str
) -> Verdict:
    if not outcome.compared or not any(row.recorded for row in outcome.compared):
        detail = _NOTHING_AFTER if entry == "graph" else _NOTHING
        if outcome.reached is not None:
            detail = f"nothing that is compared happens before {outcome.reached.place}: go further"
        return Verdict(REFUSED, entry, outcome.compared, detail, "", recording, notes)
    if outcome.hole:
        return Verdict(
            REFUSED, entry, outcome.compared, outcome.hole, outcome.difference, recording, notes,
            outcome.divergence,
        )  # fmt: skip
    kind = IDENTICAL if outcome.agrees else DIVERGED
    return Verdict(
        kind, entry, outcome.compared, outcome.detail, outcome.difference, recording, notes,
        outcome.divergence, cause, outcome.reached,
    )  # fmt: skip


def _merge(entry: str, verdicts: Sequence[Verdict]) -> Verdict:
    """Return the worst of several verdicts, over everything that they compared."""
    worst = max(verdicts, key=lambda verdict: [IDENTICAL, DIVERGED, REFUSED].index(verdict.verdict))
    compared: list[Comparison] = [row for verdict in verdicts for row in verdict.compared]
    notes = tuple(dict.fromkeys(note for verdict in verdicts for note in verdict.notes))
    return Verdict(
        worst.verdict, entry, tuple(compared), worst.detail, worst.difference,
        worst.recording_id, notes, worst.divergence, worst.cause, worst.reached,
    )  # fmt: skip


Entry = Callable[[Store, Compile, str, ReplayOptions, Callable[[str], None]], Verdict]
"""Replays a compile from one of its entries."""

ENTRIES: Mapping[str, Entry] = {
    "frame": _frame,
    "graph": _from_checkpoints,
    "aot": _from_checkpoints,
    "shapes": _shapes,
}
