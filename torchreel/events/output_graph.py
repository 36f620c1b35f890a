"""Events of what Dynamo's graph takes in, and what the frame's new bytecode does."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import EventType, Nest, SourceDocument


class SubgraphCompile(EventType, frozen=True):
    """A graph is complete and goes to the backend; the stack says where tracing ended."""

    kind = "output_graph.compile"
    paged = False

    reason: str
    """The reason why it ends here, in torch's words."""
    graph_break: bool
    """True if the frame goes on after it."""
    random_calls: Sequence[Nest]
    """Functions of `random` that the new bytecode calls, with their arguments."""


class GraphInput(EventType, frozen=True):
    """An input of the graph, in order; the name is its placeholder."""

    kind = "output_graph.input"
    exact = True

    position: int
    """Its place among the inputs."""
    expression: str | None
    """Its Source, as Python; null when torch makes it up."""
    source: int | None
    """Its Source, by its place in `output_graph.sources`."""
    type: str | None
    """Class of the value."""
    as_tensor: bool
    """True if a Python number is passed as a tensor."""
    users: int | None
    """Number of nodes that use it."""


class UnusedInput(EventType, frozen=True):
    """An input was traced, and taken out again; the name is its placeholder."""

    kind = "output_graph.unused_input"

    position: int
    """Its place among the inputs as they were before."""
    expression: str | None
    """Its Source, as Python."""
    type: str | None
    """Class of the value."""
    why: str
    """'unused', or 'specialised' (a float that could not be made a tensor)."""


class InputSources(EventType, frozen=True):
    """The Sources of the inputs (`torchreel.formats.sources.expand_source`)."""

    kind = "output_graph.sources"
    exact = True

    rows: Sequence[SourceDocument]
    """Class and fields; `{at: row}` is a Source in another row."""


class SideEffect(EventType, frozen=True):
    """The new bytecode changes an object as the frame would have; the name is Dynamo's class for
    it, the stack the last place that changes it."""

    kind = "output_graph.side_effect"

    source: SourceDocument | None
    """Source of the object; null for one that the frame makes itself."""
    type: str | None
    """Class of the object, where Dynamo knows it."""
    attributes: Sequence[str]
    """Names of the attributes that change, in order; empty when the value does."""
    mutation: str
    """Dynamo's class of mutation."""
    places: int
    """Number of places that change it."""


class TensorHook(EventType, frozen=True):
    """A hook is put on a tensor; the name is the method that does it."""

    kind = "output_graph.hook"

    source: SourceDocument | None
    """Source of the tensor; null in the backward state."""
    hook: str
    """Dynamo's class for the hook."""
    hook_source: SourceDocument | None
    """Source of the hook, if it has one."""
    where: str
    """'side effect' (after the graph), or 'backward state' (the backward runs it)."""


class InstalledGlobal(EventType, frozen=True):
    """A name is put into the globals of the frame."""

    kind = "output_graph.global"

    value: str | None
    """The value: functions with their place, other objects by class."""
    module: bool
    """True if it is a module that was imported for inlined code."""


class Bytecode(EventType, frozen=True):
    """Bytecode as text (payload); the name is 'original' or 'generated'."""

    kind = "output_graph.bytecode"

    function: str
    """Name of the code object."""
    size: int
    """Size in bytes."""
    names: Sequence[str]
    """Globals and attributes that it refers to."""
    stack_size: int
    """Depth of its stack."""
