"""Proving a reduced hang: the last case that was accepted and takes the whole limit.

Lives here: the cases that were accepted one after the other, and looking among them. Not here:
the runs (`oracle`), the search that goes on from what is found (`search.search`).
"""

from __future__ import annotations

from collections.abc import Callable

from torchreel.minifier.cases.protocol import AnyCase


class Accepted:
    """The cases that a search has accepted; the first one is known to hang."""

    def __init__(self, start: AnyCase) -> None:
        self._cases = [start]

    def add(self, case: AnyCase) -> None:
        """Add the case that is the best one now."""
        self._cases.append(case)

    def last_sure(self, is_sure: Callable[[AnyCase], bool]) -> AnyCase:
        """Return the last case that was proved; the first one where none was."""
        return next((case for case in reversed(self._cases) if is_sure(case)), self._cases[0])

    def last_that(self, hangs: Callable[[AnyCase], bool]) -> AnyCase:
        """Return the last accepted case that hangs, and forget the cases after it.

        The first case is known to hang and the best one to end. Each case is simpler than the one
        before, so the last one that hangs is found by bisection.
        """
        low, high = 0, len(self._cases) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if hangs(self._cases[middle]):
                low = middle
            else:
                high = middle
        del self._cases[low + 1 :]
        return self._cases[low]
