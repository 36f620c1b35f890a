"""Cases that are presumed to end, because cases of the same calls ended, slowly.

Lives here: the calls of the cases that ended, and what they say of others. Not here: who counts as
slow (`oracle`), how the time grows (`growth`). When a hang grows with its number of calls, each
case with one call less is slow too, close to the minimum, but ends. One case of each set of calls
is enough: the others are presumed to end as it did.
"""

from __future__ import annotations

from collections import Counter

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase

# So many kinds of cases with one number of calls have to end before all of them are said to.
_KINDS = 3
_Calls = frozenset[tuple[str, int]]
"""The number of calls of each target."""


class EndedCases:
    """The calls of the cases that ended, though they took long."""

    def __init__(self) -> None:
        self._ended: dict[int, set[_Calls]] = {}
        self._hung: set[int] = set()

    def ended(self, case: AnyCase) -> None:
        """Add a case that ended after a long time."""
        calls = _calls_of(case)
        if calls is not None:
            self._ended.setdefault(case.total_call_nodes, set()).add(calls)

    def hung(self, case: AnyCase) -> None:
        """Add a case that does not end, or is presumed not to."""
        self._hung.add(case.total_call_nodes)

    def covers(self, case: AnyCase) -> bool:
        """Return True if one of the cases that ended made each call of this case at least as often.

        Also True if enough other cases with as many calls ended, and none of these was seen to
        hang.
        """
        calls, count = _calls_of(case), case.total_call_nodes
        if calls is None:
            return False
        if any(
            Counter(dict(calls)) <= Counter(dict(known))
            for number, found in self._ended.items()
            if number >= count
            for known in found
        ):
            return True
        return count not in self._hung and len(self._ended.get(count, ())) >= _KINDS


def _calls_of(case: AnyCase) -> _Calls | None:
    """Count the calls of a case by target; None for code, and for a graph with graphs inside."""
    if not isinstance(case, Case):
        return None
    calls = Counter(node.target for node in case.graph.nodes if node.op.startswith("call_"))
    return frozenset(calls.items()) if calls.total() == case.total_call_nodes else None
