"""The text of the program's functions behind a failure, as it was recorded.

Lives here: reading it from a failure, and its form without what differs between two copies of one
function: names of variables, layout, comments.  Numbers and texts count: a limit or a table may be
all that sets two functions apart.  Not here: how it is recorded (`torchreel.recorder.frames`).
"""

from __future__ import annotations

import ast
import symtable
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchreel.store.documents.jsontypes import Json, digest_of
from torchreel.store.documents.kinds import list_only

_REDACTED = "<redacted>"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NOT_TEXT = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class RecordedDefinition:
    """A statement of a file, and the line where it begins."""

    file: str
    line: int
    text: str

    def holds(self, file: str, line: int) -> bool:
        """Return True if a line of a file is in it."""
        return self.file == file and self.line <= line <= self.line + self.text.count("\n")

    @property
    def function(self) -> _Function | None:
        """The function that it defines, parsed; None if it is none."""
        try:
            (node,) = ast.parse(textwrap.dedent(self.text)).body
        except _NOT_TEXT:
            return None
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


@dataclass(frozen=True)
class Definitions:
    """The definitions that were recorded with a failure."""

    called: tuple[tuple[RecordedDefinition, ...], ...] = ()
    """The functions that the compiler called, with what they use; for each exception of the chain
    that passed the program's code: nothing, where its text could not be found."""
    traced: tuple[RecordedDefinition, ...] = ()
    """The functions that Dynamo was tracing, the outermost first."""

    def called_forms(self, frames: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        """Return the forms of what the compiler called; nothing if a frame is not in it.

        A text from which something was redacted may stand for two that differ: it counts as none.
        """
        for found in self.called:
            is_whole = found and not any(_REDACTED in each.text for each in found)
            if is_whole and all(any(each.holds(*frame) for each in found) for frame in frames):
                return tuple(form_of(each.text) for each in found)
        return ()

    def traced_at(self, file: str, line: int) -> RecordedDefinition | None:
        """Return the function that Dynamo was tracing at a line, if its text is whole."""
        found = [each for each in self.traced if each.holds(file, line)]
        return found[-1] if found and _REDACTED not in found[-1].text else None


NO_DEFINITIONS = Definitions()
"""Of a failure that was recorded without any."""


def definitions_of(chain: Json) -> Definitions:
    """Return the definitions in the chain of a failure; what is none of these is passed over."""
    members = [each for each in list_only(chain) if isinstance(each, dict)]
    return Definitions(
        tuple(tuple(_read(each["called"])) for each in members if "called" in each),
        tuple(one for each in members for one in _read(each.get("traced"))),
    )


def _read(found: Json) -> Iterator[RecordedDefinition]:
    for each in list_only(found):
        match each:
            case {"file": str(file), "line": int(line), "text": str(text)}:
                yield RecordedDefinition(file.replace("\\", "/"), line, text)


def form_of(text: str) -> str:
    """Return the digest of a statement without names of variables, layout, comments, docstrings."""
    text = textwrap.dedent(text)
    try:
        tree = _Renamed(_variables(text)).visit(ast.parse(text))
        text = ast.unparse(tree)
    except _NOT_TEXT:
        pass  # written for another Python: as it is
    return digest_of(text.encode("utf-8", "replace"))[:16]


def _variables(text: str) -> set[str]:
    """Return the names that belong to the functions of a statement alone."""
    own: set[str] = set()
    others: set[str] = set()
    for table in _tables(symtable.symtable(text, "text", "exec")):
        for symbol in table.get_symbols():
            is_own = table.get_type() == "function" and not (
                symbol.is_global() or symbol.is_imported() or symbol.is_namespace()
            )
            (own if is_own else others).add(symbol.get_name())
    return own - others


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


class _Renamed(ast.NodeTransformer):
    """Gives variables the names v0, v1, ..., and takes out docstrings."""

    def __init__(self, variables: set[str]) -> None:
        self._variables = variables
        self._names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name not in self._variables:
            return name
        return self._names.setdefault(name, f"v{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._name(node.arg)
        self.generic_visit(node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        self.generic_visit(node)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self._name(name) for name in node.names]
        return node

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        self.generic_visit(node)
        return node

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.rest = self._name(node.rest) if node.rest else None
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Return a text that nothing is done with is a comment."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Pass()
        self.generic_visit(node)
        return node
