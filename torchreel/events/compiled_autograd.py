"""Events of a backward that compiled autograd captures."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import EventType, Nest


class AutogradCapture(EventType, frozen=True):
    """The autograd engine's backward is captured as a graph."""

    kind = "compiled_autograd.capture"
    paged = False

    inputs: Sequence[Nest]
    """Tensors: (node call, its name, (dtype, sizes, strides, device)); torch knows the node call
    only with TORCH_LOGS=compiled_autograd_verbose."""
    sizes: Sequence[Nest]
    """Numbers that become symbols: (node call, its name, value)."""
    scalars: Sequence[Nest]
    """Other numbers: (node call, its name, type)."""
    accumulate_grad: bool
    """True if gradients are accumulated on leaves."""
    check_nans: bool
    """True if anomaly mode looks for NaNs."""


class AutogradNode(EventType, frozen=True):
    """The autograd engine called a node."""

    kind = "compiled_autograd.node"

    index: int
    """The number of the call."""
    backward_of: Nest
    """For one made by AOTAutograd: the name of its Function."""


class AutogradHook(EventType, frozen=True):
    """A hook became a call in the graph."""

    kind = "compiled_autograd.hook"

    hook: int | None
    """Its index among the hooks that the graph takes."""


class AutogradGraph(EventType, frozen=True):
    """The graph of a backward is complete."""

    kind = "compiled_autograd.graph"
    paged = False

    nodes: int
    """Number of its nodes."""
    used_sizes: Sequence[int] | None
    """Positions of the sizes that it takes; null when they were not known yet."""
