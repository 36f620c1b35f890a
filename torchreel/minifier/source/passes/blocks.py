"""Blocks: less in them, or what is in them without what is around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    code_of,
    final_place,
    parsed,
    statement,
    walk,
)

# Of shorter blocks, single statements are as quick.
_WORTH_HALVING = 6


@dataclass(frozen=True)
class RemoveRange(SourceEdit):
    """Of a block, the statements from `start` up to `stop` are gone."""

    place: Place
    start: int
    stop: int

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the rest.  Raises `Skip` where the block has become another."""
        body = list(_body(cst.ensure_type(node, cst.IndentedBlock)))
        if self.stop > len(body):
            raise Skip
        left = [*body[: self.start], *body[self.stop :]] or [statement("pass")]
        return node.with_changes(body=left)


class Ranges(SourcePass):
    """Leave out the half, then a quarter, of the statements of a function or a block."""

    name = "ranges of statements"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose, for each block, the outer ones first, the last range first."""
        module = parsed(case.text)
        last = final_place(case)
        blocks = [
            (place, len(node.body))
            for place, node in walk(module)
            if isinstance(node, cst.IndentedBlock)
            and len(node.body) >= _WORTH_HALVING
            and place != last[: len(place)]
        ]
        return [
            RemoveRange(place, start, min(start + length, count))
            for place, count in sorted(blocks, key=lambda found: len(found[0]))
            for length in dict.fromkeys((count // 2, count // 4))
            if length > 1
            for start in range(count - length, -length, -length)
            if start >= 0
        ]


@dataclass(frozen=True)
class Unwrap(SourceEdit):
    """One of the blocks of a compound statement stands there alone."""

    place: Place
    block: int

    def change(self, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """Return the statements of that block."""
        return _blocks(node)[self.block]


class Blocks(SourcePass):
    """Take one block of a compound statement, or its test, subject or iterable."""

    name = "blocks"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose, for each compound statement, each of its blocks."""
        module = parsed(case.text)
        return [
            Unwrap(place, block)
            for place, node in walk(module)
            if isinstance(node, _COMPOUND)
            for block in range(len(_blocks(node)))
        ]


_COMPOUND = (cst.If, cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.Match)


def _blocks(node: cst.CSTNode) -> list[list[cst.CSTNode]]:
    """Return the lists of statements that may replace a compound statement.

    Raises `Skip` for any other statement.
    """
    if isinstance(node, cst.With):
        return [_as_assigned(node) + _body(node.body), _body(node.body)]
    if isinstance(node, cst.For):
        first = statement(f"{code_of(node.target)} = next(iter({code_of(node.iter)}))")
        rest = _otherwise(node)
        return [[first, *_body(node.body)], _body(node.body), *rest, [_evaluated(node.iter)]]
    if isinstance(node, cst.While):
        return [_body(node.body), *_otherwise(node), [_evaluated(node.test)]]
    if isinstance(node, (cst.Try, cst.TryStar)):
        last = _body(node.finalbody.body) if node.finalbody else []
        handlers = [_body(handler.body) for handler in node.handlers]
        rest = [_body(node.body) + each + last for each in _otherwise(node)]
        return [*rest, _body(node.body) + last, *handlers]
    if isinstance(node, cst.Match):
        return [*(_body(each.body) for each in node.cases), [_evaluated(node.subject)]]
    if isinstance(node, cst.If):
        otherwise, tested = node.orelse, [_evaluated(node.test)]
        if isinstance(otherwise, cst.If):
            return [_body(node.body), [otherwise], tested]
        rest = [_body(otherwise.body)] if otherwise else []
        return [_body(node.body), *rest, tested]
    raise Skip


def _otherwise(node: cst.For | cst.While | cst.Try | cst.TryStar) -> list[list[cst.CSTNode]]:
    """Return the block of the `else`, if there is one."""
    return [] if node.orelse is None else [_body(node.orelse.body)]


def _as_assigned(node: cst.With) -> list[cst.CSTNode]:
    """Return `with E as n` without the `with`."""
    return [
        statement(f"{code_of(item.asname.name)} = {code_of(item.item)}")
        for item in node.items
        if item.asname is not None
    ]


def _body(suite: cst.BaseSuite) -> list[cst.CSTNode]:
    return list(suite.body)


def _evaluated(node: cst.BaseExpression) -> cst.CSTNode:
    return statement(code_of(node))
