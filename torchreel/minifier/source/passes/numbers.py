"""Numbers: sizes, indices and constants, together where they are the same, then one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    PutConstant,
    Skip,
    SourceEdit,
    SourcePass,
    parsed,
    walk,
)

# Not 0: what is left of a size or a loop then is nothing a person would call with.
_SMALL = (1, 2, 3)


@dataclass(frozen=True)
class Everywhere(SourceEdit):
    """One integer becomes another, wherever it stands: sizes that belong together stay equal."""

    old: int
    new: int
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module with the other number."""
        found = node.visit(_Other(self.old, self.new))
        if not isinstance(found, cst.Module):
            raise Skip
        return found


class _Other(cst.CSTTransformer):
    def __init__(self, old: int, new: int) -> None:
        super().__init__()
        self._old, self._new = old, new

    def leave_Integer(self, original_node: cst.Integer, updated_node: cst.Integer) -> cst.Integer:
        same = original_node.evaluated_value == self._old
        return cst.Integer(str(self._new)) if same else updated_node


class Numbers(SourcePass):
    """Make equal integers smaller together."""

    name = "equal numbers"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the edits, the largest number first; what is tried is smaller."""
        values = Counter(
            node.evaluated_value
            for _, node in walk(parsed(case.text))
            if isinstance(node, cst.Integer)
        )
        return [
            Everywhere(value, new)
            for value in sorted(values, reverse=True)
            for new in dict.fromkeys((*_SMALL, value // 2))
            if 0 < new < value
        ]


class SingleNumbers(SourcePass):
    """Make a number smaller by itself."""

    name = "single numbers"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose a smaller number for each integer, and 1.0 for others."""
        found: list[SourceEdit] = []
        for place, node in walk(parsed(case.text)):
            if isinstance(node, cst.Integer):
                found += [PutConstant(place, str(n)) for n in _SMALL if n < node.evaluated_value]
            elif isinstance(node, cst.Float) and node.evaluated_value != 1.0:
                found.append(PutConstant(place, "1.0"))
        return found
