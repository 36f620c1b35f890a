"""Events of Inductor's passes, lowering, scheduling and kernels."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import EventType, Nest


class InductorPasses(EventType, frozen=True):
    """A family of passes ran over a graph; the graph is kept when it changed."""

    kind = "inductor.passes"
    paged = False

    changed: bool
    """True if the graph is another one than before."""
    nodes: Sequence[int]
    """Numbers of nodes before and after."""
    added: Sequence[str]
    """The names of nodes that are new."""
    removed: Sequence[str]
    """The names of nodes that are gone."""


class InductorPass(EventType, frozen=True):
    """A single pass ended."""

    kind = "inductor.pass"

    subsystem: str
    """The family it belongs to."""
    nodes: int
    """Number of nodes of the graph, after it."""


class Lowering(EventType, frozen=True):
    """A node of the graph became Inductor's own representation."""

    kind = "inductor.lowering"

    target: str
    """The operator that the node calls."""
    how: str
    """Lowering, fallback (the operator itself is called), pattern or raised."""
    function: str
    """The lowering's name, or the type of the exception."""
    result: Nest
    """The result's type: Pointwise, Reduction, FallbackKernel, ..."""


class Fusion(EventType, frozen=True):
    """Two scheduler nodes were fused."""

    kind = "inductor.fuse"

    nodes: Sequence[str]
    """Their names."""
    result: str
    """The type of the fused node."""


class NoFusion(EventType, frozen=True):
    """Two scheduler nodes can't be fused; once for each pair and reason."""

    kind = "inductor.no_fuse"

    nodes: Sequence[str]
    """Their names."""
    reason: str
    """The reason."""


class Schedule(EventType, frozen=True):
    """The schedule is final."""

    kind = "inductor.schedule"

    nodes: Sequence[Nest]
    """In order: (name, type, device, operations in it, graph nodes it comes from)."""


class Kernel(EventType, frozen=True):
    """A kernel was generated, or one with the same source was taken again."""

    kind = "inductor.kernel"

    backend: str
    """'cpp' or 'triton'."""
    source: str
    """The SHA-256 of its source, before it gets its name."""
    nodes: Sequence[str]
    """Scheduler nodes in it."""
    origins: Sequence[str]
    """Graph nodes that it computes."""


class ExternKernel(EventType, frozen=True):
    """A call of a library's kernel was generated."""

    kind = "inductor.extern"

    kernel: str | None
    """The function that is called."""
    type: str
    """Of the node in Inductor's representation."""
    origins: Sequence[str]
    """Graph nodes that it computes."""


class CppCompile(EventType, frozen=True):
    """The C++ compiler ran."""

    kind = "inductor.cpp_compile"

    arguments: Sequence[str]
    """Of the command; of paths only the last part."""
    outcome: str
    """'ok', or the type of the exception."""
    message: str | None
    """Of the exception: what the compiler said."""
