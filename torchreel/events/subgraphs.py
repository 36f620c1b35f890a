"""Events of the tracers of bodies, and the higher-order operators that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import EventType, Expression, Nest


class SubgraphEnter(EventType, frozen=True):
    """A tracer begins: of the frame's own graph, or of a body; its stack is the user's."""

    kind = "subgraph.enter"

    operator: str | None
    """Its purpose: a higher-order operator, or 'subgraph_wrapper' for one that is thrown away;
    null for the frame's own graph."""
    depth: int
    """0 for the frame's own graph, 1 for its bodies, and so on."""
    parent: int | None
    """Seq of the `subgraph.enter` of the tracer around it."""


class SubgraphLeave(EventType, frozen=True):
    """A body has been traced, or could not be."""

    kind = "subgraph.leave"

    body: int | None
    """Seq of its `subgraph.enter`; null when it did not come to that."""
    nodes: int
    """Number of its nodes."""
    inputs: Sequence[str]
    """Names of its inputs, in order."""
    lifted: Sequence[Sequence[str]]
    """Those that stand for a value of the outer graph: [outer name, name]."""
    error: str | None
    """Class and message of the exception; null when it was traced."""


class SubgraphInput(EventType, frozen=True):
    """A body gets an input; the name is its placeholder."""

    kind = "subgraph.input"

    body: int | None
    """Seq of its `subgraph.enter`."""
    type: str
    """Class of the value."""
    expression: Expression | None
    """Its symbol or expression, for a symbolic number."""
    source: str | None
    """Its Source, as Python, when it is not of the outer graph."""


class SubgraphLift(EventType, frozen=True):
    """A value of an outer graph that a body uses becomes an input of it (and before that of every
    body between them); the name is that of the outer node."""

    kind = "subgraph.lift"

    body: int | None
    """Seq of its `subgraph.enter`."""
    input: str
    """Name of the new input."""
    expression: Expression | None
    """Its symbol or expression, for a symbolic number."""


class HopBody(EventType, frozen=True):
    """A body becomes a part of the graph; the name is the one that calls refer to. A body that
    several calls share has one."""

    kind = "hop.body"

    nodes: int
    """Number of its nodes."""
    inputs: Sequence[str]
    """Names of its inputs, in order."""


class HopCall(EventType, frozen=True):
    """A graph calls a higher-order operator; the name is the operator."""

    kind = "hop.call"

    node: str
    """Name of the node."""
    graph: str
    """Path of bodies to the graph that holds it; '' for the outermost."""
    depth: int
    """Number of bodies around it."""
    bodies: Sequence[str]
    """Names of the bodies that it is given, in order."""
    operands: int
    """Number of its other arguments that are nodes."""
    level: str
    """'dynamo', or 'aot' (functionalised and decomposed)."""


class HopCheck(EventType, frozen=True):
    """A body is looked at for aliasing and mutation; the name is what looks: Dynamo's check
    ('has_input_mutation', 'has_aliasing') or an operator's module."""

    kind = "hop.check"

    found: bool
    """True if there is any."""
    message: str
    """Dynamo's message."""
    input_input: Nest
    """Inputs that share memory with another input, by position."""
    input_output: Nest
    """Inputs that share memory with an output."""
    output_output: Nest
    """Outputs that share memory with another output."""
    mutated: Nest
    """Positions of the inputs that it changes."""


class HopKernel(EventType, frozen=True):
    """The Triton kernel that a call in Dynamo's graph stands for; the name is the kernel's, the
    payload its source."""

    kind = "hop.kernel"

    node: str
    """Name of the node that calls it."""
    function: str | None
    """Its Python function, by name and line."""
    grid: Nest
    """Numbers of programs that run, for each configuration: numbers and names of nodes."""
    arguments: Sequence[str]
    """Names of the arguments that nodes are given for."""
    constants: Mapping[str, Nest]
    """The other arguments, by name."""
    configurations: Nest
    """The configurations that @triton.autotune chooses from; empty without it."""
    key: Sequence[str] = ()
    """Names of the arguments by which @triton.autotune chooses anew."""
    names: Mapping[str, Nest] = {}
    """Meanings of the global names that it uses (`torchreel.formats.triton_names`)."""
