"""A difference shows where two lines part, however long they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchreel.replay.compare.unified import parting, unified


def test_a_long_line_is_shown_from_where_it_parts() -> None:
    same = "x" * 5_000
    shown = unified(["first", f"{same}A", "last"], ["first", f"{same}B", "last"], context=1)
    removed, added = (line for line in shown.splitlines()[2:] if line[:1] in "-+")
    assert removed == f"-…{'x' * 99}A"
    assert added == f"+…{'x' * 99}B"


def test_short_lines_and_lines_alone_are_whole() -> None:
    shown = unified(["a", "b", "y" * 1000], ["a", "c"], context=3).splitlines()
    assert shown[3:] == [" a", "-b", f"-{'y' * 399}…", "+c"]


_LINE = st.text("ab", max_size=60)


@given(_LINE, _LINE, _LINE)
def test_two_that_differ_are_shown_as_two(before: str, one: str, other: str) -> None:
    ours, theirs = before * 20 + one, before * 20 + other
    shown = parting(ours, theirs, 40)
    assert max(map(len, shown)) <= 40 or max(len(ours), len(theirs)) <= 40
    assert (shown[0] == shown[1]) == (ours == theirs)
