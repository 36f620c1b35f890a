"""The source of a function as a syntax tree, from the lines that a bundle carries.

A bundle has the lines of each function that it holds by value; of others the files are here. What
is not needed goes: annotations, docstrings, decorators (what they did is in the objects: a wrapper
is a function with a closure). Not here: what the names in it stand for (`objects`).
"""

from __future__ import annotations

import ast
import dis
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from tokenize import TokenError
from types import CodeType, FunctionType

Lines = Mapping[str, Mapping[str, str]]
"""The lines of source beside a bundle, by file, then by line number."""


class Sources:
    """Finds the source of functions."""

    def __init__(self, recorded: Lines) -> None:
        self._recorded = recorded

    def function(self, function: FunctionType) -> ast.FunctionDef | None:
        """Return the definition of a function, named as it calls itself.

        None where there is no source.
        """
        code = function.__code__
        if code.co_name == "<lambda>":
            return self._lambda(code)
        try:
            text = "".join(inspect.getblock(self._from(code.co_filename, code.co_firstlineno)))
            tree = ast.parse(textwrap.dedent(text)).body
        except (SyntaxError, TokenError, IndexError, ValueError):
            return None
        found = tree[0] if tree else None
        if not isinstance(found, ast.FunctionDef) or found.name != code.co_name:
            return None
        return _plain(found)

    def _from(self, file: str, first: int) -> list[str]:
        """Return the lines of a file from line `first` on: as recorded, else as they are here."""
        recorded = self._recorded.get(file, {})
        if str(first) not in recorded:
            return linecache.getlines(file)[first - 1 :]
        # A function has all of its lines: what comes after a gap belongs to another one.
        known = itertools.takewhile(lambda number: str(number) in recorded, itertools.count(first))
        return [recorded[str(number)] for number in known]

    def _lambda(self, code: CodeType) -> ast.FunctionDef | None:
        """Return a lambda as a function: its body is where its instructions say that it is."""
        places = [p for p in code.co_positions() if None not in p and p[3] != p[2]]
        if not places:
            return None
        first, last = min((p[0], p[2]) for p in places), max((p[1], p[3]) for p in places)
        lines = self._from(code.co_filename, first[0] or 1)[: (last[0] or 1) - (first[0] or 1) + 1]
        if not lines:
            return None
        # columns count bytes
        raw = [line.encode() for line in lines]
        raw[-1] = raw[-1][: last[1]]
        raw[0] = raw[0][first[1] or 0 :]
        try:
            tree = ast.parse(f"def function():\n return ({b''.join(raw).decode()})").body
        except SyntaxError:
            return None
        if not isinstance(tree[0], ast.FunctionDef):
            return None
        tree[0].args = _parameters(code)
        return tree[0]


def _parameters(code: CodeType) -> ast.arguments:
    """Return the parameters of code, without defaults: those belong to the function."""
    names = iter([ast.arg(name) for name in code.co_varnames])
    plain = list(itertools.islice(names, code.co_argcount))
    by_keyword = list(itertools.islice(names, code.co_kwonlyargcount))
    return ast.arguments(
        posonlyargs=plain[: code.co_posonlyargcount],
        args=plain[code.co_posonlyargcount :],
        vararg=next(names) if code.co_flags & inspect.CO_VARARGS else None,
        kwonlyargs=by_keyword,
        kw_defaults=[None] * code.co_kwonlyargcount,
        kwarg=next(names) if code.co_flags & inspect.CO_VARKEYWORDS else None,
        defaults=[],
    )


def _plain(found: ast.FunctionDef) -> ast.FunctionDef:
    """Remove annotations, docstrings, decorators and defaults, in place."""
    for node in ast.walk(found):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
            _drop_docstring(node)
        elif isinstance(node, ast.arg):
            node.annotation = None
    found.decorator_list = []
    found.args.defaults, found.args.kw_defaults = [], [None] * len(found.args.kwonlyargs)
    return _Unannotated().visit(found)  # type: ignore[no-any-return]


class _Unannotated(ast.NodeTransformer):
    """`x: int = 1` is `x = 1`."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], node.value, lineno=node.lineno)


def _drop_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body = node.body[1:] or [ast.Pass()]


def global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code, or code within it, loads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)


def all_names(code: CodeType) -> Iterator[str]:
    """Yield every name that code mentions: attributes too, and strings (for `getattr`)."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from all_names(constant)


def uses_nonlocal(tree: ast.AST) -> bool:
    """Return True if a function writes to its closure."""
    return any(isinstance(node, ast.Nonlocal) for node in ast.walk(tree))


class Renamed(ast.NodeTransformer):
    """Gives names of a function their names in the program, attributes of modules included."""

    def __init__(self, names: Mapping[str, str], attributes: Mapping[tuple[str, str], str]) -> None:
        self._names, self._attributes = names, attributes

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Return the name that the program uses."""
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `module.name`, where the module is one of the program's, by a name."""
        if isinstance(node.value, ast.Name):
            known = self._attributes.get((node.value.id, node.attr))
            if known is not None:
                return ast.Name(known, node.ctx)
        self.generic_visit(node)
        return node
