"""Programs as syntax trees, and edits at places in them.

A place is the path of fields from the module down to a node. Nodes are immutable (libcst): an edit
makes a new tree that shares all but one path with the old one. The text that comes out is in one
canonical layout, so that parentheses and commas are nobody's concern. Called by the passes.
"""

from __future__ import annotations

import ast
import builtins
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.passes.base import Edit, Pass
from torchreel.minifier.source.liveness import without_newly_dead

Place = tuple[tuple[str, int], ...]
"""Fields and positions (-1 where the field is no list), from the module inwards."""

# Layout, and the marks that the code generator puts by itself.
_LAYOUT = frozenset(
    {
        "comma", "semicolon", "lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "equal",
        "dot", "operator", "header", "footer", "leading_lines", "lines_after_decorators",
        "trailing_whitespace", "newline", "colon", "star", "first_colon", "second_colon",
    }
)  # fmt: skip
_BUILTINS = frozenset({*dir(builtins), "__name__", "__file__"})
# Programs are short: a few are kept, of which the best one is asked for again and again.
_KEPT = 8


class Skip(Exception):
    """The edit makes no sense at this place any more."""


class SourceEdit(Edit):
    """A proposal about the node at one place; a frozen dataclass."""

    place: Place

    @abstractmethod
    def change(self, node: cst.CSTNode) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
        """Return the nodes that replace `node`; None to remove it.  Raises `Skip`."""


@dataclass(frozen=True)
class PutConstant(SourceEdit):
    """A constant stands there instead."""

    place: Place
    text: str

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the constant."""
        return cst.parse_expression(self.text)


class SourcePass(Pass[SourceCase]):
    """Applies edits to a program: the last place first, so that the others stay where they are."""

    def apply(self, case: SourceCase, edits: Sequence[Edit]) -> SourceCase | None:
        """Return the case with these edits carried out; None when nothing would change."""
        module = parsed(case.text)
        mine = [edit for edit in edits if isinstance(edit, SourceEdit)]
        for edit in sorted(mine, key=lambda edit: edit.place, reverse=True):
            try:
                found = replaced(module, edit.place, edit.change)
            except (Skip, LookupError, AttributeError, cst.CSTValidationError):
                continue
            if isinstance(found, cst.Module):
                module = found
        return finished(case, module)


@lru_cache(maxsize=_KEPT)
def parsed(text: str) -> cst.Module:
    """Return the tree of a program."""
    return cst.parse_module(text)


def finished(case: SourceCase, module: cst.Module) -> SourceCase | None:
    """Return the case of a tree without newly dead code; None if it is invalid or not changed."""
    try:
        tree = ast.parse(module.code)
    except (SyntaxError, ValueError, cst.CSTValidationError):
        return None
    text = ast.unparse(without_newly_dead(tree, case.text)) + "\n"
    if text == case.text or undefined(tree) - _undefined_in(case.text):
        return None
    return case.with_text(text)


@lru_cache(maxsize=_KEPT)
def _undefined_in(text: str) -> frozenset[str]:
    """Return the names that a program reads and binds nowhere, though it runs.

    They come from `import *`, or are `__class__`.
    """
    return frozenset(undefined(ast.parse(text)))


def undefined(tree: ast.AST) -> set[str]:
    """Return the names that are read and bound nowhere: such a program is refused without a run."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    return read - bound - _BUILTINS


def walk(node: cst.CSTNode, place: Place = ()) -> Iterator[tuple[Place, cst.CSTNode]]:
    """Yield every node of a tree with its place, outer ones first, in the order of the text."""
    yield place, node
    for field in fields(node):
        if field.name in _LAYOUT or field.name.startswith("whitespace"):
            continue
        value = getattr(node, field.name)
        if isinstance(value, cst.CSTNode):
            yield from walk(value, (*place, (field.name, -1)))
        elif isinstance(value, (list, tuple)):
            for position, item in enumerate(value):
                if isinstance(item, cst.CSTNode):
                    yield from walk(item, (*place, (field.name, position)))


def replaced(
    node: cst.CSTNode,
    place: Place,
    change: Callable[[cst.CSTNode], cst.CSTNode | Sequence[cst.CSTNode] | None],
) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
    """Return a tree with the node at a place changed."""
    if not place:
        return change(node)
    (name, position), rest = place[0], place[1:]
    if position < 0:
        new = replaced(getattr(node, name), rest, change)
        if new is None or isinstance(new, cst.CSTNode):
            return node.with_changes(**{name: new})
        raise Skip
    items = list(getattr(node, name))
    new = replaced(items[position], rest, change)
    if new is None:
        items[position : position + 1] = []
    elif isinstance(new, cst.CSTNode):
        items[position] = new
    else:
        items[position : position + 1] = list(new)
    return node.with_changes(**{name: _tidied(node, items)})


def _tidied(node: cst.CSTNode, items: list[cst.CSTNode]) -> list[cst.CSTNode]:
    """Return a list without the commas of the old one; a block with something in it."""
    if not items and isinstance(node, cst.IndentedBlock):
        return [statement("pass")]
    return [
        item.with_changes(comma=cst.MaybeSentinel.DEFAULT) if hasattr(item, "comma") else item
        for item in items
    ]


def statement(text: str) -> cst.BaseStatement:
    """Return a statement from its text."""
    return cst.parse_module(text + "\n").body[0]


def in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that can stand anywhere.

    Superfluous parentheses go in the canonical text.
    """
    if isinstance(node, (cst.Name, cst.Integer, cst.Float, cst.Call, cst.Attribute)) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def code_of(node: cst.CSTNode) -> str:
    """Return the text of a node."""
    return cst.Module([]).code_for_node(node)


def names_in(node: cst.CSTNode) -> list[str]:
    """Return the names in a tree, attributes and keywords left out, with repetitions."""
    skipped = {
        id(found.attr) if isinstance(found, cst.Attribute) else id(found.keyword)
        for _, found in walk(node)
        if isinstance(found, (cst.Attribute, cst.Arg))
    }
    return [
        found.value
        for _, found in walk(node)
        if isinstance(found, cst.Name) and id(found) not in skipped
    ]


def final_place(case: SourceCase) -> Place:
    """Return the place of the statement that ends a program, inside of its last `with` statements.

    () for a whole program, in which no statement has to stay.
    """
    if case.whole:
        return ()
    module = parsed(case.text)
    place: Place = (("body", len(module.body) - 1),)
    node: cst.CSTNode = module.body[-1]
    while isinstance(node, cst.With) and isinstance(node.body, cst.IndentedBlock):
        place = (*place, ("body", -1), ("body", len(node.body.body) - 1))
        node = node.body.body[-1]
    return place


def instances(module: cst.Module) -> list[tuple[str, str]]:
    """Return (name, class) of each `name = Class(...)` at the top."""
    found = []
    for node in module.body:
        small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target, value = small.targets[0].target, small.value
            if isinstance(target, cst.Name) and isinstance(value, cst.Call):
                found.append((target.value, code_of(value.func)))
    return found
