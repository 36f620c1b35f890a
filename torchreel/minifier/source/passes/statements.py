"""Statements: leave them out, or leave out what is around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.source.case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    code_of,
    final_place,
    names_in,
    parsed,
    statement,
    walk,
)


@dataclass(frozen=True)
class Remove(SourceEdit):
    """Nothing stands there any more."""

    place: Place

    def change(self, node: cst.CSTNode) -> None:
        """Nothing."""
        return None


@dataclass(frozen=True)
class Unwrap(SourceEdit):
    """One of the blocks of a compound statement stands there alone."""

    place: Place
    block: int

    def change(self, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """The statements of that block."""
        return _blocks(node)[self.block]


def statements(case: SourceCase) -> Iterator[tuple[Place, cst.CSTNode]]:
    """The statements of a program but for the one that ends it and what that is in."""
    module = parsed(case.text)
    last = final_place(module)
    for place, node in walk(module):
        if isinstance(node, cst.BaseStatement) and place != last[: len(place)]:
            yield place, node


class Statements(SourcePass):
    """Leave out statements."""

    name = "statements"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """The outer ones first, the last first: what uses something goes before what makes it."""
        found = [place for place, node in statements(case) if code_of(node).strip() != "pass"]
        found.sort(key=lambda place: [-position for _, position in place])
        return [Remove(place) for place in sorted(found, key=len)]


class Unused(SourcePass):
    """Leave out what makes something that nothing uses, all at once."""

    name = "unused definitions"
    together = True

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Assignments, definitions and imports of names that occur nowhere else."""
        module = parsed(case.text)
        uses = Counter(names_in(module))
        attributes = Counter(
            node.attr.value for _, node in walk(module) if isinstance(node, cst.Attribute)
        )
        return [
            Remove(place)
            for place, node in statements(case)
            if all(uses[n] <= 1 for n in _bound(node))
            and all(attributes[a] <= 1 for a in _set(node))
            and (_bound(node) or _set(node))
        ]


def _small(node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    return node.body[0] if isinstance(node, cst.SimpleStatementLine) else None


def _targets(node: cst.CSTNode) -> list[cst.BaseExpression]:
    small = _small(node)
    return [t.target for t in small.targets] if isinstance(small, cst.Assign) else []


def _bound(node: cst.CSTNode) -> list[str]:
    """The names that a statement binds, where that is all it does; each is counted once by it."""
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return [node.name.value]
    small = _small(node)
    if isinstance(small, (cst.Import, cst.ImportFrom)) and not isinstance(
        small.names, cst.ImportStar
    ):
        names = [
            code_of(alias.asname.name if alias.asname else alias.name) for alias in small.names
        ]
        return [name.partition(".")[0].strip() for name in names]
    targets = _targets(node)
    return [t.value for t in targets if isinstance(t, cst.Name)] if len(targets) == 1 else []


def _set(node: cst.CSTNode) -> list[str]:
    """The attribute that a statement sets."""
    targets = _targets(node)
    return [t.attr.value for t in targets if isinstance(t, cst.Attribute)]


class Blocks(SourcePass):
    """Take one block of `if`, `for`, `while`, `with` or `try`."""

    name = "blocks"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """For each compound statement, each of its blocks."""
        module = parsed(case.text)
        return [
            Unwrap(place, block)
            for place, node in walk(module)
            if isinstance(node, _COMPOUND)
            for block in range(len(_blocks(node)))
        ]


_COMPOUND = (cst.If, cst.For, cst.While, cst.With, cst.Try)


def _blocks(node: cst.CSTNode) -> list[list[cst.CSTNode]]:
    """What may stand in place of a compound statement.  Raises `Skip` where there is none."""
    if isinstance(node, cst.With):
        return [_as_assigned(node) + _body(node.body), _body(node.body)]
    if isinstance(node, cst.For):
        first = statement(f"{code_of(node.target)} = next(iter({code_of(node.iter)}))")
        return [[first, *_body(node.body)], _body(node.body)]
    if isinstance(node, cst.While):
        return [_body(node.body)]
    if isinstance(node, cst.Try):
        last = _body(node.finalbody.body) if node.finalbody else []
        return [_body(node.body) + last, *(_body(handler.body) for handler in node.handlers)]
    if isinstance(node, cst.If):
        otherwise = node.orelse
        if isinstance(otherwise, cst.If):
            return [_body(node.body), [otherwise]]
        return [_body(node.body), _body(otherwise.body)] if otherwise else [_body(node.body)]
    raise Skip


def _as_assigned(node: cst.With) -> list[cst.CSTNode]:
    """`with E as n` without the `with`."""
    return [
        statement(f"{code_of(item.asname.name)} = {code_of(item.item)}")
        for item in node.items
        if item.asname is not None
    ]


def _body(suite: cst.BaseSuite) -> list[cst.CSTNode]:
    return list(suite.body)
