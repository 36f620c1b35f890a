"""Python's own parsers, without their warnings: those of a process are the business of its program.

`ast` and `symtable` warn of an escape that is none, and of `1or 2`, in the text that they read.  A
program that turns warnings into errors, or collects them, must not get those of its recorder.
"""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FILE = "<torchreel>"
_FILTER = ("ignore", None, Warning, _FILE, 0)
"""Of this file alone.  It is text as in Python's own filters: only equal names match."""


def parse(text: str) -> ast.Module:
    """Return the tree of a program.

    Raises SyntaxError or ValueError if it is none, RecursionError or MemoryError if it is too deep.
    """
    with _without_warnings():
        return ast.parse(text, _FILE)


def symbols(text: str) -> symtable.SymbolTable:
    """Return the symbols of a program; it raises what `parse` raises."""
    with _without_warnings():
        return symtable.symtable(text, _FILE, "exec")


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Put a filter before all others, and take it away again.

    Not by `warnings.catch_warnings`, which puts back the list as it was: what another thread
    changes meanwhile would be lost.
    """
    filters = warnings.filters
    filters.insert(0, _FILTER)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with suppress(ValueError):  # the program has taken away all filters
            filters.remove(_FILTER)  # type: ignore[attr-defined]
