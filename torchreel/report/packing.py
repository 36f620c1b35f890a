"""Parts of the document that a page reads only when they are looked at: deflated, in base64.

Lives here: the form of a packed part, each once, within a budget; and which characters any text of
the document may have.  A browser unpacks a part with its own `DecompressionStream`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from torchreel.errors import DamagedStore
from torchreel.escaping.characters import visible_block
from torchreel.report.document import DocumentPart

_SQUEEZED = 40
"""The largest ratio of a part's length to its packed length: beyond it the length counts, for the
browser holds it unpacked. Code and graphs come to 5 to 15."""

_SPARE = 4
"""The share of a page that such parts may take, as its divisor."""

MOST_TEXT = 2_000_000
"""Characters of one text that a page shows: some four times the code of a graph of 5,000 nodes."""


class Packer:
    """The packed parts of a document; equal ones are one."""

    def __init__(self, budget: int) -> None:
        self.parts: list[str] = []
        self.left = budget
        """Bytes that may still be added."""
        self.spare = budget // _SPARE
        """Bytes of them that may be parts which a page can do without."""
        self._places: dict[str, int] = {}

    def add(self, part: DocumentPart) -> int:
        """Return the place of a part."""
        data = encoded(part)
        text = deflated(data)
        place = self._places.setdefault(text, len(self.parts))
        if place == len(self.parts):
            self.parts.append(text)
            self.left -= max(len(text), len(data) // _SQUEEZED)
        return place

    def add_spare(self, part: DocumentPart) -> int | None:
        """Return the place of a part that a page can do without; None where it has no room."""
        before, there = self.left, len(self.parts)
        if self.spare <= 0:
            return None
        place = self.add(part)
        self.spare -= before - self.left
        if self.spare < 0 and place == there:
            self._places.pop(self.parts.pop())
            self.left = before
            return None
        return place

    def add_if_room(self, make: Callable[[], DocumentPart]) -> int | None:
        """Return the place of a part that is made now, with the parts it refers to; None without
        room.

        Then nothing has room any more: to make all the others, for the few small ones among them,
        would take minutes.
        """
        if self.left <= 0:
            return None
        before = len(self.parts)
        place = self.add(make())
        if self.left < 0:
            self.close(before)
            return None
        return place

    def close(self, number: int) -> None:
        """Take out all but the first `number` parts, for which there was room, and take no more."""
        for text in self.parts[number:]:
            del self._places[text]
        del self.parts[number:]
        self.left = 0


def deflated(data: bytes) -> str:
    """Return JSON as text: deflated, in base64."""
    deflate = zlib.compressobj(9, wbits=-15)
    return base64.b64encode(deflate.compress(data) + deflate.flush()).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return the JSON of a packed part.  Raises DamagedStore for a text that is none."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True), wbits=-15)
    except (ValueError, zlib.error) as error:
        raise DamagedStore(f"A part of the report can't be unpacked: {error}.") from error


def encoded(part: DocumentPart) -> bytes:
    """Return a part as JSON, in which every character can be seen."""
    return msgspec.json.encode(_visible(msgspec.to_builtins(part)))


def json_block(data: bytes) -> str:
    """Return JSON for a script element: nothing in it ends the element, or begins a comment."""
    text = data.decode("utf-8")
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible_block(_cut(value))
    if isinstance(value, dict):
        return {visible_block(key): _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value


def _cut(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]} ... and {len(text) - MOST_TEXT:,} more characters"
