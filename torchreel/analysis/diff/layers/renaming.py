"""Maps the names of one graph to those of another: nodes, symbols, storages.

Lives here: recorded trees with all names taken out (`shape_of`), and the one-to-one map between the
names of two sides (`Renaming`).  Not here: which nodes stand for which (`graphs`), expressions
(`expressions`).

Two trees are the same up to renaming if their shapes are equal and their names, in order of
appearance, map onto each other one to one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchreel.analysis.diff.layers.expressions import Expression, parse
from torchreel.store.documents.jsontypes import Json

_HINTS = frozenset({"hint", "storage_size"})
"""Members of a value's description that are no structure: what a size was in one run."""
_EXPRESSIONS = frozenset({"size", "stride", "offset", "expr"})

Use = tuple[str, str] | Expression
"""A name that is used, with what it names ('node', 'storage'), or an expression over symbols."""


def shape_of(tree: Json) -> str:
    """Return a tree without its names, as text that can be compared."""
    return json.dumps(_shape(tree), sort_keys=True)


def _shape(tree: Json) -> Json:
    if isinstance(tree, Mapping):
        if set(tree) == {"n"}:
            return {"n": "%"}
        return {key: _member(key, value) for key, value in tree.items() if key not in _HINTS}
    if isinstance(tree, list):
        return [_shape(item) for item in tree]
    return tree


def _member(key: str, value: Json) -> Json:
    if key == "storage":
        return None
    if key not in _EXPRESSIONS:
        return _shape(value)
    items = value if isinstance(value, list) else [value]
    return [parse(item).shape if isinstance(item, str) else _shape(item) for item in items]


def uses_of(tree: Json) -> Iterator[Use]:
    """Yield every use of a name in a tree, in an order that is the same for trees of one shape."""
    if isinstance(tree, Mapping):
        if set(tree) == {"n"}:
            yield "node", str(tree["n"])
            return
        for key in sorted(tree):
            yield from _used(key, tree[key])
    elif isinstance(tree, list):
        for item in tree:
            yield from uses_of(item)


def _used(key: str, value: Json) -> Iterator[Use]:
    if key in _HINTS:
        return
    if key == "storage":
        yield "storage", str(value)
    elif key in _EXPRESSIONS:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield parse(item)
            else:
                yield from uses_of(item)
    else:
        yield from uses_of(value)


@dataclass
class Renaming:
    """A one-to-one map between the names of two sides, which grows as they are read."""

    _to: dict[tuple[str, str], str] = field(default_factory=dict)
    _from: dict[tuple[str, str], str] = field(default_factory=dict)

    def agree(self, left: Json, right: Json) -> bool:
        """Return True if two trees of one shape use names that stand for each other.

        Symbols and storages that were not met before are bound to each other; nodes only by `bind`.
        """
        ours, theirs = list(uses_of(left)), list(uses_of(right))
        same = [self._one(a, b) for a, b in zip(ours, theirs, strict=False)]
        return len(ours) == len(theirs) and all(same)

    def bind(self, space: str, left: str, right: str) -> bool:
        """Let two names stand for each other; False when one stands for another already."""
        if (space, left) not in self._to and (space, right) not in self._from:
            self._to[space, left] = right
            self._from[space, right] = left
        return self._to.get((space, left)) == right

    def _one(self, left: Use, right: Use) -> bool:
        if isinstance(left, Expression) and isinstance(right, Expression):
            return self._expression(left, right)
        if isinstance(left, Expression) or isinstance(right, Expression) or left[0] != right[0]:
            return False
        if left[0] == "node":
            return self._to.get(left) == right[1]
        return self.bind(left[0], left[1], right[1])

    def _expression(self, left: Expression, right: Expression) -> bool:
        for name, other in zip(left.symbols, right.symbols, strict=False):
            if ("symbol", name) not in self._to:
                self.bind("symbol", name, other)
        known = {name: self._to.get(("symbol", name), "") for name in left.symbols}
        return left.renamed(known).text == right.renamed({}).text
