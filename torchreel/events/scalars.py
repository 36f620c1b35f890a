"""Events of unbacked symbols, deferred runtime asserts, and numbers that became symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import (
    EventType,
    Expression,
    Nest,
    ShapeEnvEvent,
    SourceDocument,
    SymbolEvent,
)


class UnbackedSymbol(SymbolEvent, frozen=True):
    """An unbacked symbol was created."""

    kind = "unbacked.create"

    assumptions: Nest
    """SymPy's, `!` for not."""
    range: Nest
    """Lower and upper bound."""
    pending: bool
    """True if a binding must be found for it."""


class UnbackedRename(SymbolEvent, frozen=True):
    """A symbol of a new trace was recognised as one of the trace before."""

    kind = "unbacked.rename"

    symbol: Expression
    """The new one."""
    to: Expression
    """The one that it is."""


class SizeLike(SymbolEvent, frozen=True):
    """A symbol counts as a size: at least 2 where that is asked."""

    kind = "unbacked.size_like"


class UnbackedBindings(ShapeEnvEvent, frozen=True):
    """The fresh unbacked symbols of a value were found in it."""

    kind = "unbacked.bindings"

    bindings: Mapping[str, Nest]
    """By symbol, the path of keys to it."""
    peek: bool
    """Only looked for."""


class UnbackedRebind(ShapeEnvEvent, frozen=True):
    """A node that binds unbacked symbols was traced again: its new symbols are the old ones. The
    name is the node's."""

    kind = "unbacked.rebind"

    bindings: Mapping[str, Nest]
    """By symbol of the trace before, the path of keys to it."""


class DataDependentError(ShapeEnvEvent, frozen=True):
    """A decision depends on data: GuardOnDataDependentSymNode was made, which may be handled."""

    kind = "unbacked.data_dependent_error"
    paged = False

    expr: Expression
    """The expression that was asked for, with hints put in."""
    unhinted: Expression
    """Without them."""
    hints: Mapping[str, Nest]
    """Of the symbols that have one."""
    size_like: Sequence[str]
    """Those that count as sizes."""
    message: str
    """Torch's."""


class DeferredAssert(ShapeEnvEvent, frozen=True):
    """An assertion was left to the run of the compiled code."""

    kind = "runtime_assert.defer"

    symbol: Expression | None
    """The last of its unbacked symbols; none where export keeps guards out of the signature."""
    expr: Expression
    """The assertion."""
    message: str
    """The message of a failure."""


class KnownAssert(ShapeEnvEvent, frozen=True):
    """An assertion was not deferred: its value is known."""

    kind = "runtime_assert.known"

    expr: Expression
    """The assertion."""
    message: str
    """The message of a failure."""
    value: bool | None
    """True if it does."""


class InsertedAsserts(ShapeEnvEvent, frozen=True):
    """Deferred assertions were put into a graph, or redundant ones out of it. The name is the
    graph's."""

    kind = "runtime_assert.insert"

    added: Sequence[Mapping[str, str]]
    """Name, target and arguments of each new node."""
    removed: Sequence[str]
    """Names of nodes."""


class ScalarItem(SymbolEvent, frozen=True):
    """The value of a 0-d input tensor became a backed symbol."""

    kind = "scalar.item"

    source: SourceDocument
    """The input's `item()`."""


class SymbolicScalar(EventType, frozen=True):
    """Dynamo made an int or float of the program symbolic, or a constant."""

    kind = "scalar.symbolic"

    source: SourceDocument | None
    """Its Source."""
    type: str
    """'int' or 'float'."""
    expr: Expression | None
    """Its symbol; none for a constant."""
    value: int | float | None
    """Of a constant."""


class Tensorify(EventType, frozen=True):
    """Arithmetic on symbolic floats was turned into arithmetic on tensors."""

    kind = "scalar.tensorify"

    before: Sequence[Expression]
    """Expressions of the graph's symbolic floats."""
    after: Sequence[Expression]
    """Those left."""
    specialized: Sequence[str]
    """Symbols that the next attempt must treat as constants."""
    restart: bool
    """True if it asks for that attempt."""
