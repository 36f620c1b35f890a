"""Values that are known to be secret: from the environment, the command line, the program's frames.

Lives here: finding them again wherever they are written, however they are quoted or escaped.  Not
here: how they became known (`redactor`, `frames.secrets`).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from urllib.parse import quote, quote_plus

from ahocorasick_rs import MATCHKIND_LEFTMOST_LONGEST, BytesAhoCorasick, Implementation

from torchreel.patterns import lazy, lazy_text
from torchreel.recorder.redaction import words_of_torch
from torchreel.recorder.redaction.level import REDACTED

_MOST = 5000
"""Values that are remembered; beyond, the oldest are forgotten."""
_MOST_CLEARED = 100_000
"""Words of graphs: of a thousand of them, with a hundred nodes each."""
_SHORTEST = 4
_SHORTEST_BARE = 8
_LEAST_DIGITS = 6
_PIECE = 300
"""Characters: a longer value is looked for in pieces, line by line."""
_LONGEST = 30_000
_WORD = lazy_text(r"[A-Za-z_.]+|\d+")
_QUOTES = b"'\""
_MARK = REDACTED.decode()
_DECIMAL = lazy_text(r"-?\d+\.\d+(?:e[+-]?\d+)?")
"""A number of the computation, which may stand under any name and anywhere."""
_MADE = lazy_text(
    r"<(?:lambda|listcomp|setcomp|dictcomp|genexpr|module|locals|string|stdin|console|unknown|path"
    r"|frozen [\w.]+|eval_with_key|ipython-input[\w-]*)>"
)
"""Names of code that Python and torch make, which begin a text."""
_NEWLINE = 10
_NAMES = lazy(rb"[\w]")


class Where(IntEnum):
    """The places from which a value is taken out."""

    QUOTED = 0
    """Only as the whole of a string, or of what a line says: it could be a word of the language."""
    WHOLE = 1
    """Not within a longer name."""
    ANYWHERE = 2


_Test = Callable[[Where, bytes, int, int], bool]


class KnownValues:
    """Values to take out of text, in every way that they may be spelled."""

    def __init__(self) -> None:
        self._values: dict[str, Where] = {}
        self._lasting: dict[str, Where] = {}
        """Those that are never forgotten: of the environment, which is looked at once."""
        self._cleared: set[str] = set()
        self._version = 0
        self._search: tuple[BytesAhoCorasick, list[Where]] | None = None

    def __contains__(self, value: str) -> bool:
        return value in self._values or value in self._lasting

    def clear(self, words: Iterable[str]) -> bool:
        """Take these out no more, but for lasting ones: the compiler needs them.

        Returns True if one was known.
        """
        if len(self._cleared) < _MOST_CLEARED:
            self._cleared.update(words)
        known = self._cleared.intersection(self._values)
        for word in known:
            del self._values[word]
        if known:
            self._version += 1
            self._search = None
        return bool(known)

    def is_cleared(self, word: str) -> bool:
        """Return True if the compiler is known to need a word."""
        return word in self._cleared and word not in self._lasting

    def add(self, value: str, where: Where | None = None, *, lasting: bool = False) -> bool:
        """Remember a value; one that could be a word of the language is known only in quotes.

        Of values that are not `lasting`, the oldest is forgotten when there are too many.

        Returns True if it is new.
        """
        if not _SHORTEST <= len(value) <= _LONGEST or _MARK in value or _MADE.match(value):
            return False
        if (
            value in ("None", "True", "False")
            or _DECIMAL.fullmatch(value)
            or (value in self._cleared and not lasting)
        ):
            return False
        if value.startswith("/") and os.path.exists(value):  # PWD is in all paths, and no password
            return False
        if len(value) > _PIECE or "\n" in value:
            pieces = _pieces(value)
            return max([self.add(part, where, lasting=lasting) for part in pieces], default=False)
        if where is None:
            bare = len(value) >= _SHORTEST_BARE and not _WORD.fullmatch(value)
            where = Where.ANYWHERE if bare else Where.QUOTED
            if value.isdigit() and len(value) >= _LEAST_DIGITS:
                where = Where.WHOLE
        values = self._lasting if lasting else self._values
        if max(values.get(value, -1), self._lasting.get(value, -1)) >= where:
            return False
        if not lasting and len(values) >= _MOST:
            values.pop(next(iter(values)), None)
        values[value] = where
        self._version += 1
        self._search = None
        return True

    def places(self, data: bytes) -> list[int]:
        """Return the positions where known values may begin in a JSON document."""
        return [start for start, _ in self._found(data, _may_be_there)]

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where they stand in a text."""
        return self._found(data, _is_there)

    def removed_from(self, data: bytes) -> bytes:
        """Return a text without them."""
        parts, position = [], 0
        for start, end in self.spans(data):
            parts += [data[position:start], REDACTED]
            position = end
        return b"".join([*parts, data[position:]]) if parts else data

    def _found(self, data: bytes, test: _Test) -> Iterator[tuple[int, int]]:
        if not self._values and not self._lasting:
            return
        search = self._search
        if search is None:
            # The compiling thread may learn meanwhile: what was built then is not kept.
            version, search = self._version, self._build()
            self._search = search if version == self._version else None
        automaton, places = search
        for number, start, end in automaton.find_matches_as_indexes(data):
            if test(places[number], data, start, end):
                yield start, end

    def _build(self) -> tuple[BytesAhoCorasick, list[Where]]:
        spelled: dict[bytes, Where] = {}
        for value, where in [*self._lasting.items(), *self._values.items()]:
            for text in written(value):
                data = text.encode("utf-8", "surrogatepass")
                spelled[data] = max(spelled.get(data, where), where)
            if where is Where.ANYWHERE:
                spelled.update((data, where) for data in _encoded(value))
        # The default, a complete automaton, takes seconds to build for long values.
        kind = Implementation.ContiguousNFA
        automaton = BytesAhoCorasick(list(spelled), MATCHKIND_LEFTMOST_LONGEST, kind)
        return automaton, list(spelled.values())


def _pieces(value: str) -> Iterator[str]:
    for line in value.splitlines():
        for start in range(0, len(line), _PIECE):
            piece = line[start : start + _PIECE].strip()
            if len(piece) >= _SHORTEST_BARE:
                yield piece


def _is_there(where: Where, data: bytes, start: int, end: int) -> bool:
    """Return True if a value that stands here in a text is to be taken out."""
    if where is not Where.QUOTED:
        return where is Where.ANYWHERE or _is_whole(data, start, end)
    if _is_quoted(data, start, end):
        return True
    return _is_alone(data, start, end) and not _is_torchs(data, start, end)


def _may_be_there(where: Where, data: bytes, start: int, end: int) -> bool:
    """Return the same for the bytes of a JSON document, where text is itself in quotes."""
    if where is not Where.QUOTED:
        return _is_there(where, data, start, end)
    before, behind = data[max(0, start - 2) : start], data[end : end + 2]
    begins = before == b": " or before == b"\\n" or before[-1:] == b'"'
    if begins and (behind[:1] == b'"' or behind == b"\\n"):
        return behind != b'":' and not _is_torchs(data, start, end)
    return _is_quoted(data, start, end)


def _is_torchs(data: bytes, start: int, end: int) -> bool:
    """Return True if it is a word of torch, which would be missed where nothing marks a text."""
    return data[start:end].decode("utf-8", "replace") in words_of_torch.words()


def _is_quoted(data: bytes, start: int, end: int) -> bool:
    """Return True if this is a string, or the beginning or the end of a formatted one."""
    before, behind = data[start - 1 : start] if start else b"", data[end : end + 1]
    return bool(before) and (
        (before in _QUOTES and behind in (before, b"\\", b"{"))
        or (before == b"}" and behind in _QUOTES)
    )


def _is_alone(data: bytes, start: int, end: int) -> bool:
    """Return True if a line says nothing else, or ends with it: `ValueError: hunter`."""
    begins = start == 0 or data[start - 1] == _NEWLINE or data[start - 2 : start] == b": "
    return begins and (end == len(data) or data[end] == _NEWLINE)


def _is_whole(data: bytes, start: int, end: int) -> bool:
    return not _NAMES.match(data[max(0, start - 1) : start]) and not _NAMES.match(data, end)


def written(plain: str) -> set[str]:
    """Return a text as it is, as Python or JSON has it, and as JSON has that: of a graph's code,
    say.
    """
    once = {plain, repr(plain)[1:-1], *_in_json(plain)}
    return once.union(*map(_in_json, once))


def _encoded(plain: str) -> Iterator[bytes]:
    """Yield a text in hex, in an address or a page, and in base64 but for the ends that others
    share.
    """
    data = plain.encode("utf-8", "surrogatepass")
    yield from (data.hex().encode(), plain.translate(_IN_HTML).encode("utf-8", "surrogatepass"))
    yield from (quote(data, safe=safe).encode() for safe in ("", "/"))
    yield quote_plus(data).encode()
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(b"x" * before + data)
            yield whole[4 if before else 0 : len(whole) - 4]


_IN_HTML = str.maketrans({
    "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;",
})  # fmt: skip


def _in_json(text: str) -> set[str]:
    """Return a text as it is in JSON: escaped to ASCII, as torch writes it, and not, as we do."""
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
