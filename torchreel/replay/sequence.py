"""Replays the frames of a recording: one alone, or all in their recorded order.

Lives here: from compiles and their bundles to verdicts.  Not here: the process that traces them
(`frame_child`), what is compared (`compare`).  Called by `replay`, for the entry 'frame', and by
`torchreel replay --sequence`.

Both are the same: a recompile needs what was compiled of its code before it, so a single frame is
the end of a sequence whose beginning is not recorded.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.replay import frame_child, module_state
from torchreel.replay.causes import likely
from torchreel.replay.compare import Outcome, Question, Side, compare
from torchreel.replay.facts import facts_of
from torchreel.replay.frame_child import Request, Step, Told
from torchreel.replay.launch import DEFAULT_TIMEOUT, Ended, launch
from torchreel.replay.many import Row
from torchreel.replay.options import (
    Options,
    check_version,
    had_backward,
    known_classes,
    note,
    target_of,
)
from torchreel.replay.sieve import Point
from torchreel.replay.verdict import DIVERGED, IDENTICAL, REFUSED, Comparison, Verdict
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.jsontypes import Json
from torchreel.store.records import Compile, FrameBundle, Recording

ENTRY = "frame"
LATE_BACKWARD = "aot.late_backward"


@dataclass(frozen=True)
class Attempts:
    """A compile with all its attempts, in order."""

    rows: tuple[Compile, ...]
    bundle: FrameBundle | None

    @property
    def last(self) -> Compile:
        """The attempt that succeeded, or failed for good."""
        return self.rows[-1]


def replay_frame(store: Store, compile: Compile, options: Options) -> Verdict:
    """Let Dynamo trace the frame of a compile again, and compare everything.

    Raises UntrustedError without trust, UnsupportedError when the frame was not kept.
    """
    _check_trust(store, options)
    groups = _groups(store, compile.recording_id)
    place = next(n for n, group in enumerate(groups) if compile.id in {r.id for r in group.rows})
    wanted = groups[place]
    if wanted.bundle is None or wanted.bundle.digest is None:
        raise UnsupportedError(_without_bundle(wanted))
    history = [group for group in _before(groups[:place], wanted) if _usable(group)]
    verdict = _replay(store, [*history, wanted], {wanted.last.id}, options)[wanted.last.id]
    missing = (wanted.last.frame_compile_id or 0) - len(history)
    if missing > 0:
        told = (
            f"{missing} earlier compiles of this code were not kept, so its cache was empty: "
            "record with --frames all"
        )
        verdict = replace(verdict, notes=(*verdict.notes, told))
    return verdict


def replay_sequence(
    store: Store,
    recording: Recording,
    *,
    trust: bool = False,
    imports: Sequence[str] = (),
    timeout: float | None = None,
    allow: Iterable[str] = (),
    listener: Callable[[str], None] | None = None,
) -> list[Row]:
    """Replay every frame of a recording in one process, in the order in which they were compiled.

    A compile whose frame was not kept is refused, and the sequence goes on without it; `timeout` in
    seconds is for all.  Raises UntrustedError without trust.
    """
    options = Options(trust, tuple(imports), timeout or DEFAULT_TIMEOUT, known_classes(allow))
    _check_trust(store, options)
    groups = _groups(store, recording.id)
    if groups:
        check_version(store, groups[0].last, options)
    usable = [group for group in groups if _usable(group)]
    if listener is not None:
        listener(f"replaying {len(usable)} frames of {store.target}#{recording.id} in one process")
    found = _replay(store, usable, {group.last.id for group in usable}, options) if usable else {}
    rows = [
        Row(group.last, found.get(group.last.id) or _refused(_without_bundle(group)))
        for group in groups
    ]
    for row in rows:
        note(store, row.compile, row.verdict)
    return rows


def _check_trust(store: Store, options: Options) -> None:
    if not options.trust:
        raise UntrustedError(
            f"A frame is a pickle: to replay it runs code from {store.target}. If you trust who "
            "made it, add --trust."
        )


# -- what there is to replay ----------------------------------------------------------------------


def _groups(store: Store, recording_id: int) -> list[Attempts]:
    """The compiles of a recording in order, each with its attempts and its bundle.

    A name comes again when the program resets Dynamo: attempts belong to the last one before them.
    """
    found: list[list[Compile]] = []
    latest: dict[str, list[Compile]] = {}
    for row in queries.compiles(store, recording_id):
        if row.frame_id is None and row.compile_id not in latest:
            continue  # it did not come through Dynamo
        if row.attempt == 0 or row.compile_id not in latest:
            latest[row.compile_id] = []
            found.append(latest[row.compile_id])
        latest[row.compile_id].append(row)
    return [Attempts(tuple(rows), _bundle(store, rows)) for rows in found]


def _bundle(store: Store, rows: Sequence[Compile]) -> FrameBundle | None:
    """The first attempt has it when all frames are kept, the last when failing ones are."""
    bundles = [queries.frame_bundle(store, row) for row in rows]
    return next((bundle for bundle in bundles if bundle is not None), None)


def _usable(group: Attempts) -> bool:
    return group.bundle is not None and group.bundle.digest is not None


def _before(groups: Sequence[Attempts], wanted: Attempts) -> list[Attempts]:
    """The earlier compiles of the same frame, which left their code in its cache.

    After a reset of Dynamo the numbers begin again: the latest of each is meant.
    """
    found: list[Attempts] = []
    number = wanted.last.frame_compile_id or 0
    for group in reversed(groups):
        if group.last.frame_id == wanted.last.frame_id and number > 0:
            found.append(group)
            number = group.last.frame_compile_id or 0
    return found[::-1]


def _without_bundle(group: Attempts) -> str:
    place, bundle = group.last.place, group.bundle
    if bundle is None:
        return (
            f"The frame of compile {place} was not kept: record it with --frames all, or failing "
            "for compiles that fail."
        )
    return f"The frame of compile {place} could not be kept: {bundle.reason}."


def _refused(why: str) -> Verdict:
    return Verdict(REFUSED, ENTRY, detail=why)


# -- the replay -----------------------------------------------------------------------------------


def _replay(
    store: Store, groups: Sequence[Attempts], wanted: set[int], options: Options
) -> dict[int, Verdict]:
    """The verdicts on `wanted`, by the id of their last attempts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchreel-frames-")))
        target = target_of(store, stack)
        steps = [_step(store, group, folder, group.last.id in wanted) for group in groups]
        request = Request(
            steps=steps,
            report=str(folder / "report.json"),
            store=str(Path(target).absolute()) if "://" not in target else target,
            replay_of=next(group.last.id for group in groups if group.last.id in wanted),
            trust=options.trust,
            imports=options.imports,
            facts=_facts(store, groups),
        )
        ended = launch(request, options.timeout, frame_child)
        told = ended.report.told if isinstance(ended.report, frame_child.Report) else {}
        again = _replayed(request.store, ended.recording_id)
        return {
            group.last.id: _judge(store, group, request.store, again, ended, told, options)
            for group in groups
            if group.last.id in wanted
        }


def _facts(store: Store, groups: Sequence[Attempts]) -> dict[str, Json]:
    """What the tape says of the machine: one compile asks for this, another for that."""
    found: dict[str, Json] = {}
    for group in groups:
        for name, value in asdict(facts_of(store, group.last)).items():
            found[name] = found.get(name) or value
    return found


def _step(store: Store, group: Attempts, folder: Path, wanted: bool) -> Step:
    bundle, last = group.bundle, group.last
    assert bundle is not None
    data, document = folder / f"{last.id}.pickle", folder / f"{last.id}.json"
    data.write_bytes(store.read_blob(str(bundle.digest)))
    document.write_bytes(store.read_blob(str(bundle.tensors)))
    failure = queries.failure_of(store, last)
    return Step(
        id=last.id,
        place=last.place,
        compile_id=last.compile_id,
        data=str(data),
        document=str(document),
        missing=bundle.reason,
        wanted=wanted,
        backward=had_backward(store, last) or bool(queries.events(store, last, LATE_BACKWARD)),
        execute=failure is not None and failure.stage == "run",
        compile_cpp=failure is not None and failure.stage in ("run", "codegen"),
    )


def _replayed(target: str, recording_id: int | None) -> Sequence[Compile]:
    """The compiles that the replay made."""
    if recording_id is None:
        return ()
    with Store.open(target) as store:
        return queries.compiles(store, recording_id)


def _made(told: Told, compile: Compile, again: Sequence[Compile]) -> tuple[Compile, ...]:
    """Those that one step made, under the name of the recorded compile."""
    first, last = told.span
    meanwhile = (row for row in again if first <= row.started_ns < last)
    return tuple(row for row in meanwhile if row.compile_id == compile.compile_id)


def _judge(
    store: Store,
    group: Attempts,
    target: str,
    again: Sequence[Compile],
    ended: Ended,
    told: Mapping[str, Told],
    options: Options,
) -> Verdict:
    mine = told.get(str(group.last.id))
    if mine is None:
        why = ended.report.refused if ended.report is not None else ""
        return _refused(why or _silent(group, ended))
    bundle = group.bundle
    notes = [*mine.notes, *(ended.report.notes if ended.report is not None else ())]
    if bundle is not None and bundle.reason:
        notes.append(f"not in the bundle: {bundle.reason}")
    if mine.refused:
        return Verdict(REFUSED, ENTRY, detail=mine.refused, notes=tuple(notes))
    rows = _made(mine, group.last, again)
    if mine.substitute:
        notes.append(
            f"the recorded backend {group.last.backend!r} is not one of torch's own, so Dynamo "
            f"traced for {mine.substitute!r}, and only what Dynamo did is compared: name the "
            "module that has it with --import MODULE"
        )
    with Store.open(target) as other:
        entry = "dynamo" if mine.substitute else ENTRY
        allow = options.allow | ({"backend"} if mine.substitute else set())
        cut = group.last.status in ("crashed", "hung")
        question = Question(Point(entry), allow, cut=cut)
        outcomes = list(_outcomes((store, group.rows), (other, rows), question))
        sides = (store, group.last), (other, rows[-1] if rows else None)
        cause = _cause(*sides, outcomes, mine.notes)
        elsewhere = module_state.not_found_again(*sides)
    verdict = _conclude(group, rows, outcomes, ended, tuple(notes))
    if verdict.verdict == DIVERGED and elsewhere:
        return replace(verdict, verdict=REFUSED, detail=module_state.refusal(elsewhere))
    return replace(verdict, cause=cause) if verdict.verdict == DIVERGED else verdict


def _cause(
    recorded: tuple[Store, Compile],
    replayed: tuple[Store, Compile | None],
    outcomes: Sequence[Outcome],
    notes: Sequence[str],
) -> str:
    """What is not as it was: modules of the frame's first, then what the recordings say."""
    parted = next((o.divergence for o in outcomes if o.divergence is not None), None)
    first = parted.recorded if parted is not None else ""
    difference = next((o.difference for o in outcomes if not o.agrees), "")
    return " ".join(
        filter(None, [*notes, likely(recorded, replayed, first), _state_of_a_module(difference)])
    )


def _state_of_a_module(difference: str) -> str:
    """What a program changed in a module that it imports is not in a bundle of its frames."""
    found = re.search(r"__import_(\w+)", difference)
    if found is None:
        return ""
    name = found[1].replace("_dot_", ".")
    return f"What the program changed in module {name} is not in the bundle."


def _silent(group: Attempts, ended: Ended) -> str:
    last = ended.errors.strip().splitlines()
    how = "was stopped at its time limit" if ended.timed_out else f"ended with {ended.status}"
    why = f": {last[-1]}" if last and not ended.timed_out else ""
    return f"the process of the replay {how} before it came to compile {group.last.place}{why}"


def _outcomes(
    ours: tuple[Store, Sequence[Compile]],
    theirs: tuple[Store, Sequence[Compile]],
    question: Question,
) -> Iterator[Outcome]:
    """Attempt by attempt; one that only one side made is no equal of any."""
    (store, rows), (other, again) = ours, theirs
    for row, replayed in zip(rows, again, strict=False):
        yield compare(Side(store, row), Side(other, replayed), question)
    numbers = len(rows), len(again)
    statuses = [(a.status, b.status) for a, b in zip(rows, again, strict=False)]
    same = sum(a == b or question.cut for a, b in statuses)
    row_ = Comparison("dynamo", "", "attempt", *numbers, same)
    detail = "" if row_.agrees else f"attempts at the frame: {_told(rows)}, replayed {_told(again)}"
    yield Outcome((row_,), "", detail)


def _told(rows: Sequence[Compile]) -> str:
    return ", ".join(row.status for row in rows) or "none"


def _conclude(
    group: Attempts,
    rows: Sequence[Compile],
    outcomes: Sequence[Outcome],
    ended: Ended,
    notes: tuple[str, ...],
) -> Verdict:
    compared = _sum(row for outcome in outcomes for row in outcome.compared)
    notes += tuple(dict.fromkeys(text for outcome in outcomes for text in outcome.notes))
    recording = ended.recording_id
    if not rows:
        detail = "Dynamo did not compile the frame: what is in its cache served it"
        return Verdict(DIVERGED, ENTRY, compared, detail, "", recording, notes)
    if not any(row.identical or row.recorded for row in compared if row.kind != "attempt"):
        detail = "the recording holds nothing of this compile that could be compared"
        return Verdict(REFUSED, ENTRY, compared, detail, "", recording, notes)
    worst = next((outcome for outcome in outcomes if not outcome.agrees), None)
    hole = next((outcome.hole for outcome in outcomes if outcome.hole), "")
    if hole:
        return Verdict(REFUSED, ENTRY, compared, hole, "", recording, notes)
    if worst is None:
        return Verdict(IDENTICAL, ENTRY, compared, "", "", recording, notes)
    return Verdict(
        DIVERGED, ENTRY, compared, worst.detail, worst.difference, recording, notes,
        worst.divergence,
    )  # fmt: skip


def _sum(rows: Iterator[Comparison]) -> tuple[Comparison, ...]:
    """The attempts of a compile together."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        counts = found.setdefault((row.stage, row.partition, row.kind), [0, 0, 0])
        for place, count in enumerate((row.recorded, row.replayed, row.identical)):
            counts[place] += count
    return tuple(Comparison(*key, *counts) for key, counts in found.items())
