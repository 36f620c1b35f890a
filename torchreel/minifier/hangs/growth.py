"""The growth of compile time with the calls of a graph, learnt from the cases that ended.

Lives here: arithmetic on (calls, seconds). Not here: what follows for a case (`oracle`). Work that
multiplies with each call is what a hang mostly is, so a straight line through the logarithms is
drawn; where nothing was slow, there is nothing to say.
"""

from __future__ import annotations

# Below this many seconds a difference says more about the machine than about the case.
_NOISE = 0.05


class Growth:
    """The times of cases that ended, by their number of calls."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self.least = float("inf")
        """The seconds that every case takes."""

    def ended(self, calls: int, seconds: float) -> None:
        """Add a case that ended after so many seconds."""
        self._seconds[calls] = max(seconds, self._seconds.get(calls, 0.0))
        self.least = min(seconds, self.least)

    def expected(self, calls: int) -> float | None:
        """Return the seconds that a case of so many calls will take; None where nobody knows.

        What every case takes is left out: only what grows is carried on.
        """
        slow = sorted(
            (count, seconds - self.least)
            for count, seconds in self._seconds.items()
            if seconds - self.least > max(_NOISE, self.least / 4)
        )
        if len(slow) < 2:
            return None
        (fewer, before), (more, after) = slow[-2:]
        factor = (after / before) ** (1 / (more - fewer))
        if factor <= 1:
            return None
        # No power of a large factor is worth an overflow.
        return float(after * factor ** min(calls - more, 60)) + self.least
