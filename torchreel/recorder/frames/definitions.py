"""The program's own functions behind an exception, as text: what they are, not only where.

Two scripts may each have a backend `lower` that raises the same words, for other reasons: the text
of the function tells them apart where names do not.  Lives here: finding the definitions of the
functions of the program that torch called, with all that they use of their modules, and of those
that Dynamo was tracing.  Not here: which failures are one bug (`torchreel.analysis.triage`).
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import linecache
import re
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from torchreel import python_source
from torchreel.recorder.frames.secrets import is_installed
from torchreel.torch_compat.operators.custom_operators import implementation

MOST_TEXT = 20_000
"""Characters of the definitions behind one exception; of more, none is kept."""
_MOST_TRACED = 4
"""Functions that Dynamo was tracing, the innermost ones."""
_MOST_SOURCE = 2_000_000
_TRACED = re.compile(r'^ +File "(.*)", line (\d+), in .+$', re.MULTILINE)
_USER_CODE = "from user code:"
_ALWAYS_THERE = frozenset({*dir(builtins), "__name__", "__file__", "__doc__", "__package__"})


class SourceText(NamedTuple):
    """A statement of a file, and where it begins."""

    file: str
    line: int
    text: str


class _Unknown(Exception):
    """Something of the program's is used that its text does not show."""


def called_definitions(error: BaseException) -> list[SourceText] | None:
    """Return the functions of the program that torch called, and the definitions they use.

    None if it called none; empty if any of them can't be found, or they are too long.
    """
    waiting: list[tuple[_Module, int | str]] = list(_called_by_torch(error.__traceback__))
    if not waiting:
        return None
    found: dict[SourceText, None] = {}
    seen: set[tuple[str, int | str]] = set()
    try:
        while waiting:
            module, wanted = waiting.pop(0)
            if (module.file, wanted) not in seen:
                seen.add((module.file, wanted))
                for statement in _statements_of(module, wanted):
                    found[SourceText(module.file, statement.line, statement.text)] = None
                    waiting += module.used_by(statement)
            if sum(len(one.text) for one in found) > MOST_TEXT:
                return []
    except (_Unknown, ImportError, SyntaxError, ValueError, RecursionError):
        return []
    return list(found)


def traced_definitions(message: str) -> list[SourceText]:
    """Return the functions that Dynamo was tracing, by its message, the outermost first."""
    _, separator, after = message.partition(_USER_CODE)
    frames = _TRACED.findall(after) if separator else []
    found = (_around(file, int(line)) for file, line in frames[-_MOST_TRACED:])
    return [one for one in found if one is not None and len(one.text) <= MOST_TEXT]


def _called_by_torch(traceback: TracebackType | None) -> Iterator[tuple[_Module, int]]:
    """Yield the modules of the program that torch called, each with the line.

    Code that was made of text has no file, and is as often torch's own.  An operator may have
    returned already: torch raises because of its result.
    """
    inside = False
    while traceback is not None:
        frame = traceback.tb_frame
        name = frame.f_globals.get("__name__")
        if isinstance(name, str) and name.partition(".")[0] == "torch":
            inside = True
            function = implementation(frame)
            if function is not None and _is_own(function.__code__.co_filename):
                yield (
                    _Module(function.__globals__, function.__code__.co_filename),
                    (function.__code__.co_firstlineno),
                )
        elif inside and _is_own(frame.f_code.co_filename):
            yield _Module(frame.f_globals, frame.f_code.co_filename), traceback.tb_lineno
        traceback = traceback.tb_next


def _is_own(file: str) -> bool:
    return not file.startswith("<") and not is_installed(file)


# -- modules --------------------------------------------------------------------------------------


class _Statement(NamedTuple):
    """A statement of a module, outside of functions."""

    line: int
    text: str
    binds: frozenset[str]
    uses: frozenset[str]
    node: ast.stmt


class _Module(NamedTuple):
    """A module of the program: its globals, and its file."""

    scope: Mapping[str, Any]
    file: str

    def used_by(self, statement: _Statement) -> Iterator[tuple[_Module, int | str]]:
        """Yield the module and the name or line of each definition that a statement uses."""
        if any(map(self._is_own_import, _inner_imports(statement.node))):
            raise _Unknown
        for name in sorted(statement.uses - statement.binds - _ALWAYS_THERE):
            binding = [each for each in _parsed(_text_of(self.file)) if name in each.binds]
            if not binding:
                raise _Unknown
            for each in binding:
                if isinstance(each.node, (ast.Import, ast.ImportFrom)):
                    yield from self._imported(each.node, name, statement)
                else:
                    yield self, name

    def _imported(
        self, node: ast.Import | ast.ImportFrom, name: str, user: _Statement
    ) -> Iterator[tuple[_Module, int | str]]:
        """Yield the used definitions of an own module; of another one, the import if it renames."""
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) == name:
                module, member = self._meant(node, alias)
                if module is None or is_installed(module.file):
                    yield from [(self, node.lineno)] if alias.asname else []
                elif member:
                    yield module, member
                elif "." in alias.name and not alias.asname:
                    raise _Unknown
                else:
                    yield from ((module, each) for each in _members(user.node, name))

    def _meant(
        self, node: ast.Import | ast.ImportFrom, alias: ast.alias
    ) -> tuple[_Module | None, str]:
        """Return the module that an import names, and the name imported from it, '' for itself."""
        if isinstance(node, ast.Import):
            return _module(alias.name), ""
        path = "." * node.level + (node.module or "")
        path = importlib.util.resolve_name(path, self.scope.get("__package__") or "")
        whole = _module(f"{path}.{alias.name}")
        return (whole, "") if whole is not None else (_module(path), alias.name)

    def _is_own_import(self, node: ast.Import | ast.ImportFrom) -> bool:
        meant = (self._meant(node, alias)[0] for alias in node.names)
        return any(module is not None and not is_installed(module.file) for module in meant)


def _inner_imports(statement: ast.stmt) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports within a statement that is none itself: they are not followed."""
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield node


def _members(user: ast.stmt, name: str) -> Iterator[str]:
    """Yield the attributes that a statement uses of a module that it knows by a name."""
    for node in ast.walk(user):
        match node:
            case ast.Attribute(ast.Name(found), member) if found == name:
                yield member


def _module(name: str) -> _Module | None:
    found = sys.modules.get(name)
    file = getattr(found, "__file__", None)
    return _Module(vars(found), file) if isinstance(file, str) else None


def _statements_of(module: _Module, wanted: int | str) -> Sequence[_Statement]:
    """Return the statement at a line, which has to be there, or those that bind a name."""
    statements = _parsed(_text_of(module.file))
    if isinstance(wanted, str):
        return [each for each in statements if wanted in each.binds]
    found = [
        each for each in statements if each.line <= wanted <= each.line + each.text.count("\n")
    ]
    if not found:
        raise _Unknown
    return found


def _text_of(file: str) -> str:
    return "".join(linecache.getlines(file))


@lru_cache(8)
def _parsed(text: str) -> tuple[_Statement, ...]:
    """Return the statements of a module.  Raises SyntaxError if it is none."""
    if len(text) > _MOST_SOURCE:
        raise _Unknown
    lines = text.split("\n")
    return tuple(_statement(node, lines) for node in python_source.parse(text).body)


def _statement(node: ast.stmt, lines: list[str]) -> _Statement:
    first = _first_line(node)
    text = "\n".join(lines[first - 1 : node.end_lineno])
    table = python_source.symbols(text)
    symbols = table.get_symbols()
    binds = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    uses = {each.get_name() for each in symbols if each.is_referenced()}
    for inner in _inner_tables(table):
        uses |= {each.get_name() for each in inner.get_symbols() if each.is_global()}
    return _Statement(first, text, frozenset(binds), frozenset(uses), node)


def _inner_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _inner_tables(child)


def _first_line(node: ast.stmt) -> int:
    """Return the line that a statement begins at, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _around(file: str, line: int) -> SourceText | None:
    """Return the innermost function around a line of a program's file; of none, the statement."""
    if is_installed(file):
        return None
    text = _text_of(file)
    try:
        module = python_source.parse(text) if len(text) <= _MOST_SOURCE else None
    except (SyntaxError, ValueError, RecursionError):
        return None
    around = [
        node
        for node in (ast.walk(module) if module is not None else ())
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and _first_line(node) <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return None
    node = max(around, key=lambda each: each.lineno)
    first = _first_line(node)
    return SourceText(file, first, "\n".join(text.split("\n")[first - 1 : node.end_lineno]))
