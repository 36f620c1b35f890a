"""Nothing that a store holds is printed as anything but text that can be seen."""

import unicodedata

import pytest

from tests.escaping.nasty import EVERYTHING, with_every_fragment
from torchreel.escaping.characters import is_visible, visible, visible_block

HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


@with_every_fragment
def test_a_line_is_one_line_of_characters_that_are_seen(text: str) -> None:
    found = visible(text)
    assert not any(unicodedata.category(c) in HIDDEN for c in found)
    assert len(found.splitlines()) <= 1
    assert visible(found) == found


@with_every_fragment
def test_a_block_keeps_only_line_ends_and_tabs(text: str) -> None:
    found = visible_block(text)
    assert not any(unicodedata.category(c) in HIDDEN for c in found if c not in "\n\t")
    assert found.count("\n") == text.count("\n")
    assert is_visible(found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("größe 円 e\u0301 🐛", "größe 円 e\u0301 🐛"),
        ("\ud800", "\\ud800"),
        ("a\u00adb\u200dc\U000e0041d", "a\\xadb\\u200dc\\U000e0041d"),
        ("a\ufe0fb\u3164c\u00a0d", "a\\ufe0fb\\u3164c\\xa0d"),
        ("\u0301", "\\u0301"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "\\u0301" * 2),
    ],
)
def test_what_is_not_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_block_keeps_its_lines() -> None:
    assert visible_block("a\r\n\tb\x1b\n") == "a\n\tb\\x1b\n"


def test_only_what_is_visible_is_called_so() -> None:
    assert is_visible("a\n\tb")
    assert not is_visible(EVERYTHING)
