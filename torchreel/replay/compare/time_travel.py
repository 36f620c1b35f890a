"""Time travel: a replay that goes as far as a stage or an event, and no further.

Lives here: what can be asked for, which of the events that are compared it means, and the recorded
event log up to there.  Not here: stopping (`stops`, in the child), the prompt (`prompt`), the
comparison (`compiles`).  Imports no torch.

A stage is reached where it begins, before anything of it happened; an event, right after it
happened.  An event is known by its place in its lane: how many events that are compared come before
it, which the recorded event log and the replay count by the same selection.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.errors import UsageError
from torchreel.replay.compare.lanes import Lane, allowed_of, named
from torchreel.replay.compare.rules import SCOPES, excuses
from torchreel.replay.compare.selection import EventSelection, Point, Sifted
from torchreel.replay.compare.verdict import Reached
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.records import Checkpoint, Compile, Event, Stage

STAGES = ("joint", "forward", "backward", "post_grad", "lowering", "codegen")
ENTRIES: Mapping[str, tuple[str, ...]] = {
    "frame": ("pre_grad", *STAGES, "guards"),
    "graph": STAGES,
    "export": ("joint",),
    "aot": ("post_grad", "lowering", "codegen"),
}
"""The entries from which a replay can stop at a stage, and the stages that come after each."""
FRAME = Point("frame")
BEFORE = 10
_DETAILS = 20


@dataclass(frozen=True)
class Until:
    """The place up to which a replay goes: the end by default."""

    stage: str = ""
    partition: str = ""
    """Of the stage: 'forward', 'inference' or 'backward'; the first one that comes by default."""
    event: int | None = None
    """The position of an event in the recorded event log."""
    interactive: bool = False
    """Stop for a prompt there, or at the first event when neither of the two is given."""

    def __bool__(self) -> bool:
        return bool(self.stage or self.event is not None or self.interactive)

    def __str__(self) -> str:
        if self.event is not None:
            return f"event {self.event}"
        return f"stage {self.stage}" + (f" ({self.partition})" if self.partition else "")


def until(to: str | None = None, at: int | None = None, *, interactive: bool = False) -> Until:
    """Return the place given by `--to STAGE[:PARTITION]`, `--at EVENT` and `--interactive`.

    Raises UsageError for an unknown stage or partition, and when both options are given.
    """
    if to is not None and at is not None:
        raise UsageError("A replay stops at a stage (--to) or at an event (--at), not at both.")
    stage, _, partition = (to or "").partition(":")
    if to is not None and stage not in ENTRIES["frame"]:
        raise UsageError(
            f"A replay stops where a stage begins: there is no {stage!r:.60}, only "
            f"{', '.join(ENTRIES['frame'])}."
        )
    if partition not in ("", "forward", "inference", "backward"):
        raise UsageError(
            f"A partition is forward, inference or backward, as in lowering:backward, not "
            f"{partition!r:.60}."
        )
    return Until(stage, partition, at, interactive)


# -- which event that is --------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The place of the event at which the child is to stop."""

    lane: str
    number: int
    """Among the events of its lane that are compared, from 1."""
    seq: int


@dataclass(frozen=True)
class Sought:
    """The data by which a child stops (`stops`), for one checkpoint."""

    stage: str = ""
    partition: str = ""
    target: Target | None = None
    known: tuple[tuple[str, str, str], ...] = ()
    """Facts that were noted before the checkpoint."""
    allow: tuple[str, ...] = ()
    """The classes of difference that are set aside, beside those that always are."""
    interactive: bool = False
    event_log: Mapping[str, tuple[tuple[int, str], ...]] | None = None
    """For a prompt: the recorded events that are compared, by lane."""


def check(wanted: Until, entry: str) -> None:
    """Raise UsageError for an entry from which a replay cannot stop in this way."""
    if entry == "shapes" and wanted.event is not None and not wanted.interactive:
        return
    stages = ENTRIES.get(entry)
    if stages is None:
        raise UsageError(
            f"A replay from {entry!r} cannot stop there: use --entry frame, graph or aot (--entry "
            "shapes stops at an event)."
        )
    if wanted.stage and wanted.stage not in stages:
        raise UsageError(
            f"A replay from {entry!r} does not come to the beginning of stage {wanted.stage!r}, "
            f"only of {', '.join(stages)}."
        )


def chosen(
    store: Store, compile: Compile, found: Sequence[Checkpoint], wanted: Until
) -> tuple[Checkpoint, Target | None]:
    """Return the checkpoint from which to replay, and the event to stop at.

    Raises UsageError for an event or a stage that comes after none of them.
    """
    if wanted.event is not None:
        return _with_event(store, compile, found, wanted.event)
    _check_stage(compile, queries.stages(store, compile), wanted)
    return next((c for c in found if _leads_to(c, wanted)), found[0]), None


def _check_stage(compile: Compile, rows: Sequence[Stage], wanted: Until) -> None:
    if wanted.stage and not any(_is(row.stage, row.partition, wanted) for row in rows):
        there = dict.fromkeys(f"{row.stage} {row.partition}".rstrip() for row in rows)
        raise UsageError(
            f"compile {compile.place} has no {wanted}: it went through {', '.join(there)}."
        )


def of_frame(store: Store, rows: Sequence[Compile], wanted: Until) -> Target | None:
    """Return the event of a frame to stop at, counted through all its attempts; None for a stage.

    Raises UsageError for an event or a stage that is not theirs.
    """
    if wanted.event is None:
        stages = [stage for row in rows for stage in queries.stages(store, row)]
        _check_stage(rows[-1], stages, wanted)
        return None
    event = queries.event_at(store, Address(store.target, rows[0].recording_id, event=wanted.event))
    before: Counter[str] = Counter()
    for row in rows:
        places = list(sifted(store, row, FRAME))
        if row.id == event.compile_id:
            found = _target(places, event)
            return replace(found, number=found.number + before[found.lane])
        before.update(where.lane for _, where in places if where.is_line)
    raise UsageError(f"event {event.seq} ({named(event)}) is not of compile {rows[-1].place}.")


def _is(stage: str, partition: str, wanted: Until) -> bool:
    return stage == wanted.stage and wanted.partition in ("", partition)


def _leads_to(checkpoint: Checkpoint, wanted: Until) -> bool:
    return checkpoint.entry == "graph" or wanted.partition in ("", checkpoint.partition)


def _with_event(
    store: Store, compile: Compile, found: Sequence[Checkpoint], seq: int
) -> tuple[Checkpoint, Target]:
    event = queries.event_at(store, Address(store.target, compile.recording_id, event=seq))
    if event.compile_id != compile.id:
        raise UsageError(f"event {seq} ({named(event)}) is not of compile {compile.place}.")
    spans = []
    for checkpoint in found:
        point = Point(checkpoint.entry, checkpoint.partition, checkpoint.ordinal)
        places = list(sifted(store, compile, point))
        if any(other.seq == seq for other, _ in places):
            return checkpoint, _target(places, event)
        spans += [f"{places[0][0].seq} to {places[-1][0].seq}"] if places else []
    entry = found[0].entry
    raise UsageError(
        f"event {seq} ({named(event)}, stage {event.stage}) is no part of what a replay from "
        f"{entry!r} does: that is among the events {' and '.join(spans) or '(none)'}."
    )


def sifted(store: Store, compile: Compile, point: Point) -> Iterator[tuple[Event, Sifted]]:
    """Yield the recorded events that a replay from a checkpoint makes again."""
    excused = excuses(allowed_of(store, compile))
    selected = EventSelection(SCOPES[point.entry], point, excused)
    for event in queries.events(store, compile):
        found = selected.sift(event)
        if found is not None:
            yield event, found


def _target(places: Sequence[tuple[Event, Sifted]], wanted: Event) -> Target:
    """Return the event itself, or the next one of its lane that is compared: it is set aside."""
    lane = next((where.lane for event, where in places if event.seq == wanted.seq), None)
    if lane is None:
        raise UsageError(f"event {wanted.seq} ({named(wanted)}) is no part of what is replayed.")
    lines = [event.seq for event, where in places if where.lane == lane and where.is_line]
    for number, seq in enumerate(lines, 1):
        if seq >= wanted.seq:
            return Target(lane, number, seq)
    raise UsageError(
        f"event {wanted.seq} ({named(wanted)}) is set aside in a replay, and no later event of its "
        "lane is compared."
    )


def event_log_of(
    store: Store, rows: Sequence[Compile], point: Point
) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return the compared events of a recording, by lane: each with position and description."""
    found: dict[str, list[tuple[int, str]]] = {}
    for event, where in (pair for row in rows for pair in sifted(store, row, point)):
        if where.is_line:
            found.setdefault(where.lane, []).append((event.seq, named(event)))
    return {name: tuple(lines) for name, lines in found.items()}


# -- the event logs up to there -------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """The place where the child stopped, as it reports."""

    seq: int
    """The last event in its own event log."""
    lane: str = ""
    stage: str = ""
    """The stage that was to begin; '' for an event."""
    partition: str = ""
    moved: bool = False
    """True if somebody went there step by step from a prompt."""


Lanes = Mapping[str, Lane]


def up_to(recorded: Lanes, replayed: Lanes, stop: Stop, wanted: Until) -> tuple[Lanes, Lanes]:
    """Cut both event logs where the replay stopped; the lane of the stop has to reach that far."""
    theirs = {
        name: replace(lane, lines=[line for line in lane.lines if line.event.seq <= stop.seq])
        for name, lane in replayed.items()
    }
    ours = {}
    for name, lane in recorded.items():
        length = len(theirs[name].lines) if name in theirs else 0
        begins = lane.begins.get(stop.stage) if name == stop.lane and not stop.moved else None
        if stop.stage and begins is not None:
            length = sum(line.event.seq < begins for line in lane.lines)
        elif name == stop.lane and wanted.event is not None and not stop.moved:
            length = _number(lane, wanted.event)
        # What was set aside is counted in the event log that ends there.
        ours[name] = replace(lane, lines=lane.lines[:length], aside=Counter())
    return ours, theirs


def _number(lane: Lane, seq: int) -> int:
    """Return the number, from 1, of the first line at or after `seq`; else of the last line."""
    return next(
        (n for n, line in enumerate(lane.lines, 1) if line.event.seq >= seq), len(lane.lines)
    )


def reached(recorded: Lanes, stop: Stop, wanted: Until) -> Reached:
    """Return the place of a stop in the recorded event log; `recorded` ends there."""
    lines = recorded[stop.lane].lines if stop.lane in recorded else []
    if not lines:
        return Reached(_place(stop, wanted, None))
    last = lines[-1]
    before = lines[-1 - BEFORE : -1]
    return Reached(
        _place(stop, wanted, last.event.seq),
        last.event.seq,
        named(last.event),
        tuple(line[:200] for line in itertools.islice(last.form.lines(), 1, _DETAILS)),
        tuple((line.event.seq, named(line.event)) for line in before),
    )


def _place(stop: Stop, wanted: Until, seq: int | None) -> str:
    if stop.stage:
        return f"stage {stop.stage}" + (f" ({stop.partition})" if stop.partition else "")
    return f"event {wanted.event if seq is None and wanted.event is not None else seq}"
