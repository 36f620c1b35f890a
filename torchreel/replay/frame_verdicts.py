"""The verdict on a replayed frame: attempt by attempt, and on all of them together.

Lives here: from the two event logs to a verdict, and why the child has none.  Not here: which
frames are replayed, and how (`sequence`, which calls this), the comparison of one attempt
(`compare`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.replay.child.frame_child import FrameOutcome
from torchreel.replay.compare.causes import likely
from torchreel.replay.compare.compiles import (
    EventComparison,
    Question,
    Side,
    compare,
    without_kernels,
)
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.time_travel import Stop
from torchreel.replay.compare.verdict import (
    DIVERGED,
    IDENTICAL,
    REFUSED,
    Comparison,
    Verdict,
    stand_in_note,
)
from torchreel.replay.imposed import module_state
from torchreel.replay.options import ReplayOptions
from torchreel.replay.processes.launch import TIMED_OUT, TOO_LARGE, ChildEnd
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile, Failure, FrameBundle

ENTRY = "frame"
_FROZEN = (
    "the model is frozen, so that small weights are constants of its code, and a frame has none of "
    "their values; replay it with --entry graph"
)
_DISORDERED = (
    "the frame has a set ({} items) whose order follows from hashes, which are others in this "
    "process, and its replay differs; the order of texts is the same in all processes where "
    "PYTHONHASHSEED is set for the recording"
)
_BACKEND_FAILED = (
    "the recorded compile failed in its backend, which is the program's own: name the module that "
    "has it with --import MODULE"
)
_SUBSTITUTED = (
    "the recorded backend {!r} is not one of torch's own, so Dynamo traced for {!r}, and only what "
    "Dynamo did is compared: name the module that has it with --import MODULE"
)
CAPTURING = ("fullgraph_compiler",)
"""The backends with which these calls have Dynamo capture a graph: they compile nothing."""


@dataclass(frozen=True)
class Attempts:
    """A compile with all its attempts, in order."""

    rows: tuple[Compile, ...]
    bundle: FrameBundle | None

    @property
    def last(self) -> Compile:
        """The attempt that succeeded, or failed for good."""
        return self.rows[-1]


def is_export(compile: Compile) -> bool:
    """Return True for the compile that a call of torch.export, or of `aot_compile`, is."""
    return compile.frame_id is None and compile.backend in ("export", "aot_compile")


def is_within(row: Compile, export: Compile) -> bool:
    """Return True for a compile that was made during an export."""
    if row.id == export.id or row.recording_id != export.recording_id or row.id < export.id:
        return False
    return export.ended_ns is None or row.started_ns < export.ended_ns


def export_around(compiles: Iterable[Compile], compile: Compile) -> Compile | None:
    """Return the export that a compile is, or that it was made for; None for any other compile."""
    exports = [row for row in compiles if is_export(row)]
    return next((e for e in exports if e.id == compile.id or is_within(compile, e)), None)


def in_order(rows: Iterable[Compile]) -> tuple[Compile, ...]:
    """Sort compiles by id, exports last: Dynamo's part of an export is a compile of its own."""
    return tuple(sorted(rows, key=lambda row: (is_export(row), row.id)))


def refused(why: str) -> Verdict:
    """Return the verdict on a frame that was not traced, with the reason."""
    return Verdict(REFUSED, ENTRY, detail=why)


def _made(outcome: FrameOutcome, compile: Compile, again: Sequence[Compile]) -> tuple[Compile, ...]:
    """Return the compiles that one step made, under the name of the recorded compile."""
    first, last = outcome.span
    meanwhile = [row for row in again if first <= row.started_ns < last]
    if is_export(compile):
        return in_order(meanwhile)
    return tuple(row for row in meanwhile if row.compile_id == compile.compile_id)


def judge(
    store: Store,
    group: Attempts,
    target: str,
    again: Sequence[Compile],
    ended: ChildEnd,
    frame_outcomes: Mapping[str, FrameOutcome],
    options: ReplayOptions,
) -> Verdict:
    """Return the verdict on a compile whose frame was traced again into the store at `target`."""
    mine = frame_outcomes.get(str(group.last.id))
    if mine is None:
        why = ended.report.refused if ended.report is not None else ""
        return refused(why or _silent(group, ended))
    notes = [*_notes(group, mine, ended)]
    if mine.refused:
        return Verdict(REFUSED, ENTRY, detail=mine.refused, notes=tuple(notes))
    rows = _made(mine, group.last, again)
    if mine.substitute:
        notes.append(_SUBSTITUTED.format(group.last.backend, mine.substitute))
    with Store.open(target) as other:
        entry = "dynamo" if mine.substitute else ENTRY
        allow = options.allow | ({"backend"} if mine.substitute else set())
        cut = queries.is_cut(store, group.last)
        stand_ins = frozenset(mine.stand_ins)
        question = Question(Point(entry), allow, cut, options.until, _stop(ended), stand_ins)
        outcomes = list(_outcomes((store, group.rows), (other, rows), question))
        stopped = ended.timed_out and bool(rows) and queries.is_cut(other, rows[-1])
        stopped = stopped and not any(outcome.failed_alike for outcome in outcomes)
        if stopped:
            question = replace(question, unfinished=True)
            outcomes = list(_outcomes((store, group.rows), (other, rows), question))
        sides = (store, group.last), (other, rows[-1] if rows else None)
        cause = _cause(*sides, outcomes, mine.notes)
        elsewhere = module_state.not_found_again(*sides)
    if options.until and question.stop is None and not options.until.interactive:
        notes.append(f"the replay ended before {options.until}")
    verdict = _conclude(group, rows, outcomes, ended, tuple(notes))
    if stopped and verdict.verdict == IDENTICAL:
        return replace(verdict, verdict=REFUSED, detail=TIMED_OUT)
    if verdict.verdict != DIVERGED:
        return verdict
    why = next(_reasons_to_refuse(store, group, mine, outcomes, elsewhere), "")
    return replace(verdict, verdict=REFUSED, detail=why) if why else replace(verdict, cause=cause)


def _notes(group: Attempts, mine: FrameOutcome, ended: ChildEnd) -> Iterator[str]:
    yield from mine.notes
    yield from ended.report.notes if ended.report is not None else ()
    if group.bundle is not None and group.bundle.reason:
        yield f"not in the bundle: {group.bundle.reason}"
    yield from map(stand_in_note, mine.stand_ins)


def _reasons_to_refuse(
    store: Store,
    group: Attempts,
    mine: FrameOutcome,
    outcomes: Sequence[EventComparison],
    elsewhere: list[str],
) -> Iterator[str]:
    """Yield what says that a replay which differs is no replay of the frame, the surest first."""
    if group.bundle is not None and group.bundle.reason:
        yield f"the frame is not complete, and its replay differs: {group.bundle.reason}"
    if mine.no_stand_in:
        yield mine.no_stand_in
    if mine.frozen:
        yield _FROZEN
    if mine.disordered:
        yield _DISORDERED.format(" and ".join(map(str, mine.disordered)))
    if elsewhere:
        yield module_state.refusal(elsewhere)
    failure = queries.failure_of(store, group.last)
    if mine.substitute and _failed_in_backend(failure, outcomes):
        yield _BACKEND_FAILED
    if failure is not None and failure.stage == "run":
        yield from filter(None, [without_kernels(outcomes, frozenset(mine.stand_ins))])


def _failed_in_backend(failure: Failure | None, outcomes: Sequence[EventComparison]) -> bool:
    """Return True if the recorded compile ends with an error that Dynamo did not raise."""
    if failure is None or failure.stage in ("dynamo", "guards"):
        return False
    parted = next((o.divergence for o in outcomes if o.divergence is not None), None)
    return parted is not None and parted.recorded == "artifact dynamo_error"


def _cause(
    recorded: tuple[Store, Compile],
    replayed: tuple[Store, Compile | None],
    outcomes: Sequence[EventComparison],
    notes: Sequence[str],
) -> str:
    """Return the likely causes of a divergence, those of the frame's modules first."""
    parted = next((o.divergence for o in outcomes if o.divergence is not None), None)
    first = parted.recorded if parted is not None else ""
    difference = next((o.difference for o in outcomes if not o.agrees), "")
    return " ".join(
        filter(None, [*notes, likely(recorded, replayed, first), _state_of_a_module(difference)])
    )


def _state_of_a_module(difference: str) -> str:
    """Return a sentence that names the module whose changed state a bundle can't hold; else ''."""
    found = re.search(r"__import_(\w+)", difference)
    if found is None:
        return ""
    name = found[1].replace("_dot_", ".")
    return f"What the program changed in module {name} is not in the bundle."


def _silent(group: Attempts, ended: ChildEnd) -> str:
    last = ended.errors.strip().splitlines()
    if ended.too_large:
        return TOO_LARGE
    how = "was stopped at its time limit" if ended.timed_out else f"ended with {ended.status}"
    why = f": {last[-1]}" if last and not ended.timed_out else ""
    return f"the process of the replay {how} before it came to compile {group.last.place}{why}"


def _outcomes(
    ours: tuple[Store, Sequence[Compile]],
    theirs: tuple[Store, Sequence[Compile]],
    question: Question,
) -> Iterator[EventComparison]:
    """Compare attempt by attempt; one that only one side made differs from any."""
    (store, rows), (other, again) = ours, theirs
    whole = replace(question, stop=None, unfinished=False)
    for number, (row, replayed) in enumerate(zip(rows, again, strict=False), 1):
        asked = question if number == len(again) else whole
        yield compare(Side(store, row), Side(other, replayed), asked)
    if question.partial:
        return
    numbers = len(rows), len(again)
    statuses = [(a.status, b.status) for a, b in zip(rows, again, strict=False)]
    same = sum(a == b or question.cut for a, b in statuses)
    row_ = Comparison("dynamo", "", "attempt", *numbers, same)
    detail = (
        ""
        if row_.agrees
        else f"attempts at the frame: {_statuses(rows)}, replayed {_statuses(again)}"
    )
    yield EventComparison((row_,), "", detail)


def _statuses(rows: Sequence[Compile]) -> str:
    return ", ".join(row.status for row in rows) or "none"


def _conclude(
    group: Attempts,
    rows: Sequence[Compile],
    outcomes: Sequence[EventComparison],
    ended: ChildEnd,
    notes: tuple[str, ...],
) -> Verdict:
    compared = _sum(row for outcome in outcomes for row in outcome.compared)
    notes += tuple(dict.fromkeys(text for outcome in outcomes for text in outcome.notes))
    reached = next((outcome.reached for outcome in outcomes if outcome.reached), None)
    recording = ended.recording_id
    if not rows and (ended.report is None or not ended.report.finished):
        return refused(_silent(group, ended))
    if not rows:
        detail = "Dynamo did not compile the frame: what is in its cache served it"
        return Verdict(DIVERGED, ENTRY, compared, detail, "", recording, notes)
    if not any(row.identical or row.recorded for row in compared if row.kind != "attempt"):
        detail = "the recording holds nothing of this compile that could be compared"
        if reached is not None:
            detail = f"nothing that is compared happens before {reached.place}: go further"
        return Verdict(REFUSED, ENTRY, compared, detail, "", recording, notes)
    worst = next((outcome for outcome in outcomes if not outcome.agrees), None)
    hole = next((outcome.hole for outcome in outcomes if outcome.hole), "")
    if hole:
        return Verdict(REFUSED, ENTRY, compared, hole, "", recording, notes)
    if worst is None:
        return Verdict(IDENTICAL, ENTRY, compared, "", "", recording, notes, reached=reached)
    return Verdict(
        DIVERGED, ENTRY, compared, worst.detail, worst.difference, recording, notes,
        worst.divergence, reached=reached,
    )  # fmt: skip


def _stop(ended: ChildEnd) -> Stop | None:
    """Return the place where the child stopped, if it did."""
    stopped = ended.report.stopped if ended.report is not None else None
    return None if stopped is None else Stop(**stopped)


def _sum(rows: Iterator[Comparison]) -> tuple[Comparison, ...]:
    """Return the attempts of a compile together."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        counts = found.setdefault((row.stage, row.partition, row.kind), [0, 0, 0])
        for place, count in enumerate((row.recorded, row.replayed, row.identical)):
            counts[place] += count
    return tuple(Comparison(*key, *counts) for key, counts in found.items())


def without_dynamo(store: Store, compile: Compile) -> str:
    """Return the reason why a compile is not replayed that Dynamo has no part in."""
    entries = [checkpoint.entry for checkpoint in queries.checkpoints(store, compile)]
    then = (
        f"there is no frame: replay it from --entry {entries[0]}."
        if entries
        else "it has neither frame nor checkpoint, and there is nothing to replay from."
    )
    return (
        f"compile {compile.place} is of a graph that was traced before, or without Dynamo, so "
        f"{then}"
    )
