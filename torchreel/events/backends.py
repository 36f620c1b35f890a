"""Events of calls of backends, and the pieces that a backend compiles by itself."""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.events.event import EventType, Nest


class BackendCall(EventType, frozen=True):
    """A backend is called with a graph; what happens meanwhile is a part of this."""

    kind = "backend.call"
    paged = False

    function: str
    """Qualified name of the function that is called."""
    options: Nest
    """Arguments of torch.compile (mode, options, dynamic)."""
    nodes: int | None
    """Number of nodes of the graph."""
    inputs: int | None
    """Number of inputs."""


class BackendReturn(EventType, frozen=True):
    """A backend is done."""

    kind = "backend.return"
    paged = False

    outcome: str
    """'ok', 'failed', 'skip' (the frame stays eager), 'restart' (Dynamo tries again) or 'fallback'
    (the graph runs in eager mode, because of an exception that allows it)."""
    exception: str | None
    """The type of what the backend raised."""
    message: str | None
    """Of what the backend raised."""
    result: str | None
    """Qualified name or type of the result."""


class BackendVerify(EventType, frozen=True):
    """A backend's result was compared with eager's."""

    kind = "backend.verify"
    paged = False

    outcome: str
    """Same, different, not compared (the backend gave nothing back to compare) or failed (an
    exception on the way)."""
    exception: str | None
    """Its type."""


class PieceStart(EventType, frozen=True):
    """A backend of the program compiles a part of the graph apart."""

    kind = "piece.start"
    paged = False

    call: str
    """'standalone_compile', 'compile_fx' or 'aot_autograd'."""
    submodule: str | None
    """The name of the part in the graph that was split, where it has one."""
    dynamic_shapes: str | None
    """The argument of standalone_compile that says where the sizes come from."""
    sizes: Mapping[str, Nest]
    """Of each symbol of its inputs: the one size, or (least, most)."""


class PieceArtifact(EventType, frozen=True):
    """The result of standalone_compile can be saved, under these keys of torch's caches."""

    kind = "piece.artifact"
    paged = False

    aot_autograd: Nest
    """Keys in the cache of AOTAutograd."""
    inductor: Nest
    """Keys in the cache of Inductor."""
    bytes: int
    """Its size."""
