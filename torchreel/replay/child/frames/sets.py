"""Sets of a frame bundle, in the order that they had: Dynamo takes their items one after the other.

Lives here: a set with an order, and reading a pickle that has sets.  Not here: the rest of a bundle
(`bundles`).

The order follows from the hashes of the items (of texts, they depend on a seed of the process; of
most objects, on addresses), and from the size of the set's table, which may be larger than its
items need.  So tables of several sizes are tried; a set whose order none of them gives is noted.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

_NAMED = b"builtins\nset\n"
"""As a pickle of protocol 3 names the class."""
_SIZES = (0, 8, 32, 128, 512, 2048)
"""Numbers of items for which Python makes tables of different sizes."""
_MOST_ITEMS = 1000


class _Filler:
    """Takes the place in a table that its number says."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __hash__(self) -> int:
        return self._place


def in_order(items: Sequence[object]) -> tuple[set[object], bool]:
    """Return a set of these items, and whether it has them in this order."""
    found = set(items)
    for made in chain([found], _tables(items) if 1 < len(items) <= _MOST_ITEMS else ()):
        if list(map(id, made)) == list(map(id, items)):
            return made, True
    return found, False


def _tables(items: Sequence[object]) -> Iterator[set[object]]:
    """Yield sets of the items with tables of several sizes, less and less empty."""
    for size in _SIZES:
        for first in (0, 2 * size):
            fillers = [_Filler(first + number) for number in range(size)]
            made: set[object] = set(fillers)
            for filler in fillers:  # all at once would make the table smaller again
                made.discard(filler)
            made.update(items)
            yield made


def has_sets(data: bytes) -> bool:
    """Return True for a pickle that may have a set in it."""
    return _NAMED in data


class Unpickler(pickle._Unpickler):
    """Reads a pickle in Python, not in C, which can't be told how a set is made."""

    stack: list[Any]

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.disordered: list[int] = []
        """Numbers of items of the sets that have another order than they had."""

    def load_reduce(self) -> None:
        """Call a function with its arguments, both from the stack."""
        if self.stack[-2] is not set or len(self.stack[-1]) != 1:
            super().load_reduce()  # type: ignore[misc]  # typeshed does not know it
            return
        (items,) = self.stack.pop()
        self.stack[-1], alike = in_order(items)
        if not alike:
            self.disordered.append(len(items))

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.REDUCE[0]: load_reduce,
    }
