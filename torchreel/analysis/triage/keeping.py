"""Decides which recordings of a store are too old or too many, and which have to stay.

The recordings of the first and the last failure of each group stay, and that of its smallest case:
with these, the group is as well known as before. Not here: how recordings are deleted
(`torchreel.store.deletion.recordings`). Called by `torchreel prune`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.analysis.triage.failure_kinds import StoredFailures
from torchreel.analysis.triage.failures import SeenFailure
from torchreel.analysis.triage.grouping import group
from torchreel.analysis.triage.summaries import size_key
from torchreel.store import Store, parse, queries
from torchreel.store.deletion.recordings import Deletion, trial
from torchreel.store.post_mortem import may_go_on
from torchreel.store.records import Recording


@dataclass(frozen=True)
class PruneLimits:
    """The limits of a store; None is no limit."""

    age: float | None = None
    """Seconds since a recording began."""
    size: int | None = None
    """Bytes of all rows."""
    group: int | None = None
    """Failures of a group: the newest count."""


@dataclass
class PruneReport:
    """The result of a round of deletions."""

    recordings: int = 0
    """The number of those that were deleted, or would be."""
    blobs: int = 0
    kept: int = 0
    """The recordings that stay for a group, whatever the limits say."""
    groups: int = 0
    size: int = 0
    """Bytes of all rows, afterwards; of a dry run without a limit of size, now."""
    is_too_large: bool = False
    """True if the recordings that have to stay are larger than the limit."""


def prune(store: Store, limits: PruneLimits, *, dry_run: bool = False) -> PruneReport:
    """Delete recordings beyond the limits, the oldest first.

    A dry run deletes nothing: what the limit of size would delete is found by deleting it in a
    transaction that is taken back.  Raises StoreError if a failure can't be read: then the first of
    its kind is unknown.
    """
    found = _Prunable.read(store, limits.group)
    if not dry_run:
        return _carry_out(found, limits, Deletion(store))
    if limits.size is None:  # then it is known without
        wanted = found.unwanted(limits.age)
        size = Deletion(store).used_bytes()
        return PruneReport(len(wanted), kept=len(found.kept), groups=found.groups, size=size)
    with trial(store) as deletion:
        return _carry_out(found, limits, deletion)


def _carry_out(found: _Prunable, limits: PruneLimits, deletion: Deletion) -> PruneReport:
    report = PruneReport(kept=len(found.kept), groups=found.groups)
    wanted = found.unwanted(limits.age)
    if wanted:
        report.blobs = deletion.delete(wanted)
    report.recordings = len(wanted)
    report.size = deletion.used_bytes()
    unwanted = set(wanted)
    left = [row.id for row in found.may_go if row.id not in unwanted]
    while limits.size is not None and report.size > limits.size and left:
        count = _enough(left, 1 - limits.size / report.size)
        report.recordings += count
        report.blobs += deletion.delete(left[:count])
        left = left[count:]
        report.size = deletion.used_bytes()
    report.is_too_large = limits.size is not None and report.size > limits.size
    return report


def _enough(rows: Sequence[int], share: float) -> int:
    """Return the number of oldest recordings to delete before the size is measured again.

    Recordings may share blobs, so the size after a deletion can't be computed.
    """
    return min(len(rows), max(1, int(len(rows) * share)))


@dataclass(frozen=True)
class _Prunable:
    """The recordings of a store: those that may go, the oldest first, and those that stay."""

    may_go: Sequence[Recording]
    groups: int
    """The number of groups of failures."""
    kept: frozenset[int]
    """The recordings of the first, the last and the smallest failure of each group."""
    repeats: frozenset[int]
    """The recordings of failures whose groups have enough newer ones."""

    @classmethod
    def read(cls, store: Store, most: int | None) -> _Prunable:
        kept: set[int] = set()
        wanted: set[int] = set()
        failing: set[int] = set()
        groups = group(StoredFailures.read(store).each())
        for each in groups:
            numbers = [_number(failure) for failure in each.failures]
            smallest = _number(min(each.failures, key=size_key))
            kept |= {numbers[0], numbers[-1], smallest}
            failing.update(numbers)
            wanted.update(numbers if most is None else numbers[max(0, len(numbers) - most) :])
        rows = queries.recordings(store)
        spared = kept | may_go_on(store, rows)
        may_go = sorted((row for row in rows if row.id not in spared), key=_age)
        return cls(may_go, len(groups), frozenset(kept), frozenset(failing - wanted - kept))

    def unwanted(self, age: float | None) -> list[int]:
        """Return the recordings that go whatever their size: repeats, and those of that age."""
        before = None if age is None else time.time_ns() - int(age * 1e9)
        return [
            row.id
            for row in self.may_go
            if row.id in self.repeats or (before is not None and row.started_ns < before)
        ]


def _number(failure: SeenFailure) -> int:
    number = parse(failure.address).recording
    assert number is not None, "every failure is in a recording"
    return number


def _age(row: Recording) -> tuple[int, int]:
    return row.started_ns, row.id
