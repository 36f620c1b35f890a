"""The rows of the views, typed: one class for each, whose docstrings are its documentation.

The classes say the columns, their types in SQL and what they mean (`views`).
"""

from __future__ import annotations

from typing import NamedTuple

from torchreel.analysis.query.notebook import card


class CompilesRow(NamedTuple):
    """One attempt at one frame."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    recording: int
    """Number of the recording."""
    kind: str
    """Kind of the recording: program, replay, import."""
    rank: int | None
    """Rank of the process."""
    compile_id: str
    """torch's name for it: 0/1."""
    attempt: int
    """Its number: restarts count up."""
    frame: str
    """Name of the frame."""
    file: str
    """File of the frame."""
    line: int
    """Its first line."""
    backend: str | None
    """The backend that compiled it."""
    status: str
    """ok, failed, restarted, skipped (left to Python), crashed, hung, running, unknown, stopped."""
    started_ns: int
    """Beginning, in nanoseconds since 1970."""
    seconds: float | None
    """Duration, without the time between its stages (before a backward)."""
    call_nodes: int | None
    """Number of call nodes of its first graph."""

    def _repr_html_(self) -> str:
        """Return it as a card, for a notebook."""
        return card(f"compile {self.compile} of {self.frame}: {self.status}", self._fields, self)


class FailuresRow(NamedTuple):
    """An exception, a wrong result, a crash or a hang."""

    compile: str | None
    """The compile, as it stands after '#' in its address."""
    recording: int
    """Number of the recording."""
    rank: int | None
    """Rank of the process."""
    torch: str | None
    """Version of torch."""
    stage: str
    """Stage that failed."""
    partition: str
    """inference, forward, backward, or empty."""
    failure_class: str
    """exception, wrong_result, crash, hang, memory."""
    exception_type: str | None
    """Its type, or the signal of a crash."""
    message: str
    """Its message, as it was raised."""
    place: str | None
    """The innermost function of torch."""
    signature: str
    """Digest of its signature: the same for the same bug."""
    time_ns: int
    """Time, in nanoseconds since 1970."""

    def _repr_html_(self) -> str:
        """Return it as a card, for a notebook."""
        kind = self.exception_type or self.failure_class
        return card(f"{kind} in {self.stage} of {self.compile}", self._fields, self)


class StagesRow(NamedTuple):
    """A step of the pipeline that a compile entered."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    stage: str
    """dynamo, pre_grad, joint, forward, ..."""
    partition: str
    """inference, forward, backward, or empty."""
    status: str
    """ok, failed, restarted, skipped, open, stopped."""
    started_ns: int
    """Beginning, in nanoseconds since 1970."""
    seconds: float | None
    """Duration."""


class GraphNodesRow(NamedTuple):
    """A node of a graph, as it was at a stage."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    stage: str
    """Stage of the graph."""
    partition: str
    """Partition of the graph."""
    ordinal: int
    """Number of the graph, where a stage has several."""
    number: int
    """Its place in the graph."""
    module: str
    """The nested graph that it is in, or empty."""
    node: str
    """Its name."""
    op: str
    """placeholder, call_function, call_method, get_attr, output, ..."""
    target: str
    """The function that it calls: op:aten.add.Tensor, fn:torch.relu, view."""
    code: str
    """The node as a line of Python."""
    dtype: str | None
    """dtype of its value."""
    sizes: str | None
    """Sizes of its value, a JSON list."""
    device: str | None
    """Device of its value."""
    stack: str | None
    """The user's stack."""


class GuardsRow(NamedTuple):
    """A guard of the compiled code."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """Its place in the event log."""
    type: str
    """TENSOR_MATCH, ..."""
    expression: str | None
    """The guarded expression: L['x']."""
    checks: str
    """Its code, a line for each check."""
    file: str | None
    """File of the user's line."""
    line: int | None
    """Its number."""


class SymbolsRow(NamedTuple):
    """A symbol of the ShapeEnv, as it is in the end."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """The event that made it."""
    symbol: str
    """Its name: s77, u0."""
    backed: int
    """1 if it has a value while tracing."""
    hint: str | None
    """That value."""
    low: str | None
    """Lower end of its range; -oo if it has none."""
    high: str | None
    """Upper end of its range; oo if it has none."""
    replacement: str | None
    """The expression that it was found to be equal to."""
    renamed: str | None
    """The symbol that an unbacked one was recognised as."""
    sources: str
    """The places where guards read it, a JSON list."""
    file: str | None
    """File of the user's line."""
    line: int | None
    """Its number."""


class RecompilesRow(NamedTuple):
    """A cached entry whose guards failed, before a compile: a recompile has one for each entry."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """Its place in the event log."""
    reason: str | None
    """As torch words it."""
    guards: str
    """Those that failed, a JSON list."""
    file: str | None
    """File of the user's line."""
    line: int | None
    """Its number."""


class GraphBreaksRow(NamedTuple):
    """A graph break, or what raised instead of one because a full graph was asked for."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """Its place in the event log."""
    type: str | None
    """Torch's name for it."""
    outcome: str
    """'handled', or 'raised': a failure, which no other verb counts as a graph break."""
    reason: str | None
    """As torch words it."""
    file: str | None
    """File of the user's line."""
    line: int | None
    """Its number."""


class CacheDecisionsRow(NamedTuple):
    """A cache of compiled graphs that was asked."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """Its place in the event log."""
    cache: str
    """Name of the cache."""
    outcome: str | None
    """hit, miss or bypass."""
    key: str | None
    """The key that was looked up."""
    reason: str | None
    """The reason why it was bypassed."""
    stage: str | None
    """The stage that asked."""


class KernelsRow(NamedTuple):
    """A kernel that was generated, or a library's that is called."""

    compile: str
    """The compile, as it stands after '#' in its address."""
    event: int
    """Its place in the event log."""
    kernel: str | None
    """Its name."""
    backend: str | None
    """cpp, triton, or extern for a library's."""
    origins: str
    """Names of the graph nodes that it computes, a JSON list."""
    source: str | None
    """sha256 of its source."""
