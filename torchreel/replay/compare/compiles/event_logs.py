"""Compares the event logs of a compile and of its replay, and says what can't be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from torchreel.replay.compare.compiles.sides import EventComparison, Question, Side
from torchreel.replay.compare.events import Walk
from torchreel.replay.compare.lanes import (
    Lane,
    allowed_of,
    facts_at_start,
    holes,
    lanes,
    lines_and_callers,
    symbols_found_equal,
)
from torchreel.replay.compare.rules import CLASSES, FLIGHT, ON_REQUEST, SCOPES, excuses
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.time_travel import reached, up_to
from torchreel.replay.compare.verdict import Divergence
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile


def compare_events(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Return the two event logs, event by event."""
    point = question.point
    scope = SCOPES[point.entry]
    if recorded.compile is None or replayed.compile is None:
        return EventComparison((), "", "")
    allowed = excuses(allowed_of(recorded.store, recorded.compile, question.allow))
    stand_ins = question.stand_ins
    equal = symbols_found_equal(recorded.store, recorded.compile)
    ours = lanes(
        recorded.store, recorded.compile, scope, point, allowed, stand_ins=stand_ins, equal=equal
    )
    if ours is None:
        why = (
            "no events were compared: the event log does not say where the "
            f"{point.entry} checkpoint is"
        )
        return EventComparison((), "", "", (why,))
    if _is_summary(recorded, ours):
        why = (
            f"flight mode kept a summary of attempt {recorded.compile.place} alone: of an attempt "
            "that was begun anew as usual, no events are compared"
        )
        return EventComparison((), "", "", (why,))
    again = Point(point.entry, point.partition)
    _, called_by = lines_and_callers(recorded.store, recorded.compile)
    known = facts_at_start(recorded.store, recorded.compile, point)
    theirs = lanes(
        replayed.store, replayed.compile, scope, again, allowed, replay=True, known=known,
        stand_ins=stand_ins, equal=equal, called_by=called_by,
    )  # fmt: skip
    left: Mapping[str, Lane] = ours
    right: Mapping[str, Lane] = theirs or {}
    place = None
    if question.stop is not None:
        left, right = up_to(left, right, question.stop, question.until)
        place = reached(left, question.stop, question.until)
    walk = Walk(left, right, cut=question.cut or question.unfinished)
    notes = [*_from_caches(left), *_set_aside(walk.aside)]
    if question.cut:
        notes.append("the recorded process died: its event log is compared as far as it goes")
    hole = _hole(recorded.store, recorded.compile, walk.divergence)
    return EventComparison(tuple(walk.compared), "", "", tuple(notes), walk.divergence, place, hole)


def _is_summary(recorded: Side, found: Mapping[str, Lane]) -> bool:
    """Return True for an attempt of which flight mode let all events go: Dynamo began anew."""
    compile = recorded.compile
    return (
        compile is not None
        and compile.status == "restarted"
        and FLIGHT in allowed_of(recorded.store, compile)
        and not any(lane.lines or lane.aside for lane in found.values())
    )


def _hole(store: Store, compile: Compile, divergence: Divergence | None) -> str:
    """Return a note on events missing before the first difference, after the last common event.

    '' if none are missing.
    """
    if divergence is None or not divergence.before:
        return ""
    last = divergence.before[-1][0]
    until = divergence.seq
    if until is None:
        later = [event.seq for event in queries.events(store, compile) if event.seq > last]
        until = min(later, default=last + 1)
    missing = holes(store, compile, last, until)
    if not missing:
        return ""
    return (
        f"the event log has a hole: {len(missing)} events from {missing[0]} on are missing, after "
        f"event "
        f"{last}; what is before it is identical. See what was lost with 'torchreel show', and "
        "record again"
    )


def _from_caches(recorded: Mapping[str, Lane]) -> Iterator[str]:
    caches = sorted({lane.cached for lane in recorded.values() if lane.cached})
    if caches:
        yield (
            "when it was recorded, the code came from a cache "
            f"({', '.join(caches)}): what was done to make it is not in the event log"
        )


def _set_aside(counts: Counter[str]) -> Iterator[str]:
    reasons = {**CLASSES, **ON_REQUEST}
    for why in sorted(counts):
        if counts[why]:
            yield f"set aside: {why}, {counts[why]} times: {reasons[why]}"
