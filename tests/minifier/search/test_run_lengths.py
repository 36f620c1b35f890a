"""How many edits are carried out at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from torchreel.minifier.search.run_lengths import RunLength


@given(st.integers(0, 3000), st.integers(0, 1000))
def test_a_run_is_found_in_few_tries(length: int, more: int) -> None:
    """The longest that holds, in about 2 log n tries."""
    tried: list[int] = []

    def holds(n: int) -> bool:
        tried.append(n)
        return n <= length

    assert _found(RunLength(length + more), holds) == length
    assert len(tried) <= 6 + 2 * math.log2(length + 1)


@given(st.integers(0, 3000), st.integers(0, 1000))
def test_a_prefix_is_found_by_bisection(length: int, more: int) -> None:
    """In log n tries."""
    tried: list[int] = []

    def holds(n: int) -> bool:
        tried.append(n)
        return n <= length

    assert _found(RunLength(length + more, bisect=True), holds) == length
    assert len(tried) <= 1 + math.ceil(math.log2(length + more + 1))


@given(st.sets(st.integers(1, 200)), st.integers(0, 200))
def test_what_is_found_holds(good: set[int], limit: int) -> None:
    """Also where longer runs hold and shorter ones don't."""
    for run in (RunLength(limit), RunLength(limit, bisect=True)):
        found = _found(run, lambda n: n in good)
        assert found == 0 or (found in good and found <= limit)


def _found(run: RunLength, holds: Callable[[int], bool]) -> int:
    while run.length:
        run = run.after(holds(run.length))
    return run.low
