"""Words and numbers for people."""

from torchreel.commands.rendering.text import count, seconds, shortened


def test_numbers_are_told_as_people_do() -> None:
    assert [seconds(s) for s in (0.01, 2.34, 99.4, 125)] == [
        "10 ms",
        "2.3 s",
        "99.4 s",
        "2 min 05 s",
    ]
    assert (count(1, "entry", "entries"), count(2, "entry", "entries")) == ("1 entry", "2 entries")
    assert shortened("a long line\nand another", 6) == "a lon…"
