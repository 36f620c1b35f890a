"""Nothing that a store holds can reach a terminal as anything but visible text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.console.text import clean, clean_block, command, count, seconds, shortened


@given(st.text())
def test_a_clean_line_is_printable_in_one_line(text: str) -> None:
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in clean(text))
    assert len(clean(text).splitlines()) <= 1


@given(st.text())
def test_a_clean_block_keeps_only_line_ends_and_tabs(text: str) -> None:
    assert not any(
        (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in clean_block(text)
    )


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("größe 円", "größe 円"),
        ("\ud800", "\\ud800"),
    ],
)
def test_controls_are_spelled_out(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_a_block_keeps_its_lines() -> None:
    assert clean_block("a\r\n\tb\x1b\n") == "a\n\tb\\x1b\n"


def test_an_address_needs_no_quotes_and_a_blank_does() -> None:
    words = ("torchreel", "show", "run.db#2/0/1", "my run.db#1", "$(reboot)")
    assert command(*words) == "torchreel show run.db#2/0/1 'my run.db#1' '$(reboot)'"


def test_numbers_are_told_as_people_do() -> None:
    assert [seconds(s) for s in (0.01, 2.34, 99.4, 125)] == [
        "10 ms",
        "2.3 s",
        "99.4 s",
        "2 min 05 s",
    ]
    assert (count(1, "entry", "entries"), count(2, "entry", "entries")) == ("1 entry", "2 entries")
    assert shortened("a long line\nand another", 6) == "a lon…"
