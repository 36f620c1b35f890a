"""The time that a compile took, without what the program did between its parts."""

from dataclasses import replace

import pytest

from torchreel.analysis.durations import compile_ns
from torchreel.store.records import Compile, Stage

COMPILE = Compile(
    1, 1, "0/0", 0, 0, 0, "f", "p.py", 1, None, None, None, "ok", 1000, 9000, 0
)  # fmt: skip


def stages(*spans: tuple[int, int | None]) -> list[Stage]:
    return [
        Stage(n, 1, "dynamo", "", began, ended, "done") for n, (began, ended) in enumerate(spans)
    ]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 8000),
        ([(1100, 2000), (1200, 1900), (2000, 2500)], 8000),
        # A backward, long after the guards.
        ([(1100, 2000), (1200, 1900), (7500, 8900)], 2500),
        # Two gaps; a stage within another one ends before it.
        ([(1000, 3000), (1500, 1600), (4000, 5000), (8000, 8500)], 4000),
        # Torch left the stage, but the recorder did not see it.
        ([(1000, None), (7000, 9000)], 2000),
    ],
)
def test_gaps_between_stages_are_left_out(
    spans: list[tuple[int, int | None]], expected: int
) -> None:
    assert compile_ns(COMPILE, stages(*spans)) == expected
    assert compile_ns(COMPILE, stages(*spans)[::-1]) == expected


def test_a_compile_that_goes_on_has_no_duration() -> None:
    assert compile_ns(replace(COMPILE, ended_ns=None), stages((1000, 2000))) is None
