"""Events of the tracing of functions into graphs by proxies."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import Described, EventType, Expression


class ProxyTrace(EventType, frozen=True):
    """A function was traced by make_fx; the nodes that came of it are a part of this."""

    kind = "proxies.trace"

    tracing_mode: str
    """'real', 'fake' or 'symbolic': what the arguments were turned into."""
    pre_dispatch: bool
    """True if it traced above autograd."""
    decompositions: int
    """Number of operators that were to be decomposed."""
    subgraph: bool
    """True if this is the body of a higher-order operator."""
    arguments: Described
    """(dtype, sizes, strides, device) of the tensors, in the order of the call."""


class ProxyTraced(EventType, frozen=True):
    """A tracing ended."""

    kind = "proxies.traced"

    outcome: str
    """'ok', or the type of the exception."""
    nodes: int | None
    """Number of nodes of the graph (those that nothing used are gone)."""


class ProxyNode(EventType, frozen=True):
    """Something became a node of a graph that make_fx traces (symbolic arithmetic has its own
    kind)."""

    kind = "proxies.node"
    exact = True

    op: str
    """The kind of node: placeholder, get_attr, call_function, output."""
    target: str
    """The function that it calls."""
    inputs: Sequence[str]
    """The names of the nodes that it uses."""


class SymbolicNode(EventType, frozen=True):
    """Arithmetic on symbolic scalars became a node, because another one needs its result."""

    kind = "proxies.symbolic"

    function: str
    """The function that it calls."""
    arguments: Sequence[Expression]
    """Names of nodes (whose results are in the event log as well) and constants."""
    result: Expression
    """The expression."""
