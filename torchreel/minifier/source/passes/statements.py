"""Statements: leave them out, or what they set; compute without keeping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.liveness import without_dead
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
        """Return None: the statement goes."""
        return None


def statements(case: SourceCase) -> Iterator[tuple[Place, cst.CSTNode]]:
    """Yield the statements of a program except the last one and those around it."""
    module = parsed(case.text)
    last = final_place(case)
    for place, node in walk(module):
        if isinstance(node, cst.BaseStatement) and place != last[: len(place)]:
            yield place, node


class Statements(SourcePass):
    """Leave out statements."""

    name = "statements"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the outer statements first, the last first.

        A statement that uses something goes before the one that makes it.
        """
        read = attributes_read(parsed(case.text))
        return _removed(
            place
            for place, node in statements(case)
            if code_of(node).strip() != "pass" and not read.intersection(_set(node))
        )


class AttributeAssignments(SourcePass):
    """Leave out what sets an attribute that is read: the program seldom does without."""

    name = "attributes"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the edits, the last first."""
        read = attributes_read(parsed(case.text))
        return _removed(place for place, node in statements(case) if read.intersection(_set(node)))


def _removed(places: Iterable[Place]) -> list[SourceEdit]:
    last_first = sorted(places, key=lambda place: [-position for _, position in place])
    return [Remove(place) for place in sorted(last_first, key=len)]


def attributes_read(module: cst.Module) -> set[str]:
    """Return the attributes that are read anywhere."""
    return {
        node.attr.value
        for place, node in walk(module)
        if isinstance(node, cst.Attribute) and (not place or place[-1][0] != "target")
    }


@dataclass(frozen=True)
class KeepReachable(SourceEdit):
    """Only what the last call reaches is left."""

    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module without the rest."""
        return cst.parse_module(without_dead(cst.ensure_type(node, cst.Module).code))


class Unused(SourcePass):
    """Leave out what makes something that nothing uses."""

    name = "unused definitions"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose all of it.

        Then assignments, definitions and imports of names that occur nowhere else.
        """
        module = parsed(case.text)
        uses = Counter(names_in(module))
        attributes = Counter(
            node.attr.value for _, node in walk(module) if isinstance(node, cst.Attribute)
        )
        single = [
            Remove(place)
            for place, node in statements(case)
            if all(uses[n] <= 1 for n in _bound(node))
            and all(attributes[a] <= 1 for a in _set(node))
            and (_bound(node) or _set(node))
        ]
        return [KeepReachable(), *single]


def _small(node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    return node.body[0] if isinstance(node, cst.SimpleStatementLine) else None


def _targets(node: cst.CSTNode) -> list[cst.BaseExpression]:
    small = _small(node)
    return [t.target for t in small.targets] if isinstance(small, cst.Assign) else []


def _bound(node: cst.CSTNode) -> list[str]:
    """Return the names that a statement binds, where that is all it does.

    Each is counted once by it.
    """
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
    """Return the attribute that a statement sets."""
    targets = _targets(node)
    return [t.attr.value for t in targets if isinstance(t, cst.Attribute)]


@dataclass(frozen=True)
class Evaluate(SourceEdit):
    """A value is computed and not kept."""

    place: Place

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the expression as a statement."""
        small = _small(node)
        if not isinstance(small, cst.Assign):
            raise Skip
        return statement(code_of(small.value))


class Values(SourcePass):
    """Compute a value without keeping it."""

    name = "value of assignment"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the statements in functions, or of a whole program; the last first."""
        found = [
            Evaluate(place)
            for place, node in statements(case)
            if (case.whole or place[1:]) and _targets(node)
        ]
        return found[::-1]
