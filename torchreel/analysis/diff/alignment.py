"""Alignment of two sequences: pairs the items of one with the items of the other.

Lives here: the alignment of lists by keys, for graphs, guards and lines. Not here: what a key is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

# Above this many pairs to weigh, what differs is paired by place: SequenceMatcher is quadratic, and
# who has a thousand differing nodes looks at the first.
_WEIGHED = 4_000_000

Pair = tuple[int | None, int | None]


def align(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[Pair]:
    """Yield the positions of paired items, in order; None on the side that has no counterpart."""
    start, end = _common(left, right)
    yield from ((i, i) for i in range(start))
    yield from _between(left, right, start, end)
    yield from ((len(left) - i, len(right) - i) for i in range(end, 0, -1))


def _common(left: Sequence[Hashable], right: Sequence[Hashable]) -> tuple[int, int]:
    """Return the number of equal keys at the start, and at the end."""
    shorter = min(len(left), len(right))
    start = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    rest = shorter - start
    end = next((i for i in range(rest) if left[-1 - i] != right[-1 - i]), rest)
    return start, end


def _between(
    left: Sequence[Hashable], right: Sequence[Hashable], start: int, end: int
) -> Iterator[Pair]:
    ours, theirs = left[start : len(left) - end], right[start : len(right) - end]
    if len(ours) * len(theirs) > _WEIGHED:
        yield from _by_place((start, start + len(ours)), (start, start + len(theirs)))
        return
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        yield from _by_place((start + a, start + b), (start + c, start + d))


def _by_place(ours: tuple[int, int], theirs: tuple[int, int]) -> Iterator[Pair]:
    left, right = range(*ours), range(*theirs)
    for i in range(max(len(left), len(right))):
        yield (left[i] if i < len(left) else None, right[i] if i < len(right) else None)
