"""The statement of the program that Dynamo was tracing, and what it is about.

`if same:` says nothing; the statement that made `same` does.  Lives here: statements without the
names of their variables, and which others tell what one is about.  Not here: when that is asked
(`program_part`).
"""

from __future__ import annotations

import ast
import keyword
import re
import tokenize
from collections import deque
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import NamedTuple

from torchreel.analysis.triage.definitions import (
    NO_DEFINITIONS,
    Definitions,
    RecordedDefinition,
    form_of,
)

_USER_CODE = "from user code:"
_USER_FRAME = re.compile(r'^ +File "(.*)", line (\d+), in (.+)\n +(.+)$', re.MULTILINE)
_TORCH_FILE = re.compile(r"/(?:site|dist)-packages/torch/|/torch/_")
_ORIGIN = re.compile(r'# File ".*", line \d+, in \S+, code: (.+)$', re.MULTILINE)
_MOST_STEPS = 4
"""Statements that say nothing by themselves, one after another."""


class _Traced(NamedTuple):
    """A function that Dynamo was tracing, at a line."""

    file: str
    line: int
    function: str
    text: str


def statements(message: str, definitions: Definitions) -> tuple[str, ...]:
    """Return the statement that Dynamo was tracing, and those that made what it stopped at."""
    before, found, after = message.partition(_USER_CODE)
    frames = [_Traced(file, int(line), *rest) for file, line, *rest in _USER_FRAME.findall(after)]
    if not found or not frames:
        return ()
    # What is executed of torch's own files is the same for many programs.
    own = [frame for frame in frames if not _TORCH_FILE.search(frame.file)] or frames
    origins = sorted({structure(code) for code in _ORIGIN.findall(before)})
    try:
        first, *others = _told_by(own, definitions)
    except RecursionError:  # a text that is deeper than Python goes
        first, *others = _told_by(own, NO_DEFINITIONS)
    return (first, *origins, *others)


def _told_by(frames: Sequence[_Traced], definitions: Definitions) -> Iterator[str]:
    """Yield the innermost statement, and what tells what it is about if it says nothing itself."""
    frame = frames[-1]
    written = _written(frame, definitions)
    if _is_whole(frame.text):
        yield structure(frame.text)
        if _does_something(frame.text):
            return
    elif written is not None:
        yield structure(header(written.statement))
        if _does_something(header(written.statement)):
            return
    else:
        yield structure(frame.text)
    if written is None:
        yield frame.function
        return
    made = list(_made_by(written, frames[:-1], definitions, _MOST_STEPS))
    yield from made or [frame.function, form_of(written.definition.text)]


# -- what made a name -----------------------------------------------------------------------------


class _Written(NamedTuple):
    """A statement where it is written."""

    definition: RecordedDefinition
    function: ast.FunctionDef | ast.AsyncFunctionDef
    statement: ast.stmt


def _written(frame: _Traced, definitions: Definitions) -> _Written | None:
    definition = definitions.traced_at(frame.file, frame.line)
    function = definition.function if definition is not None else None
    if definition is None or function is None:
        return None
    line = frame.line - definition.line + 1
    around = [each for each in _within(function) if each.lineno <= line <= (each.end_lineno or 0)]
    return _Written(definition, function, around[-1]) if around else None


def _within(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return the statements in a function, what holds another one before it."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    return sorted(found[1:], key=lambda node: (node.lineno, node.col_offset))


def _made_by(
    written: _Written, callers: Sequence[_Traced], definitions: Definitions, steps: int
) -> Iterator[str]:
    """Yield the statements that made what a statement names; nothing if one can't be found."""
    found: list[str] = []
    for name in _names(written.statement):
        maker = _maker(written, name)
        if maker is not None:
            text = header(maker)
            found.append(structure(text))
            if not _does_something(text):
                inner = list(
                    _made_by(written._replace(statement=maker), callers, definitions, steps - 1)
                    if steps
                    else ()
                )
                if not inner:
                    return
                found += inner
        elif _is_parameter(written.function, name) and callers:
            found.append(structure(_whole(callers[-1], definitions)))
        else:
            return
    yield from found


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement reads, without those of the statements in it."""
    found = (node for node in _head(statement) if isinstance(node, ast.Name))
    return list(dict.fromkeys(node.id for node in found if isinstance(node.ctx, ast.Load)))


def _bound(statement: ast.stmt) -> set[str]:
    found = (node for node in _head(statement) if isinstance(node, ast.Name))
    return {node.id for node in found if isinstance(node.ctx, ast.Store)}


def _head(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement without those of the statements in it."""
    waiting: deque[ast.AST] = deque([statement])
    while waiting:
        node = waiting.popleft()
        yield node
        waiting.extend(
            each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)
        )


def _maker(written: _Written, name: str) -> ast.stmt | None:
    """Return the last statement before this one that gives a name its value."""
    before = [
        each
        for each in _within(written.function)
        if each.lineno < written.statement.lineno and name in _bound(each)
    ]
    return before[-1] if before else None


def _is_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    return any(node.arg == name for node in ast.walk(function.args) if isinstance(node, ast.arg))


def _whole(frame: _Traced, definitions: Definitions) -> str:
    """Return the whole statement at a line, if its text is known."""
    written = None if _is_whole(frame.text) else _written(frame, definitions)
    return frame.text if written is None else header(written.statement)


def header(statement: ast.stmt) -> str:
    """Return a statement as text, without the statements in it."""
    text = ast.unparse(statement)
    body: list[ast.stmt] = getattr(statement, "body", [])
    return text.partition("\n" + " " * 4)[0] if body else text


# -- their structure ------------------------------------------------------------------------------

_F_STRING = re.compile(r"[rR]?[fF]")
_FORMATTED = re.compile(r"((?<!\{))\{[^{}]+\}")


def structure(line: str) -> str:
    """Return a line of a program without the names of its variables, and without its numbers."""
    names: dict[str, str] = {}
    found: list[str] = []
    tokens = list(_tokens(line))
    for number, (kind, text) in enumerate(tokens):
        following = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        if kind == tokenize.NUMBER:
            found.append("N")
        elif kind == tokenize.STRING:
            found.append(_FORMATTED.sub(r"\1{}", text) if _F_STRING.match(text) else text)
        elif kind != tokenize.NAME or _is_kept(text, found, following):
            found.append(text)
        else:
            found.append(names.setdefault(text, f"v{len(names)}"))
    return " ".join(found)


def _is_kept(name: str, before: Sequence[str], following: str) -> bool:
    is_member = bool(before) and before[-1] == "."
    return is_member or following == "(" or keyword.iskeyword(name)


def _tokens(line: str) -> Iterator[tuple[int, str]]:
    """Yield the tokens of a line, as far as it is one: a statement may go on in the next one."""
    try:
        for token in tokenize.generate_tokens(StringIO(line).readline):
            if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP):
                yield token.type, token.string
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def _is_whole(line: str) -> bool:
    """Return True if a line is all of a statement, or the head of one with a body."""
    line = re.sub(r"^el(?=if\b)", "", line)
    for text in (line, f"{line}\n    pass", f"async def f():\n    {line}"):
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return True
    return False


def _does_something(line: str) -> bool:
    """Return True if a line calls or computes something: a bare name says nothing."""
    return bool(re.search(r"[(\[.+*/@<>%&|^~-]", line))
