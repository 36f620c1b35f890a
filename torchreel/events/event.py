"""`EventType`, the base of every type of event."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec

Nest: TypeAlias = Any
"""A nest of lists, objects, text, numbers, truth values and null."""
Expression: TypeAlias = Any
"""A SymPy expression: its text, or a number; the writer of the event log spells it."""
SourceDocument: TypeAlias = Any
"""A Source, in the form of `torchreel.formats.sources`."""
Described: TypeAlias = Any
"""Tensors as (dtype, sizes, strides or layout, device), and nests of them."""


class EventType(msgspec.Struct, frozen=True, gc=False):
    """A type of event: one class for each kind, whose docstring says what happened.

    The docstrings of the class and of its fields are the documentation (`docs/events.md`). A probe
    makes an instance of what never changes and holds no tensor: it is spelled later, by another
    thread. Python's garbage collector does not look at it.
    """

    kind: ClassVar[str]
    """The name of the type in a store; what stands before its dot is the family."""
    paged: ClassVar[bool] = True
    """True if many are kept together in a page. The others are rows that SQL can read: kinds that
    come a few times in a compile, and with short values."""
    exact: ClassVar[bool] = False
    """True if its values are text, whole numbers, truth values and nests of them only. Such a page
    is spelled several times faster, but floats and enums would be spelled wrongly."""


class ShapeEnvEvent(EventType, frozen=True):
    """An event of one ShapeEnv; a recording may have several."""

    env: int | None
    """Number of the ShapeEnv in this recording."""


class SymbolEvent(ShapeEnvEvent, frozen=True):
    """An event of one symbol of a ShapeEnv."""

    symbol: Expression
    """Its name."""
