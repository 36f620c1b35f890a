"""The order over programs, from the most to the least important:

1. statements, of which classes count twice: a function is easier to read;
2. nodes of the syntax tree (an operand is simpler than the operation);
3. the backend: the one that does nothing is the simplest;
4. numbers, by their sum: sizes, indices, constants;
5. the length of the text, then the text itself, which makes the order total.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from torchreel.minifier.cases.protocol import Key
from torchreel.minifier.cases.source_case import SourceCase

# Larger than this, numbers are all alike: a sum has to stay a number that sqlite could hold.
_LARGEST = 1_000_000


def source_key(case: SourceCase) -> Key:
    """Return the key of a program; the smaller, the simpler."""
    nodes = list(ast.walk(case.tree))
    kept = [node for node in nodes if not isinstance(node, (ast.expr_context, ast.alias))]
    # The backend that does least may cost one argument more.
    simple = any(_is_eager_backend(node) for node in nodes)
    return (
        sum(isinstance(n, ast.stmt) + isinstance(n, ast.ClassDef) for n in nodes),
        len(kept) - 2 * simple,
        0 if simple else 1,
        sum(_numbers(nodes)),
        len(case.text),
        case.text,
    )


def _is_eager_backend(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.keyword)
        and node.arg == "backend"
        and isinstance(node.value, ast.Constant)
        and node.value.value == "eager"
    )


def _numbers(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            size = abs(node.value)
            yield math.ceil(size) if size < _LARGEST else _LARGEST
