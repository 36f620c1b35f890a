"""Events of torch.export."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import Described, EventType, Nest


class ExportStart(EventType, frozen=True):
    """Torch.export began; what happens meanwhile is a part of this."""

    kind = "export.start"
    paged = False

    strict: bool | None
    """True if Dynamo traces it."""
    pre_dispatch: bool | None
    """True if the graph is above autograd."""
    arguments: Described
    """(dtype, sizes, strides, device) of the tensors."""
    keywords: Nest
    """The same of keyword arguments, by name."""
    dynamic_shapes: Nest
    """The request: dimensions by (name, least, most)."""
    deferred: bool
    """True if guards may become assertions at run time."""


class ExportEnd(EventType, frozen=True):
    """Torch.export was done."""

    kind = "export.end"
    paged = False

    nodes: int | None
    """Number of nodes of the graph."""
    ranges: Nest
    """Of each symbol: (symbol, (least, most))."""
    inputs: Sequence[Nest]
    """(kind, name, target)."""
    outputs: Sequence[Nest]
    """(kind, name, target)."""


class ExportFailure(EventType, frozen=True):
    """Torch.export raised."""

    kind = "export.failure"
    paged = False

    exception: str
    """Its type."""
    message: str
    """Its message."""
    fixes: Nest
    """The changes of the dynamic shapes that torch suggests."""
