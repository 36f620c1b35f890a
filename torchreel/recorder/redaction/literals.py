"""A lexer for the literals of Python in any text: code, guards, messages, truncated reprs.

Lives here: finding string and number literals without ever losing step.  Python's own tokenizer
refuses what is not a whole program, and an apostrophe in prose would shift it by one string.  Not
here: which of them are taken out (`known.names`, `strict`).

A quote opens a string where Python lets it: not behind a letter, unless that is a prefix or a
keyword (`Bob's` opens none).  It ends at the same quote; an apostrophe before a letter (`isn't`)
only if no other one comes on its line.  A string that does not end goes to the end of its line, one
in triple quotes to the end of the text: rather too much than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from torchreel.patterns import lazy, lazy_text

WORD = rb"\w\x80-\xff"
_NUMBER = (
    rb"(?<![%b.])(?:0[xX][\da-fA-F_]+|0[bBoO][\d_]+"
    rb"|(?:\d[\d_]*(?:\.\d*)*|\.\d+)(?:[eE][-+]?\d+)?[jJ]?)(?!\w)" % WORD
)
_QUOTE = rb"(?P<slashes>\\*)(?P<quote>'''|\"\"\"|'|\")"
_NEXT = lazy(rb"(?P<number>%b)|%b" % (_NUMBER, _QUOTE))
_HERE = lazy(rb"(?P<number>%b)|(?P<prefix>(?<![%b])[rRbBfFuU]{0,2})%b" % (_NUMBER, WORD, _QUOTE))
_WORD_BEFORE = lazy(rb"[%b]{1,12}\Z" % WORD)
_PREFIX = lazy(rb"[rR][bBfF]?|[bBfFuU][rR]?")
_KEYWORD = lazy(rb"if|in|is|or|and|not|else|return|yield|assert|case|await|raise|from|print")
_CONTENT = {
    b"'": lazy(rb"(?s:[^'\\\n]|\\.)*+"),
    b'"': lazy(rb'(?s:[^"\\\n]|\\.)*+'),
    b"'''": lazy(rb"(?s:[^'\\]|\\.|'(?!''))*+"),
    b'"""': lazy(rb'(?s:[^"\\]|\\.|"(?!""))*+'),
}
_LETTER = lazy(rb"[%b]" % WORD)
_LOOK_BACK = 12
_ESCAPE = lazy_text(r"(?s)\\(?:(x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})|([0-7]{1,3})|(.))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}


class Literal(NamedTuple):
    """A literal: where all of it is, and what is between its quotes (of a number: the same)."""

    start: int
    end: int
    inner: int
    inner_end: int
    is_number: bool = False


def literals(text: bytes, start: int = 0, end: int | None = None) -> Iterator[Literal]:
    """Yield each string and number between two places of a text, in order; none is within
    another.
    """
    at, end = start, len(text) if end is None else end
    while (found := _NEXT.search(text, at, end)) is not None:
        literal = _literal(text, found, _word_before(text, found.start()))
        if literal is not None:
            yield literal
        at = max(found.end(), literal.end if literal is not None else 0)


def literal_at(text: bytes, at: int) -> Literal | None:
    """Return the literal that begins at a place of a text."""
    found = _HERE.match(text, at)
    if found is None:
        return None
    prefix: bytes = found["prefix"] or b""
    return _literal(text, found, prefix or _word_before(text, at))


def unescaped(inner: bytes) -> str:
    """Return the string that the text between two quotes stands for."""
    text = inner.decode("utf-8", "replace")
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    code, octal, letter = escape.groups()
    if code:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if octal:
        return chr(int(octal, 8))
    return _LETTERS.get(letter, escape[0])


def _literal(text: bytes, found: re.Match[bytes], word: bytes) -> Literal | None:
    if found["number"] is not None:
        return Literal(*found.span(), *found.span(), True)
    slashes, quote = found["slashes"], found["quote"]
    if word and not _opens(word, quote):
        return None
    start, inner = found.start(), found.end()
    if slashes:
        return Literal(start, *_escaped(text, inner, slashes + quote))
    end = _CONTENT[quote].match(text, inner).end()  # type: ignore[union-attr]
    if quote == b"'":
        end = _beyond_apostrophes(text, end)
    end = _beyond_doubled(text, inner, end, quote)
    closed = text.startswith(quote, end)
    return Literal(start, end + len(quote) if closed else end, inner, end)


def _word_before(text: bytes, at: int) -> bytes:
    found = _WORD_BEFORE.search(text, max(0, at - _LOOK_BACK), at)
    return found[0] if found is not None else b""


def _opens(word: bytes, quote: bytes) -> bool:
    """Return True if a quote that stands right behind this word opens a string."""
    if _PREFIX.fullmatch(word) or _KEYWORD.fullmatch(word):
        return True
    return quote != b"'" and not word[-1:].isdigit()


def _beyond_apostrophes(text: bytes, end: int) -> int:
    """Return the end of a string, past quotes that are apostrophes: a letter follows them.

    If no other quote follows on the line, the first one ends the string.
    """
    first = end
    while text.startswith(b"'", end):
        if _LETTER.match(text, end + 1) is None:
            return end
        end = _CONTENT[b"'"].match(text, end + 1).end()  # type: ignore[union-attr]
    return first


def _beyond_doubled(text: bytes, inner: int, end: int, quote: bytes) -> int:
    r"""Return the end of a string whose text was escaped twice, as `repr` makes `{"a": "x\\"y"}`.

    A quote ends the string if no backslash stands before it, or no letter behind it.
    """
    first = end
    while end > inner and text[end - 1 : end] == b"\\" and text.startswith(quote, end):
        if _LETTER.match(text, end + len(quote)) is None:
            return end
        end = _CONTENT[quote].match(text, end + len(quote)).end()  # type: ignore[union-attr]
    return end if text.startswith(quote, end) else first


def _escaped(text: bytes, inner: int, quote: bytes) -> tuple[int, int, int]:
    """Return the end of a string whose quotes are escaped, and the bounds of its content."""
    end = text.find(quote, inner)
    while end > 0 and text[end - 1 : end] == b"\\" and end > inner:
        end = text.find(quote, end + 1)
    if end >= 0:
        return end + len(quote), inner, end
    line = text.find(b"\n", inner)
    line = len(text) if line < 0 else line
    return line, inner, line
