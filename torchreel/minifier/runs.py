"""How many neighbouring edits to carry out at once: the search's only piece of number theory.

Not here: what an edit is (`passes.base`), whether it was good (`oracle`).
"""

from __future__ import annotations

from collections.abc import Callable

_ONE_BY_ONE = 4


def find_run(holds: Callable[[int], bool], limit: int) -> int:
    """The largest n that was found, at most `limit`, for which `holds(n)`; 0 if not even 1 does.

    Tries 1, 2, 3, 4, then doubles, then bisects between the last that held and the first that did
    not: a run of n edits is found in about 2 log n tries, a refused one costs a single try.
    `holds` need not be monotone; then some n is found for which it holds and n + 1 was refused.
    After `find_integer` of Hypothesis (internal/conjecture/junkdrawer.py).
    """
    for n in range(1, min(_ONE_BY_ONE, limit) + 1):
        if not holds(n):
            return n - 1
    if limit <= _ONE_BY_ONE:
        return limit
    low, high = _double(holds, limit)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _double(holds: Callable[[int], bool], limit: int) -> tuple[int, int]:
    """A length that holds, and a longer one that does not (or is over the limit)."""
    low = _ONE_BY_ONE
    while low < limit:
        high = min(2 * low, limit)
        if not holds(high):
            return low, high
        low = high
    return limit, limit + 1


def find_prefix(holds: Callable[[int], bool], limit: int) -> int:
    """The same by bisection alone: about log2(limit) tries, of which the first are the largest.

    For edits of which all, or nearly all, belong together: the ends of a graph.
    """
    low, high = 0, limit + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
