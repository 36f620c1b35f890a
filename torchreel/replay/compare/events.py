"""Compares two event logs, event by event.

Lives here: the walk along two lanes, the first event where they part, and the counts.  Not here:
what is in a lane (`lanes`), graphs, code and failures (`compiles`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchreel.replay.compare.lanes import Lane, LogLine, named
from torchreel.replay.compare.unified import unified
from torchreel.replay.compare.verdict import Comparison, Divergence

_BEFORE = 10
_ORDER = ("pre_grad", "joint", "forward", "backward", "post_grad", "lowering", "codegen")

Lanes = Mapping[str, Lane]


class Walk:
    """Two event logs side by side."""

    def __init__(self, recorded: Lanes, replayed: Lanes, *, cut: bool = False) -> None:
        self.aside: Counter[str] = Counter()
        """The number of differences that were set aside, by class."""
        self.common = 0
        """The number of equal events up to the first divergence of each lane."""
        self._cut = cut
        self._counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        found: list[Divergence] = []
        for name in sorted({*recorded, *replayed}):
            ours, theirs = recorded.get(name, Lane()), replayed.get(name, Lane())
            self._add_aside(ours, theirs)
            left, right = self._comparable(ours, theirs)
            parted = self._along(name, left, right)
            self._count(name, left, right)
            found += [parted] if parted is not None else []
        self.divergence = min(found, key=_earliest, default=None)

    @property
    def compared(self) -> list[Comparison]:
        """The counts, per stage and kind."""
        keys = sorted(self._counts, key=lambda key: (_place(key[1]), key))
        return [Comparison(stage, lane, kind, *self._counts[lane, stage, kind])
                for lane, stage, kind in keys]  # fmt: skip

    def _add_aside(self, ours: Lane, theirs: Lane) -> None:
        for why in {*ours.aside, *theirs.aside}:
            self.aside[why] += max(ours.aside[why], theirs.aside[why])

    def _comparable(self, ours: Lane, theirs: Lane) -> tuple[list[LogLine], list[LogLine]]:
        """Return the lines of both that can be compared: a log that was cut off ends both."""
        left, right = ours.lines, theirs.lines
        if self._cut:
            shorter = min(len(left), len(right))
            return left[:shorter], right[:shorter]
        return ours.beside(theirs) if ours.cached else (left, right)

    def _along(
        self, lane: str, ours: Sequence[LogLine], theirs: Sequence[LogLine]
    ) -> Divergence | None:
        for place, (one, other) in enumerate(itertools.zip_longest(ours, theirs)):
            if one is None or other is None or not self._same(one, other):
                return _divergence(lane, place, ours, theirs)
            self.common += 1
        return None

    def _same(self, one: LogLine, other: LogLine) -> bool:
        if not one.equals(other):
            return False
        if one.operator is not None and other.operator is not None:
            differences = one.operator.cached_differences(other.operator)
            if differences is None:
                return False
            self.aside["fake-tensor cache"] += differences
        for (why, value), (_, value_there) in zip(one.aside, other.aside, strict=False):
            self.aside[why] += value != value_there
        return True

    def _count(self, lane: str, ours: Sequence[LogLine], theirs: Sequence[LogLine]) -> None:
        """Count the events of each kind, and those that are equal to their counterpart."""
        left, right = _by_kind(ours), _by_kind(theirs)
        for key in {*left, *right}:
            pairs = zip(left[key], right[key], strict=False)
            same = sum(_equal(one, other) for one, other in pairs)
            self._counts[lane, *key] = [len(left[key]), len(right[key]), same]


def _equal(one: LogLine, other: LogLine) -> bool:
    if not one.equals(other):
        return False
    if one.operator is None or other.operator is None:
        return True
    return one.operator.cached_differences(other.operator) is not None


def _by_kind(lines: Sequence[LogLine]) -> dict[tuple[str, str], list[LogLine]]:
    found: dict[tuple[str, str], list[LogLine]] = defaultdict(list)
    for line in lines:
        found[line.event.stage or "", line.event.kind].append(line)
    return found


def _place(stage: str) -> int:
    return _ORDER.index(stage) if stage in _ORDER else -1


def _earliest(divergence: Divergence) -> float:
    return divergence.seq if divergence.seq is not None else float("inf")


def _divergence(
    lane: str, place: int, ours: Sequence[LogLine], theirs: Sequence[LogLine]
) -> Divergence:
    one = ours[place] if place < len(ours) else None
    other = theirs[place] if place < len(theirs) else None
    stage = (one or other).event.stage if one or other else ""  # type: ignore[union-attr]
    return Divergence(
        seq=one.event.seq if one else None,
        replayed_seq=other.event.seq if other else None,
        stage=stage or "",
        partition=lane,
        recorded=named(one.event) if one else "",
        replayed=named(other.event) if other else "",
        number=place + 1,
        before=tuple(
            (line.event.seq, named(line.event)) for line in ours[max(0, place - _BEFORE) : place]
        ),
        difference=_diff(one, other),
    )


def _diff(one: LogLine | None, other: LogLine | None) -> str:
    """Return both events side by side."""
    return unified(_lines(one), _lines(other), context=4)


def _lines(line: LogLine | None) -> list[str]:
    if line is None:
        return ["(no event: the event log ends here)"]
    found = list(replace(line.form, payload=line.payload).lines())
    if line.operator is not None:
        found += [f"within: {inner.name} {inner.outcome}" for inner in line.operator.within]
    return found
