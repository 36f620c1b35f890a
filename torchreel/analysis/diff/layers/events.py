"""The event logs of two compiles, event by event.

Lives here: the first event in which they part, and how many there are.  Not here: canonical form
(`torchreel.replay.compare.normalise`) and the walk (`torchreel.replay.compare.events`), both those
of a replay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from torchreel.analysis.diff.layers.facts import MACHINE
from torchreel.analysis.diff.report import (
    ABSENT,
    DiffSide,
    LayerDiff,
    LayerDifference,
    modes_differ,
)
from torchreel.events.inductor import CppCompile
from torchreel.events.shape_env import ShapeEnvCheckpoint
from torchreel.events.trace import TraceStrings
from torchreel.replay.compare.events import Walk
from torchreel.replay.compare.lanes import Lane, lanes
from torchreel.replay.compare.normalise import Canonical
from torchreel.replay.compare.rules import EXCUSES, NOT_IN_FLIGHT, SCOPES, Excuse, Scope
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.verdict import Divergence
from torchreel.store import queries
from torchreel.store.documents.jsontypes import json_text, parse_json

_WHOLE = Scope(checkpoint=False)
_EXCUSES = (
    Excuse("times", "chromium_event"),
    Excuse("times", "compilation_metrics"),
    Excuse("times", "compilation_metrics_runtime"),
    Excuse("file numbers", "str"),
    Excuse("file numbers", TraceStrings.kind),
    # Code whose library is on the disk already is not compiled again; the layer 'code' compares it.
    Excuse("C++ compiler", CppCompile.kind),
    Excuse("variables of the process", "artifact", "fx_graph_runnable"),
    *(Excuse("layer 'machine'", kind) for kind in MACHINE),
)
_NAMES = ("frame_id", "frame_compile_id", "attempt")
_MENTION = b"__compiled_fn_"
_COMPILED = re.compile(r"__compiled_fn_\d+\b")
_SHOWN = 6  # lines of one event


def events(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return the first event in which two compiles part; the counts are of the events compared."""
    ours, theirs = _lanes(left, right)
    if ours is None or theirs is None:
        return LayerDiff("events", 0, 0, note="the event log does not say where the replay began")
    walk = Walk(ours, theirs)
    counts = _count(ours), _count(theirs)
    if walk.divergence is None:
        return LayerDiff("events", *counts)
    found = _difference(walk.divergence, (left, right))
    return LayerDiff("events", *counts, (found,), _later(walk))


Lanes = Mapping[str, Lane] | None


def _lanes(left: DiffSide, right: DiffSide) -> tuple[Lanes, Lanes]:
    """Return the lanes of both event logs; against a replay, only the part that it replays."""
    scope, point, excuses = _WHOLE, None, [*_EXCUSES, *_other_names(left, right)]
    if modes_differ(left, right):
        excuses += NOT_IN_FLIGHT
    for side in (left, right):
        if (entry := side.replayed_from) is not None and entry in SCOPES:
            scope, point = SCOPES[entry], Point(entry, _partition(side))
            excuses += EXCUSES
    ours, theirs = (
        _uncounted(lanes(side.store, side.compile, scope, point, excuses, replay=replay))
        for side, replay in ((s, s.replayed_from is not None) for s in (left, right))
    )
    return ours, theirs


def _uncounted(found: Lanes) -> Lanes:
    """Return lanes without the numbers that Dynamo gives to compiled functions in turn.

    They depend on earlier compiles, and are no difference.
    """
    for lane in (found or {}).values():
        lane.lines = [
            replace(
                line,
                form=_renamed(line.form) if _MENTION in line.text else line.form,
                read=partial(_read, line.read),
            )
            for line in lane.lines
        ]
    return found


def _renamed(form: Canonical) -> Canonical:
    data = parse_json(_COMPILED.sub("__compiled_fn", json_text(form.data)))
    return replace(form, name=_COMPILED.sub("__compiled_fn", form.name), data=data)


def _read(read: Callable[[str], str], digest: str) -> str:
    return _COMPILED.sub("__compiled_fn", read(digest))


def _other_names(left: DiffSide, right: DiffSide) -> Iterator[Excuse]:
    """Yield excuses for the compile's name in trace records, if the two have other names."""
    names = [(side.compile.compile_id, side.compile.attempt) for side in (left, right)]
    if names[0] != names[1]:
        kinds = {
            k for side in (left, right) for k in queries.event_counts(side.store, side.compile)
        }
        known = {excuse.kind for excuse in _EXCUSES}
        yield from (
            Excuse("name of the compile", kind, fields=_NAMES) for kind in sorted(kinds - known)
        )


def _partition(side: DiffSide) -> str:
    """Return the partition of the checkpoint that a replay of an ATen graph began with."""
    for event in queries.events(side.store, side.compile, ShapeEnvCheckpoint.kind):
        if event.name == "aot" and isinstance(event.data, Mapping):
            return str(event.data.get("partition"))
    return ""


def _count(found: Mapping[str, Lane]) -> int:
    return sum(len(lane.lines) for lane in found.values())


def _later(walk: Walk) -> str:
    """Return the number of differing events of each kind: the first is often not the cause."""
    kinds: dict[str, int] = {}
    for row in walk.compared:
        if not row.agrees:
            more = max(row.recorded, row.replayed) - row.identical
            kinds[row.kind] = kinds.get(row.kind, 0) + more
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    return ", ".join(f"{number} {kind}" for kind, number in ordered[:6])


def _difference(found: Divergence, sides: tuple[DiffSide, DiffSide]) -> LayerDifference:
    left_at = "" if found.seq is None else sides[0].at(found.seq)
    right_at = "" if found.replayed_seq is None else sides[1].at(found.replayed_seq)
    changed = _changed(found.difference)
    left = _shown(found.recorded, changed[0])
    right = _shown(found.replayed, changed[1])
    before = tuple(f"{seq} {name}" for seq, name in found.before)
    what = f"event {found.number}" + (f" in stage {found.stage}" if found.stage else "")
    return LayerDifference(what, left, right, left_at, right_at, before)


def _changed(difference: str) -> tuple[list[str], list[str]]:
    lines = [line for line in difference.splitlines() if not line.startswith(("---", "+++"))]
    return [x[1:] for x in lines if x[:1] == "-"], [x[1:] for x in lines if x[:1] == "+"]


def _shown(name: str, lines: list[str]) -> str:
    if not name:
        return ABSENT
    rest = [line for line in lines if line != name]
    return "\n".join([name, *rest[:_SHOWN]])
