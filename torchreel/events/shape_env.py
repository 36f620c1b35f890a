"""Events of each change of a ShapeEnv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import (
    Expression,
    Nest,
    ShapeEnvEvent,
    SourceDocument,
    SymbolEvent,
)


class ShapeEnvCreate(ShapeEnvEvent, frozen=True):
    """A ShapeEnv was made, or seen for the first time."""

    kind = "shape_env.create"

    env: int
    """Number of the ShapeEnv in this recording."""
    settings: Mapping[str, Nest]
    """Its settings."""
    validation: bool
    """True if Z3 validates it."""


class ShapeEnvCall(ShapeEnvEvent, frozen=True):
    """The outermost call of a method that changed a ShapeEnv; the changes are parts of it. The name
    is the method's."""

    kind = "shape_env.call"

    arguments: Mapping[str, Nest]
    """By name; objects by their type."""


class BackedSymbol(SymbolEvent, frozen=True):
    """A backed symbol was created."""

    kind = "shape_env.symbol"

    assumptions: Nest
    """SymPy's, `!` for not."""
    hint: Nest
    """Its value in this run."""
    range: Nest
    """Lower and upper bound."""
    sources: Sequence[SourceDocument] | None
    """The Sources where guards read it, the first one first."""


class DuckSymbol(SymbolEvent, frozen=True):
    """An input with the hint of a known symbol shares that symbol."""

    kind = "shape_env.duck"

    source: SourceDocument
    """The other input."""
    first: bool
    """True if guards read the symbol there from now on."""


class RangeUpdate(SymbolEvent, frozen=True):
    """The range of a symbol was refined."""

    kind = "shape_env.range"

    old: Nest
    """Bounds before."""
    new: Nest
    """Bounds from now on."""


class Replacement(SymbolEvent, frozen=True):
    """A symbol is replaced by an expression from now on; a number is a specialisation."""

    kind = "shape_env.replacement"

    expr: Expression
    """The expression that stands for it."""
    old: Expression | None
    """The one that stood before."""
    reason: str
    """Torch's word for why: solve, find, range_refined_to_singleton, ..."""


class Divisible(ShapeEnvEvent, frozen=True):
    """A remainder is known to be zero."""

    kind = "shape_env.divisible"

    expr: Expression
    """The Mod."""


class ShapeGuard(ShapeEnvEvent, frozen=True):
    """A guard was added."""

    kind = "shape_env.guard"

    expr: Expression
    """The condition."""
    size_oblivious: bool
    """Asked for sizes other than 0 and 1."""
    location: Nest
    """The place that torch names."""


class ShapeEnvSet(ShapeEnvEvent, frozen=True):
    """Other fields of a ShapeEnv changed: axioms, counters, freezing, pending symbols, ..."""

    kind = "shape_env.set"

    changes: Mapping[str, Nest]
    """By field: `put` and `drop` entries, or `all` of it."""


class SpecializeOn(ShapeEnvEvent, frozen=True):
    """The program asks for a graph of its own where a condition on a size holds. The condition is
    its code, so the ShapeEnv rebuilt from the event log is without it."""

    kind = "shape_env.specialize_on"

    source: Nest
    """The size."""
    condition: Nest
    """The function, by name and line."""


class ZeroOne(ShapeEnvEvent, frozen=True):
    """A dynamic size of 0 or 1 got no symbol: it is specialised."""

    kind = "shape_env.zero_one"

    source: Nest
    """The size."""
    value: Expression
    """0 or 1."""


class ProducedGuards(ShapeEnvEvent, frozen=True):
    """The ShapeEnv's guards were turned into code."""

    kind = "shape_env.guards"

    guards: Sequence[Sequence[str]]
    """For each language asked for, the expressions."""


class ShapeEnvCheckpoint(ShapeEnvEvent, frozen=True):
    """A checkpoint holds a snapshot of the ShapeEnv as it is here."""

    kind = "shape_env.checkpoint"

    partition: str
    """Of the checkpoint."""
    ordinal: int
    """Of the checkpoint."""
