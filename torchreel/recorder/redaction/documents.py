"""Changing strings within the text of a JSON document, and leaving every other byte as it is.

Lives here: finding the string around a place, and writing another one.  A document is half a
megabyte, and a secret is in hardly any of its strings: to parse and to write all of it would cost
more than all the rest of redaction.  Not here: what is changed (`redactor`, `strict`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

import orjson

from torchreel.patterns import lazy

_CONTENT = lazy(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BACKSLASH = 92
_BETWEEN = lazy(rb"\s*[,:\]}]|\s*[\[{]")
"""The beginning of the bytes between two strings, or before the first; a string may have it too."""
_STRING = lazy(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NUMBER = lazy(rb"-?\d[\d.eE+-]*")
_TO_ESCAPE = lazy(rb'[\x00-\x1f"\\]')


def looks_like_one(data: bytes) -> bool:
    """Return True if these bytes may be a JSON object or array."""
    return data[:1] in (b"{", b"[") and data[-1:] in (b"}", b"]")


def is_document(data: bytes) -> bool:
    """Return True if these bytes are a JSON object or array."""
    if not looks_like_one(data):
        return False
    try:
        orjson.loads(data)
    except ValueError:  # or what json alone reads: NaN, large integers, lone surrogates
        try:
            json.loads(data.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return False
    return True


def rewritten(data: bytes, places: Iterable[int], change: Callable[[bytes], bytes]) -> bytes:
    """Return a document whose strings around the given places, in order, went through `change`.

    A number there that `change` does not leave as it is becomes a string.
    """
    parts: list[bytes] = []
    done = behind = outside = 0
    for at in places:
        if at < behind:
            continue
        start = _opening(data, at)
        if start < behind:  # in no string
            continue
        found = _CONTENT.match(data, start)
        end = found.end() if found is not None else start
        if _BETWEEN.match(data, start, end):
            outside, is_string = _is_opening(data, outside, start - 1)
            if not is_string:
                token = _number(data, start, end, at)
                if token is not None and (after := change(token[0])) != token[0]:
                    parts += [data[done : token.start()], b'"', encoded(after), b'"']
                    done = token.end()
                behind = end if token is None else token.end()
                continue
        behind = end
        outside = end + 1
        before = decoded(data[start:behind])
        after = change(before)
        if after != before:
            parts += [data[done:start], encoded(after, data[start:behind].isascii())]
            done = behind
    return b"".join([*parts, data[done:]]) if parts else data


def _opening(data: bytes, at: int) -> int:
    """Return the start of the string around a position, after its opening quote."""
    quote = data.rfind(b'"', 0, at + 1)
    while quote > 0 and data[quote - 1] == _BACKSLASH and _is_escaped(data, quote):
        quote = data.rfind(b'"', 0, quote)
    return quote + 1


def _is_opening(data: bytes, outside: int, quote: int) -> tuple[int, bool]:
    """Return True if a string begins at a quote, and a later place in no string.

    `outside` is a place in no string.
    """
    if quote < 0:
        return outside, False
    for found in _STRING.finditer(data, outside):
        if found.end() > quote:
            return outside, found.start() == quote
        outside = found.end()
    return outside, False


def _number(data: bytes, start: int, end: int, at: int) -> re.Match[bytes] | None:
    """Return the number around a place between two strings."""
    numbers = _NUMBER.finditer(data, start, end)
    return next((found for found in numbers if found.start() <= at < found.end()), None)


def _is_escaped(data: bytes, quote: int) -> bool:
    before = quote
    while before and data[before - 1] == _BACKSLASH:
        before -= 1
    return (quote - before) % 2 == 1


def decoded(text: bytes) -> bytes:
    """Return the UTF-8 of the string whose JSON has this between its quotes."""
    if b"\\" not in text:
        return text
    found: str = json.loads(b'"' + text + b'"', strict=False)
    return found.encode("utf-8", "surrogatepass")


def encoded(text: bytes, ascii_only: bool = False) -> bytes:
    """Return the inverse of `decoded`."""
    if not _TO_ESCAPE.search(text) and (not ascii_only or text.isascii()):
        return text
    string = text.decode("utf-8", "surrogatepass")
    return json.dumps(string, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
