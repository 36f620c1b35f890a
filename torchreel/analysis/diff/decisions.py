"""The decisions of a compile, in order: all ranks of a job have to decide alike.

Lives here: the table of the events that are decisions, and what of each has to be the same.  Not
here: the walk along several ranks (`ranks`).

Sizes that a rank saw (hints, the states before a collective) are left out: ranks may have other
inputs.  Identities and places of objects are left out as in any comparison.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torchreel.analysis.diff.facts import config_facts
from torchreel.analysis.diff.guards import guard_lines
from torchreel.analysis.diff.report import DiffSide
from torchreel.events.collectives import CollectiveOutcome, MergedState
from torchreel.events.frames import CacheMiss, FrameSkip, GraphBreak, Restart
from torchreel.events.guards import Guard
from torchreel.events.nondeterminism import Autotuning, CacheOutcome
from torchreel.events.output_graph import SubgraphCompile
from torchreel.events.scalars import DeferredAssert, UnbackedSymbol
from torchreel.events.shape_env import BackedSymbol, Replacement, ShapeGuard, ZeroOne
from torchreel.replay.compare.dynamo_forms import DynamoForms
from torchreel.replay.compare.normalise import canonical_text
from torchreel.store import queries
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event

Data = Mapping[str, Json]


@dataclass(frozen=True)
class Decision:
    """One decision: its kind, what was decided, and the event (None: of the whole compile)."""

    what: str
    text: str
    seq: int | None

    @property
    def key(self) -> tuple[str, str]:
        """Return the part that has to be equal on all ranks."""
        return self.what, self.text


@dataclass(frozen=True)
class Decisions:
    """The decisions of a compile; `graph` is how many come before its Dynamo graph is complete."""

    rows: tuple[Decision, ...]
    graph: int
    graph_at: int | None = None

    def graph_address(self, side: DiffSide) -> str:
        """Return the address of the event at which the graph is complete."""
        return side.address if self.graph_at is None else side.at(self.graph_at)


def decisions(side: DiffSide) -> Decisions:
    """The decisions of a compile, in the order of its event log; its config first."""
    kinds = set(queries.event_counts(side.store, side.compile))
    found = [
        event
        for kind in _KINDS
        if kind in kinds
        for event in queries.events(side.store, side.compile, kind)
    ]
    rows = [
        Decision("config", f"{name} {fact.text}", None) for name, fact in config_facts(side).items()
    ]
    at = _graph_at(side)
    before = len(rows)
    for event in sorted(found, key=lambda event: event.seq):
        what, text = _KINDS[event.kind]
        rows += [Decision(what, line, event.seq) for line in text(event)]
        before = len(rows) if at is None or event.seq < at else before
    return Decisions(tuple(rows), before, at)


def _graph_at(side: DiffSide) -> int | None:
    """Return the position of the event at which the Dynamo graph is complete."""
    for event in queries.events(side.store, side.compile, SubgraphCompile.kind):
        return event.seq
    return None


def _data(event: Event) -> Data:
    return event.data if isinstance(event.data, Mapping) else {}


def _named(*fields: str) -> Callable[[Event], Iterable[str]]:
    """The name of an event with some of its fields."""

    def text(event: Event) -> Iterable[str]:
        data = _data(event)
        parts = [f"{field} {_plain(data.get(field))}" for field in fields]
        yield canonical_text(DynamoForms().text(" ".join(filter(None, [event.name, *parts]))))

    return text


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _symbol(event: Event) -> Iterable[str]:
    data = _data(event)
    sources = data.get("sources")
    where = source_name(sources[0]) if isinstance(sources, list) and sources else "no source"
    yield f"{event.name} for {where}, range {_plain(data.get('range'))}"


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
"""Kinds of events, what they are called here, and what of them has to be the same on all ranks."""
