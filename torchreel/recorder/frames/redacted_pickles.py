"""Redaction of a pickle, string by string.

Lives here: finding the strings of a pickle, and putting others in their place.  Not here: what a
secret is (`recorder.redaction`), and the names and values that the pickler came across (`notes`).
"""

from __future__ import annotations

import linecache
import pickletools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cloudpickle

from torchreel.recorder.frames.notes import Notes
from torchreel.recorder.redaction import REDACTED, Redactor

_OPCODES = {"BINUNICODE": (4, b"X"), "BINBYTES": (4, b"B"), "SHORT_BINBYTES": (1, b"B")}
"""Strings and bytes in a pickle: how many bytes of length stand before them, and the opcode that
is put in their place (with four)."""
_MARK = REDACTED.decode()
_SHORTEST = 4
"""Characters: a shorter string is a name of a variable rather than a secret."""


def redacted_pickle(data: bytes, redactor: Redactor | None, notes: Notes) -> tuple[bytes, int]:
    """Return a pickle with each string redacted, and the number of strings with a secret.

    A string is searched by itself, as a value in a dictionary, and as a constant of the files that
    the code is from, where names stand before their values.
    """
    if redactor is None or redactor.is_off:
        return data, 0
    # {"embed_tokens": "input_ids"} speaks of an argument, and whoever is asked learns it.
    pairs = [pair for pair in notes.pairs if pair[1] not in notes.variables]
    values = {value for key, value in pairs if _MARK in redactor.text(f"{key} = {value!r}")}
    values |= notes.constants if redactor.rules.mode != "none" else set()
    sources = [_source(file, redactor) for file in sorted(notes.files)]
    # The code would be other code without a name that it has.
    plain = notes.variables | notes.names | _class_ids()
    parts: list[bytes] = []
    position = count = 0
    for found in _strings(data):
        if found.text in plain:
            continue
        text = _MARK if found.text in values else _without_secret(found.text, redactor, sources)
        if text != found.text:
            parts += [data[position : found.start], found.replaced(text)]
            position = found.end
            count += _MARK in text
    return b"".join([*parts, data[position:]]), count


def _class_ids() -> set[str]:
    """Return the random names by which cloudpickle knows a class again: 32 digits, as of a key."""
    return set(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.values())


@dataclass(frozen=True)
class _Text:
    """A string, or bytes, in a pickle."""

    text: str
    opcode: str
    start: int
    end: int

    def replaced(self, text: str) -> bytes:
        """Return another string in its place."""
        bytes_ = text.encode("utf-8" if self.opcode == "BINUNICODE" else "latin-1", "surrogatepass")
        return _OPCODES[self.opcode][1] + len(bytes_).to_bytes(4, "little") + bytes_


def _strings(data: bytes) -> Iterator[_Text]:
    """Yield each string of a pickle, and its bytes (those of code are hardly ever text)."""
    for opcode, argument, start in pickletools.genops(data):
        if opcode.name not in _OPCODES or start is None:
            continue
        first = start + 1 + _OPCODES[opcode.name][0]
        if isinstance(argument, bytes):
            yield _Text(argument.decode("latin-1"), opcode.name, start, first + len(argument))
        elif isinstance(argument, str):
            length = len(argument.encode("utf-8", "surrogatepass"))
            yield _Text(argument, opcode.name, start, first + length)


def _source(file: str, redactor: Redactor) -> tuple[str, str]:
    text = "".join(linecache.getlines(file))
    return text, redactor.text(text)


def _without_secret(text: str, redactor: Redactor, sources: Sequence[tuple[str, str]]) -> str:
    found = redactor.text(text)
    if len(text) < _SHORTEST or _MARK in found:
        return found
    if _MARK in redactor.text(repr(text)):
        return _MARK
    hidden = any(text in raw and text not in redacted for raw, redacted in sources)
    return _MARK if hidden and found == text else found
