"""Characters that a reader can see; all others are spelled out, as in `\\x1b`.

A store may come from a stranger: names, messages and paths in it can hold escape sequences that
move a cursor or rename a window, characters that reverse the direction of what follows, and
characters that nobody sees. What stays is visible: letters, digits, marks on them, signs, blanks.

Lives here: the rule for all contexts. Not here: what else a context gives a meaning to.
"""

from __future__ import annotations

import re
import unicodedata

# Letters, marks and symbols by their category, of which nothing is seen: fillers, variation
# selectors, the joiner of graphemes (Default_Ignorable_Code_Point of Unicode), and an empty braille
# pattern.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)
# Controls, format characters, surrogates, private use, unassigned; line ends and paragraph ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARKS = frozenset({"Mn", "Me"})
# More marks on one character than this cover the lines around it (UTS #39, 5.4).
_MOST_MARKS = 4
_PLAIN = re.compile(r"[ -~]*")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: object) -> str:
    """Return one line in which every character can be seen; the others are spelled out."""
    found = str(text)
    return found if _PLAIN.fullmatch(found) else "".join(_characters(found))


def visible_block(text: object) -> str:
    """Return several lines of the same; line ends and tabs stay."""
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)


def is_visible(text: str) -> bool:
    """Return True if `visible_block` leaves a text as it is."""
    return visible_block(text) == text


def spelled(character: str) -> str:
    """Return a character as Python spells it in a string literal."""
    code = ord(character)
    known = _SHORT.get(character)
    return known or (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _characters(text: str) -> list[str]:
    """Return each character as it is shown; a mark needs a character to stand on."""
    found: list[str] = []
    marks = _MOST_MARKS
    for character in text:
        if unicodedata.category(character) in _MARKS:
            marks += 1
            shown = marks <= _MOST_MARKS and not _INVISIBLE.match(character)
        else:
            shown = _is_seen(character)
            marks = 0 if shown and character != " " else _MOST_MARKS
        found.append(character if shown else spelled(character))
    return found


def _is_seen(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Zs":
        return character == " "
    return category not in _HIDDEN and not _INVISIBLE.match(character)
