"""Pairs the recordings of two sides, and their compiles.

Lives here: the pairing.  Not here: what is compared of a pair (`layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Generic, TypeVar

from torchreel.errors import UsageError
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.records import Compile, Recording

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Pairs(Generic[_Item]):
    """Items that belong together, in the order of the left ones, and those that are alone."""

    both: tuple[tuple[_Item, _Item], ...]
    only_left: tuple[_Item, ...]
    only_right: tuple[_Item, ...]


def pair_compiles(left: Sequence[Compile], right: Sequence[Compile]) -> Pairs[Compile]:
    """Return compiles with the same id and frame; the others by order within a frame, then by
    order.

    The last step is taken only where as many are left on one side as on the other.
    """
    return _pair(left, right, (_name_and_frame, _file_and_frame, _frame))


def pair_recordings(left: Sequence[Recording], right: Sequence[Recording]) -> Pairs[Recording]:
    """Return recordings of the same rank, in order; then by order."""
    return _pair(left, right, (lambda row: row.rank,))


def _name_and_frame(row: Compile) -> Hashable:
    name = (row.generation, row.compile_id, row.attempt)
    return *name, row.frame_name, PurePath(row.frame_file).name


def _file_and_frame(row: Compile) -> Hashable:
    return PurePath(row.frame_file).name, row.frame_name, row.attempt


def _frame(row: Compile) -> Hashable:
    return row.frame_name, row.attempt


def _pair(
    left: Sequence[_Item], right: Sequence[_Item], keys: Iterable[Callable[[_Item], Hashable]]
) -> Pairs[_Item]:
    partners: dict[int, int] = {}
    for key in keys:
        _match(left, right, key, partners)
    alone = _alone(left, partners.keys()), _alone(right, partners.values())
    if len(alone[0]) == len(alone[1]):
        partners.update(zip(*alone, strict=True))
        alone = [], []
    both = tuple((left[i], right[partners[i]]) for i in sorted(partners))
    return Pairs(both, tuple(left[i] for i in alone[0]), tuple(right[i] for i in alone[1]))


def _match(
    left: Sequence[_Item],
    right: Sequence[_Item],
    key: Callable[[_Item], Hashable],
    partners: dict[int, int],
) -> None:
    """Add the pairs that one key makes of the items left over; the first with the first."""
    free: dict[Hashable, list[int]] = {}
    for i in _alone(right, partners.values()):
        free.setdefault(key(right[i]), []).append(i)
    for i in _alone(left, partners.keys()):
        found = free.get(key(left[i]))
        if found:
            partners[i] = found.pop(0)


def _alone(items: Sequence[object], taken: Iterable[int]) -> list[int]:
    known = set(taken)
    return [i for i in range(len(items)) if i not in known]


# -- what an address covers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Selected:
    """One side of a diff: recordings, each with its selected compiles."""

    store: Store
    recordings: tuple[tuple[Recording, tuple[Compile, ...]], ...]
    one: bool
    """True if a single compile was named."""

    @property
    def rows(self) -> list[Recording]:
        """The recordings."""
        return [row for row, _ in self.recordings]

    @property
    def compiles(self) -> dict[int, tuple[Compile, ...]]:
        """The compiles that are meant, by the id of their recording."""
        return {row.id: found for row, found in self.recordings}


def select(store: Store, address: Address) -> Selected:
    """Return the recordings and compiles that an address covers.

    Raises UsageError when nothing was compiled there: two such sides would be "the same".
    """
    if address.compile is not None or address.event is not None:
        compile = queries.compile_at(store, address)
        recording = queries.recording(store, compile.recording_id)
        return Selected(store, ((recording, (compile,)),), True)
    rows = queries.covered(store, address)
    found = [(row, tuple(queries.compiles(store, row.id))) for row in rows]
    kept = tuple((row, compiles) for row, compiles in found if compiles)
    if not kept:
        raise UsageError(f"{address} has no compile in it, so there is nothing to compare.")
    return Selected(store, kept, False)


def counterpart(compile: Compile, other: Selected, address: Address) -> Selected:
    """Return the one compile of the other side that belongs to a named compile."""
    for recording, compiles in other.recordings:
        for _, found in pair_compiles([compile], compiles).both:
            return Selected(other.store, ((recording, (found,)),), True)
    raise UsageError(
        f"{address} has no compile of the frame {compile.frame_name!r} to compare "
        f"{compile.place} with: name the one that you mean."
    )
