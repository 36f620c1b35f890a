"""Events of what AOTAutograd decides about inputs, outputs and the two graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import EventType, Nest


class AOTMetadata(EventType, frozen=True):
    """AOTAutograd ran the function once and knows its views and mutations."""

    kind = "aot.metadata"

    config: Mapping[str, Nest]
    """The request: export, dynamic shapes, ..."""
    needs_autograd: bool
    """True if there will be a joint graph."""
    inputs: Sequence[Nest]
    """Of each: what it is, (dtype, sizes, strides, device), how it is mutated, and what holds of
    it."""
    outputs: Sequence[Nest]
    """Of each: what it is a view of and how, its type, its dynamic sizes."""
    intermediate_bases: int
    """Number of bases of output views become outputs themselves."""
    tangents: Sequence[Nest]
    """Of each: what it is the gradient of, (dtype, sizes, strides, device)."""
    subclasses: Mapping[str, Nest]
    """Inputs, outputs and tangents that are subclasses: how they are taken apart."""
    static_inputs: Sequence[int]
    """Positions of the inputs that are parameters."""
    tokens: Sequence[Nest]
    """Kinds of side effects that are kept in order."""
    grad_mode: bool | None
    """The grad mode that the function sets, if it does."""
    deterministic: bool | None
    """True if deterministic algorithms were asked for."""


class DedupedArguments(EventType, frozen=True):
    """Mutated inputs are one and the same tensor: the graph takes it once."""

    kind = "aot.dedupe"
    paged = False

    kept: Sequence[bool]
    """Of each input, whether the graph takes it."""
    positions: Sequence[int]
    """Of each input, which one of those stands for it."""


class SyntheticBases(EventType, frozen=True):
    """Mutated inputs share memory: the graph takes their base, and makes the views itself."""

    kind = "aot.synthetic_bases"
    paged = False

    bases: Sequence[Nest]
    """Of each base: its position in the graph, and the inputs made from it."""
    others: Sequence[int]
    """The remaining inputs, in their new order."""
    metadata_mutations: Sequence[Nest]
    """Inputs whose sizes or strides are mutated as well."""


class SavePolicy(EventType, frozen=True):
    """A region of activation checkpointing asked the program's policy whether to save what an
    operator computes; the name is the operator."""

    kind = "aot.save_policy"

    region: str
    """Name of the node that calls the region; behind those of the regions around it, with a dot
    between them."""
    run: int
    """Number that torch gave this tracing of the region: each operator is asked for in each."""
    answer: str
    """The answer: 'MUST_SAVE', 'PREFER_RECOMPUTE', ..."""


class Partition(EventType, frozen=True):
    """The joint graph was split; what the backward needs is saved or computed again."""

    kind = "aot.partition"

    saved: Sequence[Nest]
    """Tensors: (name, (dtype, sizes, strides, device))."""
    symbols: Sequence[Nest]
    """Symbolic scalars: (name, expression)."""
    others: Sequence[Nest]
    """Saved objects that are neither, by name."""
    recomputed: Sequence[str]
    """Nodes that both graphs compute."""
    donated: Sequence[int] | None
    """Positions of the saved tensors that the backward may overwrite."""
    detached: Sequence[Nest]
    """Positions of the inputs that are detached."""
    nodes: Sequence[int]
    """Numbers of nodes of forward and backward."""


class LateBackward(EventType, frozen=True):
    """A backward is compiled only now that it is called for the first time."""

    kind = "aot.late_backward"
    paged = False

    used_once: bool
    """True if the saved tensors may be freed while it runs."""
