"""The decisions of a compile, in order: all ranks of a job have to decide alike.

Lives here: the table of the events that are decisions, and what of each has to be the same.  Not
here: the walk along several ranks (`ranks`).

Sizes that a rank saw (hints, the states before a collective) are left out: ranks may have other
inputs.  Identities and places of objects are left out as in any comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis.diff.layers.facts import Facts, config_table, facts_of_checkpoint
from torchreel.analysis.diff.layers.graphs import fingerprint
from torchreel.analysis.diff.layers.guards import guard_lines
from torchreel.analysis.diff.report import DiffSide
from torchreel.analysis.diff.text import plain
from torchreel.events.collectives import CollectiveOutcome, MergedState
from torchreel.events.frames import CacheMiss, FrameSkip, GraphBreak, Restart
from torchreel.events.guards import Guard
from torchreel.events.nondeterminism import Autotuning, CacheOutcome
from torchreel.events.output_graph import SubgraphCompile
from torchreel.events.scalars import DeferredAssert, UnbackedSymbol
from torchreel.events.shape_env import BackedSymbol, Replacement, ShapeGuard, ZeroOne
from torchreel.replay.compare.normalise import canonical_text
from torchreel.replay.compare.normalise_dynamo import DynamoNormaliser
from torchreel.store import queries
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json, json_text
from torchreel.store.documents.kinds import as_object
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Compile, Event

Data = Mapping[str, Json]


@dataclass(frozen=True)
class Decision:
    """One decision: its kind, its text, and the event (None: of the whole compile)."""

    what: str
    text: str
    seq: int | None

    @property
    def key(self) -> tuple[str, str]:
        """Return the part that has to be equal on all ranks."""
        return self.what, self.text


@dataclass(frozen=True)
class Decisions:
    """The decisions of a compile; `graph` is the number before its Dynamo graph is complete."""

    rows: tuple[Decision, ...]
    graph: int
    graph_at: int | None = None
    digest: str = ""
    """The digest of its Dynamo graph."""
    fingerprint: str = ""
    """The same, without the sizes of this run."""

    def graph_address(self, side: DiffSide) -> str:
        """Return the address of the event at which the graph is complete."""
        return side.address if self.graph_at is None else side.at(self.graph_at)


class DecisionReader:
    """Reads the decisions of the compiles of one recording, some dozens at a time.

    `texts` is shared by the readers of all ranks: an event that is the same on another rank is
    spelled once.
    """

    def __init__(self, store: Store, compiles: Sequence[Compile], texts: Texts) -> None:
        self._store, self._compiles, self._texts = store, compiles, texts
        self._read: dict[int, Decisions] = {}
        self._first, self._at_once = range(0), _AT_FIRST
        self._configs: dict[int | None, list[ConfigEntry]] = {}

    def of(self, number: int) -> Decisions:
        """Return the decisions of a compile, in the order of its event log; its config first."""
        if number not in self._first:
            self._at_once = min(2 * self._at_once, _AT_ONCE)
            self._first = range(number, min(number + self._at_once, len(self._compiles)))
            rows = [self._compiles[place] for place in self._first]
            self._read = dict(zip(self._first, self._decisions(rows), strict=True))
        return self._read[number]

    def _decisions(self, rows: Sequence[Compile]) -> Iterator[Decisions]:
        events = queries.events_by_compile(self._store, rows, [*_KINDS, SubgraphCompile.kind])
        given, graphs = self._given(rows), self._graphs(rows)
        for row in rows:
            config = config_table(row, self._config(row.config_id), given.get(row.id, {}))
            first = [
                Decision("config", f"{name} {fact.text}", None) for name, fact in config.items()
            ]
            yield self._in_order(first, events.get(row.id, []), graphs.get(row.id, ("", "")))

    def _given(self, rows: Sequence[Compile]) -> dict[int, Facts]:
        """Return the facts that only checkpoints of Dynamo graphs hold, by compile."""
        found = queries.checkpoints_by_compile(self._store, rows, "graph")
        digests = {compile_id: known[0].digest for compile_id, known in found.items()}
        blobs = self._store.read_blobs(digests.values())
        return {
            compile_id: facts_of_checkpoint(data)
            for compile_id, data in zip(digests, blobs, strict=True)
        }

    def _graphs(self, rows: Sequence[Compile]) -> dict[int, tuple[str, str]]:
        """Return the digest and the fingerprint of each Dynamo graph."""
        found = queries.graphs_by_compile(self._store, rows, "dynamo")
        digests = {compile_id: known[0].digest for compile_id, known in found.items()}
        blobs = self._store.read_blobs(digests.values())
        return {
            compile_id: (digest, fingerprint(data))
            for (compile_id, digest), data in zip(digests.items(), blobs, strict=True)
        }

    def _config(self, config_id: int | None) -> list[ConfigEntry]:
        if config_id not in self._configs:
            self._configs[config_id] = queries.config(self._store, config_id)
        return self._configs[config_id]

    def _in_order(
        self, first: list[Decision], events: Sequence[Event], graph: tuple[str, str]
    ) -> Decisions:
        at = next((event.seq for event in events if event.kind == SubgraphCompile.kind), None)
        rows, before = first, len(first)
        for event in events:
            if event.kind in _KINDS:
                rows += [Decision(what, line, event.seq) for what, line in self._spelled(event)]
                before = len(rows) if at is None or event.seq < at else before
        return Decisions(tuple(rows), before, at, *graph)

    def _spelled(self, event: Event) -> Sequence[tuple[str, str]]:
        key = event.kind, event.name, json_text(event.data)
        if key not in self._texts:
            what, text = _KINDS[event.kind]
            self._texts[key] = tuple((what, line) for line in text(event))
        return self._texts[key]


Texts = dict[tuple[str, str, str], tuple[tuple[str, str], ...]]
"""Events by their kind, name and data, as they are compared."""
_AT_FIRST, _AT_ONCE = 2, 32
"""Compiles whose events are in memory at once, for each rank: few at first, for ranks often part in
the beginning."""


def _data(event: Event) -> Data:
    return as_object(event.data)


def _named(*fields: str) -> Callable[[Event], Iterable[str]]:
    """Return the name of an event with some of its fields."""

    def text(event: Event) -> Iterable[str]:
        data = _data(event)
        parts = [f"{field} {plain(data.get(field))}" for field in fields]
        yield canonical_text(DynamoNormaliser().text(" ".join(filter(None, [event.name, *parts]))))

    return text


def _symbol(event: Event) -> Iterable[str]:
    data = _data(event)
    sources = data.get("sources")
    where = source_name(sources[0]) if isinstance(sources, list) and sources else "no source"
    yield f"{event.name} for {where}, range {plain(data.get('range'))}"


def _expression(*, field: str = "expr") -> Callable[[Event], Iterable[str]]:
    def text(event: Event) -> Iterable[str]:
        shown = spelling.size(_data(event).get(field))
        yield f"{event.name} = {shown}" if event.name else shown

    return text


def _zero_one(event: Event) -> Iterable[str]:
    data = _data(event)
    yield f"{source_name(data.get('source'))} is {data.get('value')}"


def _guard(event: Event) -> Iterable[str]:
    for line in guard_lines(event):
        yield f"{line.what} {line.text}"


_KINDS: Mapping[str, tuple[str, Callable[[Event], Iterable[str]]]] = {
    CacheMiss.kind: ("recompile", _named("guards")),
    FrameSkip.kind: ("skipped frame", _named("reason")),
    GraphBreak.kind: ("graph break", _named("type", "reason")),
    Restart.kind: ("restart", _named("type")),
    CollectiveOutcome.kind: ("collective", _named("outcome", "differing", "error")),
    MergedState.kind: ("agreed input", _named("merged")),
    BackedSymbol.kind: ("symbol", _symbol),
    ZeroOne.kind: ("symbol", _zero_one),
    UnbackedSymbol.kind: ("symbol", _named("range")),
    Replacement.kind: ("replacement", _expression()),
    ShapeGuard.kind: ("guard", _expression()),
    DeferredAssert.kind: ("runtime assert", _expression()),
    CacheOutcome.kind: ("cache", _named("outcome", "reason")),
    Autotuning.kind: ("autotuning", _named("chosen")),
    Guard.kind: ("guard", _guard),
}
"""Kinds of events, their names here, and the fields that have to be equal on all ranks."""
