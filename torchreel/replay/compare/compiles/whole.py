"""Compares a recorded compile with its replay: event logs, then graphs, code and failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchreel.replay.compare.compiles.event_logs import compare_events
from torchreel.replay.compare.compiles.failures import (
    compare_failures,
    failure_in,
    failure_out_of_scope,
    has_unknown_end,
    name_of,
    signal_of,
)
from torchreel.replay.compare.compiles.items import (
    Items,
    came_from_cache,
    checkpoint_items,
    compare_items,
    first_difference,
    hits_of,
    items_of,
    order,
)
from torchreel.replay.compare.compiles.sides import EventComparison, Question, Side
from torchreel.replay.compare.lanes import (
    WHOLE,
    allowed_of,
    lanes,
)
from torchreel.replay.compare.rules import FLIGHT, SCOPES, excuses
from torchreel.replay.compare.selection import Point


def compare(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Compare everything after a checkpoint."""
    events = compare_events(recorded, replayed, question)
    things = _things(recorded, replayed, question)
    detail, difference = things.detail, things.difference
    if events.divergence is not None:
        detail, difference = str(events.divergence), events.divergence.difference
    return EventComparison(
        (*events.compared, *things.compared), difference, detail, (*events.notes, *things.notes),
        events.divergence, events.reached, events.hole,
    )  # fmt: skip


def is_bare(recorded: Side, point: Point) -> bool:
    """Return True if a recording holds nothing after a checkpoint that could be compared."""
    if recorded.compile is None or items_of(recorded, point, cached=False):
        return False
    if failure_in(recorded) is not None and failure_out_of_scope(recorded, point) is None:
        return False
    excused = excuses(allowed_of(recorded.store, recorded.compile))
    found = lanes(recorded.store, recorded.compile, SCOPES[point.entry], point, excused)
    return not any(lane.lines or lane.cached for lane in (found or {}).values())


def _things(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Return the comparison of graphs, output code and failure."""
    made = _made(recorded, replayed, question)
    if question.partial:
        return made
    point, notes = question.point, [*made.notes]
    failure, failed = compare_failures(recorded, replayed, point)
    died = failure_in(recorded)
    if failure and not failed and died is not None and has_unknown_end(died):
        notes.append(
            "nobody saw by which signal the recorded process ended: the replay ended in the same "
            f"stage, by {signal_of(replayed)}"
        )
    if (own := failure_out_of_scope(recorded, point)) is not None:
        notes.append(
            f"{name_of(own)} was recorded and is not compared: what raised it is no part of a "
            f"replay from the {point.entry} checkpoint"
        )
    rows = (*made.compared, *failure)
    return EventComparison(rows, made.difference, made.detail or failed, tuple(notes))


def _made(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Return the comparison of graphs and output code."""
    hits = hits_of(recorded)
    left, right, notes = _items(recorded, replayed, question, hits)
    rows, difference, detail = [], "", ""
    for key in sorted({*left, *right}, key=order):
        row, shown = compare_items(key, left.get(key, []), right.get(key, []), question.partial)
        if question.partial and not row.recorded and not row.replayed:
            continue
        if came_from_cache(row, left, hits):
            notes.append(
                f"{row.replayed} {row.kind}(s) of stage {row.stage} have nothing to be compared "
                "with: when it was recorded, the code came from a cache"
            )
            continue
        some = 0 < row.identical == row.replayed < row.recorded
        if WHOLE in hits and row.kind == "output code" and some:
            # A cache gives the code of a backward with that of its forward.
            notes.append(
                f"{row.recorded - row.replayed} more of the output codes came from a cache at once"
            )
            row = replace(row, recorded=row.replayed)
        rows.append(row)
        if not row.agrees and not detail:
            difference, detail = shown, first_difference(row)
    return EventComparison(tuple(rows), difference, detail, tuple(notes))


def _items(
    recorded: Side, replayed: Side, question: Question, hits: frozenset[str]
) -> tuple[Items, Items, list[str]]:
    """Return what is compared of both sides, and notes on what flight mode does not keep."""
    point = question.point
    if recorded.compile is None or FLIGHT not in allowed_of(recorded.store, recorded.compile):
        left, right = (items_of(side, point, cached=bool(hits)) for side in (recorded, replayed))
        return left, right, []
    left, right = (checkpoint_items(side, point) for side in (recorded, replayed))
    if question.cut:  # a process that died has left the checkpoint that it died on
        right = {key: items for key, items in right.items() if key in left}
    note = (
        "flight mode keeps no graphs between the stages and no output code: what was compared of "
        "them are the graphs of checkpoints, and each kernel's code"
    )
    return left, right, [note]


def without_kernels(outcomes: Sequence[EventComparison], stand_ins: frozenset[str]) -> str:
    """Say why a failure of compiled code did not come again; '' where the code itself differs."""
    differing = {row.kind for outcome in outcomes for row in outcome.compared if not row.agrees}
    worst = next((outcome for outcome in outcomes if not outcome.agrees), None)
    if not stand_ins or worst is None or differing - {"attempt"} != {"failure"}:
        return ""
    return (
        f"all that was compiled is identical, but {worst.detail}: what the kernels of "
        f"{', '.join(sorted(stand_ins))} compute is not recorded; name the module that defines "
        "them with --import MODULE, or replay the frame with --entry frame --trust"
    )
