"""Adaptive run lengths: how many neighbouring edits to try at once.

Not here: what an edit is (`passes.base`), whether it was good (`oracle`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_ONE_BY_ONE = 4


@dataclass(frozen=True)
class RunLength:
    """Looks for a long run that holds; what to try next follows from what held so far.

    Immutable, so that one can see where each answer would lead before it is known.

    Tries 1, 2, 3, 4, then doubles, then bisects between the last that held and the first that did
    not: a run of n edits is found in about 2 log n tries, a refused one costs a single try. Whether
    a length holds need not be monotone; then some n is found that holds while n + 1 was refused.
    After `find_integer` of Hypothesis (internal/conjecture/junkdrawer.py).

    With `bisect` from the start: about log2(limit) tries, of which the first are the largest, for
    edits of which all, or nearly all, belong together: the ends of a graph.
    """

    limit: int
    bisect: bool = False
    low: int = 0
    """The longest that held."""
    refused: int | None = None
    """The shortest above it that did not."""

    @property
    def length(self) -> int:
        """Return the length to try next; 0 when the run has been found (it is `low`)."""
        high = self.limit + 1 if self.refused is None else self.refused
        if self.low + 1 >= high:
            return 0
        if self.bisect or self.refused is not None:
            return (self.low + high) // 2
        return self.low + 1 if self.low < _ONE_BY_ONE else min(2 * self.low, self.limit)

    def after(self, held: bool) -> RunLength:
        """Return the state after the answer for `length`."""
        return replace(self, low=self.length) if held else replace(self, refused=self.length)
