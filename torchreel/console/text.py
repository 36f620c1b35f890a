"""Text from a store, made safe to print.

A store may come from a stranger: names, messages and targets in it can hold escape sequences that
move a cursor, rewrite a line or rename a window, and characters that reverse the direction of what
follows. All of it becomes visible text here; Rich's own markup is never interpreted (`streams`).
"""

from __future__ import annotations

import re
import shlex

# C0 and C1 controls, line and paragraph separators, direction marks and overrides, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PLAIN_WORD = re.compile(r"[\w@%+=:,./#-]+", re.ASCII)


def clean(text: object) -> str:
    """One line of printable text; everything else is spelled out, as in `\\x1b`."""
    return _UNSAFE.sub(lambda match: _spelled(match[0]), str(text))


def clean_block(text: object) -> str:
    """Several lines of printable text; line ends and tabs stay."""
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)


def _spelled(character: str) -> str:
    code = ord(character)
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    return known or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def shortened(text: str, width: int = 80) -> str:
    """The first line of a text, cut to a width."""
    first = text.strip().splitlines()[0].strip() if text.strip() else ""
    return first if len(first) <= width else f"{first[: width - 1]}…"


def command(*words: object) -> str:
    """A command as one would type it; '#' inside of a word needs no quotes."""
    texts = [clean(word) for word in words]
    return " ".join(text if _PLAIN_WORD.fullmatch(text) else shlex.quote(text) for text in texts)


def seconds(value: float) -> str:
    """A duration as people write it."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 99.5:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """'1 compile', '3 compiles'."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
