"""A text without what the program put into it, for the level `all`.

Lives here: taking out text between quotes, numbers, lines of source and directories.  Kept are
sizes, strides, symbols, positions in files, numbers in graphs and in generated code, names; the
same in a table is in docs/redaction.md.  Not here: JSON documents and columns (`strict`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from torchreel.patterns import lazy
from torchreel.recorder.redaction.known.names import ANNOTATION
from torchreel.recorder.redaction.level import PATH, REDACTED
from torchreel.recorder.redaction.literals import Literal, literals

_compiled = cache(re.compile)

_SOURCE_LINES = lazy(
    rb"(?m)^(?P<head>(?P<indent>[ \t|]*)File \"?[^\n]+\n)"
    rb"(?:(?P=indent)[ \t]+(?!File )[^\n]*(?:\n|\Z))+"
)
# What torch's readable graphs write above nodes of another line of the source, or of none.
_COMMENTS = lazy(
    rb"(?:\n[ \t]*)?\n[ \t]*(?:# File: [^\n]*|# No stacktrace found for following nodes)"
)
# Behind a guard in torch's tree of them stand the line that it is for, and where that is.
_GUARD_PLACE = lazy(rb"[ \t]# [^#\"\\\n]{1,300}?:\d+ in [^\s\"\\]+")
_COMMENT = lazy(rb"[ \t]+# ")
# AOTAutograd's metadata has whole stacks, as Python spells text.
_STACKS = lazy(
    rb"(?<=tangent_source_stack_traces=\[)"
    rb"(?:None|'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"|[\s,])++(?=\])"
)
# A factor of a key of Inductor's cache: `[digest] inductor_config[name]: value`.
_SETTING = lazy(
    rb"(?m)^(?P<head>\[\w{20,64}\] [\w.]{0,40}config\[[^\]\n]{1,200}\]: )"
    rb"(?!(?:None|True|False)$)[^\n]+"
)
_LEFT_OUT = (
    (b"# File: ", _COMMENTS), (b"# No stack", _COMMENTS),
    (b"tangent_source_stack_traces", _STACKS),
)  # fmt: skip
# Looked for by its first slash: looking behind at each byte takes 50 times as long.
_PATHS = lazy(rb"(?:~/|/(?:(?<![\w.~)\]/-]/))(?=[\w.@+~-]+/))[\w.@+~-]+(?:/[\w.@+~-]+)*")
_FILE = lazy(rb"[^/]+\.\w{1,8}\Z")

_GENERATED = lazy(
    rb"\s*(?:class [\w<>.]+\(torch\.nn\.Module\):|def forward\(|# AOT ID:|# Topologically Sorted|"
    rb"from ctypes import |#include |#pragma |extern \"C\"|graph\(\):|import torch\b"
    rb"|import triton\b)"
)
"""Beginnings of graphs and generated code: the compiler wrote every number in them."""
_SIZES = lazy(
    rb"\b(?:size|stride|shape|sizes|strides|torch\.Size|storage_offset|numel)(?:\(\))?[=:(]?\s*"
    rb"(?:\([^()\n'\"]*\)|\[[^\[\]\n'\"]*\])"
)
_ABOUT_SIZES = lazy(
    rb"\.(?:size|stride|storage_offset|numel|dim)\(\)|\b[suz]u?\d+\b|\bcheck_tensor\("
)
_PARTS = lazy(rb"\n| and | or |; ")
_POSITION = lazy(
    rb"(?:\b[Ll]ine:? |lineno=|\.(?:pyx?|cpp|cc|h|hpp|cu|so|c)[>\"']?:(?:\d+:)?"
    rb"|\b(?:attempt|version|gcc) )\Z"
)
_ID = lazy(rb"(?:^|[\s\[])\d{1,3}/\Z")
"""The name of a compile: 0/12."""
_OPCODE_LINE = lazy(rb"[\s\d>]*\d+ [A-Z][A-Z_]{2,}\b")
_HAS_LITERAL = lazy(rb"['\"\d/]")


def text(data: bytes, *, generated: bool = False, numbers: bool = True) -> bytes:
    """Return a text without strings, numbers, lines of source and directories."""
    if not _HAS_LITERAL.search(data):
        return data
    if b"config[" in data:
        data = _SETTING.sub(rb"\g<head>" + REDACTED, data)
    if b"File " in data:
        data = _SOURCE_LINES.sub(rb"\g<head>", data)
    for anchor, pattern in _LEFT_OUT:
        if anchor in data:
            data = pattern.sub(b"", data)
    if b" in " in data and b"# " in data:
        data = b"\n".join(map(_without_guarded_line, data.split(b"\n")))
    generated = generated or _GENERATED.match(data) is not None
    data = _without_literals(data, generated, numbers and not generated)
    if b"/" in data:
        data = _PATHS.sub(_without_directory, data)
    return data


def without_stacks(data: bytes) -> bytes:
    """Return a text without AOTAutograd's stacks; before a secret in one hides where they end."""
    return _STACKS.sub(b"", data) if b"tangent_source_stack_traces" in data else data


def _without_directory(path: re.Match[bytes]) -> bytes:
    file = _FILE.search(path[0])
    return PATH + (b"/" + file[0] if file is not None else b"")


def _without_guarded_line(line: bytes) -> bytes:
    """Return a line of torch's tree of guards without the line of source that the guard is for."""
    comment = _COMMENT.search(line) if b" in " in line else None
    if comment is None:
        return line
    end = max((place.end() for place in _GUARD_PLACE.finditer(line, comment.end() - 1)), default=0)
    return line[: comment.start()] + line[end:] if end else line


def _without_literals(data: bytes, generated: bool, numbers: bool) -> bytes:
    found = list(literals(data))
    sizes = _Sizes(_without_strings(data, found)) if numbers else None
    parts: list[bytes] = []
    done = 0
    for literal in found:
        if literal.is_number:
            if sizes is None or _is_small(literal) or sizes.has(literal):
                continue
            by = REDACTED
        else:
            by = _kept(data, literal, generated)
        parts += [data[done : literal.inner], by]
        done = literal.inner_end
    return b"".join([*parts, data[done:]])


def _without_strings(data: bytes, found: Iterable[Literal]) -> bytes:
    """Return a text of the same length with blanks in its strings: 's0' in one is no symbol."""
    blank = bytearray(data)
    for literal in found:
        if not literal.is_number:
            length = literal.inner_end - literal.inner
            blank[literal.inner : literal.inner_end] = b" " * length
    return bytes(blank)


def _kept(data: bytes, literal: Literal, generated: bool) -> bytes:
    """Return the rest of a string: empty except for the text that torch itself quotes."""
    inner = data[literal.inner : literal.inner_end]
    if not inner or _compiled(ANNOTATION).fullmatch(inner):
        return inner
    if generated and b"\n" in inner:  # a kernel in generated code
        return text(inner, generated=True)
    return REDACTED


def _is_small(literal: Literal) -> bool:
    """Return True for one digit: it says nothing, and is a position more often than not."""
    return literal.end - literal.start == 1


class _Sizes:
    """Finds the numbers of a text that are sizes, positions or the compiler's own."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._spans = [match.span() for match in _SIZES.finditer(data)]
        self._at = 0
        self._part: tuple[int, int, bool] = (0, 0, False)

    def has(self, literal: Literal) -> bool:
        """Return True if a number is a size, a position or the compiler's own.

        To be called for the numbers of a text in their order.
        """
        while self._at < len(self._spans) and self._spans[self._at][1] <= literal.start:
            self._at += 1
        if self._at < len(self._spans) and self._spans[self._at][0] <= literal.start:
            return True
        before = self._data[max(0, literal.start - 24) : literal.start]
        if _POSITION.search(before) or (literal.end - literal.start <= 3 and _ID.search(before)):
            return True
        return self._is_in_expression(literal) or self._is_in_bytecode(literal)

    def _is_in_expression(self, literal: Literal) -> bool:
        """Return True if the guard or the line around it speaks of sizes or symbols."""
        if not self._part[0] <= literal.start < self._part[1]:
            start = max(
                (
                    match.end()
                    for match in _PARTS.finditer(self._data, self._part[1], literal.start)
                ),
                default=self._part[1],
            )
            behind = _PARTS.search(self._data, literal.end)
            end = behind.start() if behind is not None else len(self._data)
            about = _ABOUT_SIZES.search(self._data, start, end) is not None
            self._part = (start, end, about and end - start < 400)
        return self._part[2]

    def _is_in_bytecode(self, literal: Literal) -> bool:
        """Return True if it is an offset or an argument in a listing of bytecode; constants are
        not.
        """
        line = self._data.rfind(b"\n", 0, literal.start) + 1
        return (
            _OPCODE_LINE.match(self._data, line) is not None
            and b"(" not in self._data[line : literal.start]
        )
