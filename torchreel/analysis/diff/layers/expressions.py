"""Symbolic expressions as trees, so that they can be compared under other names of symbols.

Lives here: a parser of the recorded prefix form, `Add(s77, Mul(2, u0))`, into heads and operands.
Not here: what a function means (`torchreel.formats.symbols`, which needs torch).

The operands of a sum stand in the order of the names of their symbols, so another naming may turn
them round: they are compared in an order of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

_TOKEN = re.compile(r"\s*(\"[^\"]*\"|`[^`]*`|[^\s(),\"`]+|[(),])")
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Eq", "Ne", "Equality",
                          "Unequality"})  # fmt: skip
_SYMBOL = re.compile(r"[A-Za-z_]\w*|`[^`]*`", re.ASCII)
_MAX_DEPTH = 200


@dataclass(frozen=True)
class Expression:
    """A function with its operands, or a leaf: a symbol, a number, a constant."""

    head: str
    operands: tuple[Expression, ...] | None = None

    @cached_property
    def shape(self) -> str:
        """The expression with '$' for each symbol."""
        if self.operands is None:
            return "$" if _SYMBOL.fullmatch(self.head) else self.head
        return f"{self.head}({', '.join(operand.shape for operand in self._ordered)})"

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Its symbols, in an order that is the same for expressions of one shape."""
        if self.operands is None:
            return (self.head,) if _SYMBOL.fullmatch(self.head) else ()
        return tuple(name for operand in self._ordered for name in operand.symbols)

    @cached_property
    def _ordered(self) -> tuple[Expression, ...]:
        operands = self.operands or ()
        if self.head not in _COMMUTATIVE:
            return operands
        return tuple(sorted(operands, key=lambda operand: operand.shape))

    def renamed(self, names: Mapping[str, str]) -> Expression:
        """Return the same with other names of symbols, the operands of sums in the order of their
        text.
        """
        if self.operands is None:
            return Expression(names.get(self.head, self.head))
        operands = [operand.renamed(names) for operand in self.operands]
        if self.head in _COMMUTATIVE:
            operands.sort(key=lambda operand: operand.text)
        return Expression(self.head, tuple(operands))

    @cached_property
    def text(self) -> str:
        """The expression as it was read."""
        if self.operands is None:
            return self.head
        return f"{self.head}({', '.join(operand.text for operand in self.operands)})"


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Return the expression that a text is; a malformed one is a constant of its own."""
    tokens = _TOKEN.findall(text)
    try:
        found = _parsed(tokens, 0)
    except (IndexError, RecursionError):
        return Expression(repr(text))
    return found if not tokens else Expression(repr(text))


def _parsed(tokens: list[str], depth: int) -> Expression:
    head = tokens.pop(0)
    if head in "()," or depth > _MAX_DEPTH:
        raise IndexError(head)
    if not tokens or tokens[0] != "(":
        return Expression(head)
    tokens.pop(0)
    operands: list[Expression] = []
    while tokens[0] != ")":
        operands.append(_parsed(tokens, depth + 1))
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)
    return Expression(head, tuple(operands))
