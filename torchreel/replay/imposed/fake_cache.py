"""Impose on a replay what each operator found in the fake-tensor cache when it was recorded.

Lives here: `Lookup`, what the event log says of an operator; reading them from an event log
(`lookups_of`), which imports no torch; and `imposed`, which the child of a replay runs its stage
in.  The cache is filled by all that a process compiled before, and what it gives is not always what
the operator would work out: a result out of it has no storage offset, and traces no symbolic
arithmetic.  Its sizes are spelled with the symbols of the time when it was worked out: those that
have become known to be equal since then (replacements) are not put in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchreel.errors import DamagedStore
from torchreel.events.fake_tensors import FakeDispatch
from torchreel.events.shape_env import Replacement
from torchreel.replay.compare.lanes import mark_of
from torchreel.replay.compare.selection import DISPATCH, MARK
from torchreel.replay.imposed import real_inputs
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder
    from torchreel.replay.compare.selection import Point
    from torchreel.replay.imposed.fake_dispatch import CacheLookup
    from torchreel.store.database import Store
    from torchreel.store.records import Compile, Event

HIT, MISS = "hit", "miss"
Sizes = tuple[tuple[Json, ...], ...]
_DEEPEST = 100
"""Operators that run within each other, at most; decompositions go some ten deep."""


@dataclass(frozen=True)
class Lookup:
    """An operator under a fake mode: its outcome in the cache, and those of operators within it."""

    name: str
    outcome: str
    within: tuple[Lookup, ...] = ()
    sizes: Sizes | None = None
    """The sizes of each tensor that it returned; None where all of them are numbers."""

    def to_json(self) -> Json:
        """Return it as data."""
        sizes = self.sizes and [list(row) for row in self.sizes]
        return [self.name, self.outcome, [inner.to_json() for inner in self.within], sizes]


Lookups = Mapping[str, Sequence[Lookup]]
"""By stage, in the order in which the operators began."""


def parsed(data: Mapping[str, Sequence[Any]]) -> Lookups:
    """Return the lookups that a request carries."""
    return {stage: [_parsed(row) for row in rows] for stage, rows in data.items()}


def _parsed(row: Sequence[Any]) -> Lookup:
    name, outcome, within, sizes = row
    known = None if sizes is None else tuple(tuple(row) for row in sizes)
    return Lookup(str(name), str(outcome), tuple(map(_parsed, within)), known)


def lookups_of(store: Store, compile: Compile, point: Point) -> dict[str, list[Lookup]]:
    """Return the cache lookups after a checkpoint, by stage; {} if the event log does not mark it.

    Operators that make fake tensors of real inputs are left out: a replay has no real inputs.
    """
    mark = mark_of(queries.events(store, compile, MARK), point)
    if mark is None:
        return {}
    converting = {event.seq for event in real_inputs.conversion(store, compile, point)}
    return by_stage(
        event
        for event in queries.events(store, compile, DISPATCH)
        if event.seq > mark.seq and not (event.stage == "pre_grad" and event.seq in converting)
    )


def lookups_in(store: Store, rows: Iterable[Compile]) -> dict[str, list[Lookup]]:
    """Return the cache lookups of the attempts at a frame, by stage."""
    return by_stage(event for row in rows for event in queries.events(store, row, DISPATCH))


def as_data(lookups: Lookups) -> dict[str, tuple[Any, ...]]:
    """Return lookups as data that travels with a request."""
    return {stage: tuple(row.to_json() for row in rows) for stage, rows in lookups.items()}


def by_stage(events: Iterable[Event]) -> dict[str, list[Lookup]]:
    """Return events of operators as trees: one is in the event log when it ends, after those within
    it.
    """
    found: dict[str, list[Lookup]] = {}
    running: list[tuple[int, Lookup]] = []
    for event in events:
        assert isinstance(event.fields, FakeDispatch)
        depth, within = event.fields.depth, []
        if not 0 <= depth <= _DEEPEST:
            raise DamagedStore(
                f"An operator within {depth} others is in the event log: none can be."
            )
        while running and running[-1][0] > depth:
            within.append(running.pop()[1])
        sizes = _symbolic_sizes(event.fields.result)
        lookup = Lookup(event.name, event.fields.outcome, tuple(within[::-1]), sizes)
        if depth:
            running.append((depth, lookup))
        else:
            found.setdefault(event.stage or "", []).append(lookup)
    return found


def _symbolic_sizes(result: Json) -> Sizes | None:
    """Return the sizes in the outline of a result, if one of them is no number."""
    found = tuple(_sizes_in(result))
    return found if any(isinstance(size, str) for row in found for size in row) else None


def _sizes_in(result: Json) -> Iterator[tuple[Json, ...]]:
    if not isinstance(result, list):
        return
    if len(result) == 4 and isinstance(result[0], str) and isinstance(result[1], list):
        yield tuple(result[1])
        return
    for item in result:
        yield from _sizes_in(item)


def replacements_of(store: Store, compile: Compile, point: Point) -> list[tuple[str, Json]]:
    """Return the replacements of symbols before a checkpoint, in the order of the event log."""
    mark = mark_of(queries.events(store, compile, MARK), point)
    if mark is None:
        return []
    return [
        (event.name, event.fields.expr)
        for event in queries.events(store, compile, Replacement.kind)
        if isinstance(event.fields, Replacement) and event.seq < mark.seq and event.env == mark.env
    ]


@dataclass
class _Place:
    """The position among the recorded operators of a stage, or within one of them."""

    expected: Sequence[Lookup]
    at: int = 0

    def next(self, name: str) -> Lookup | None:
        """Return the operator that is recorded here; None after the first that differs."""
        found = self.expected[self.at] if self.at < len(self.expected) else None
        if found is None or found.name != name:
            self.expected = ()
            return None
        self.at += 1
        return found


@dataclass
class _Guide:
    """Walks the recorded operators along with those that run."""

    recorder: Recorder
    stages: dict[str, _Place]
    running: list[tuple[Lookup | None, _Place]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Return True while nothing that runs is recorded."""
        return self.recorder.spans.here.inside

    def begin(self, name: str) -> None:
        """Note that an operator begins."""
        lookup = self._place().next(name)
        self.running.append((lookup, _Place(lookup.within if lookup is not None else ())))

    def _place(self) -> _Place:
        if self.running:
            return self.running[-1][1]
        top = self.recorder.spans.top
        stage = top.stage if top is not None else ""
        return self.stages.setdefault(stage, _Place(()))

    @property
    def lookup(self) -> Lookup | None:
        """Return the recorded cache lookup of the innermost operator; None if there is none."""
        return self.running[-1][0] if self.running else None


@contextlib.contextmanager
def imposed(
    recorder: Recorder, lookups: Lookups, replacements: Sequence[tuple[object, object]] = ()
) -> Iterator[None]:
    """Have the fake-tensor cache return the recorded entries and no others.

    An operator with a recorded miss is computed again.  For one with a hit, the entry of the cache
    is computed first, unseen by the recorder and by the tracer.  If its sizes are spelled otherwise
    than recorded, the entry was made before the ShapeEnv learned all that it knows now: then the
    `replacements` (symbol and expression) known at that time are searched for in their order.
    """
    from torchreel.replay.imposed.fake_dispatch import around_fake_dispatch

    guide = _Guide(recorder, {stage: _Place(rows) for stage, rows in lookups.items()})
    earlier = [dict(replacements[:count]) for count in range(len(replacements))]
    with around_fake_dispatch(_following(guide), _prepared(guide, earlier)):
        yield


def _following(guide: _Guide) -> Callable[[str], contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def follow(name: str) -> Iterator[None]:
        if guide.is_idle:
            yield
            return
        guide.begin(name)
        try:
            yield
        finally:
            guide.running.pop()

    return follow


def _prepared(guide: _Guide, earlier: Sequence[Mapping[Any, Any]]) -> Callable[[CacheLookup], None]:
    def prepare(asked: CacheLookup) -> None:
        recorded = None if guide.is_idle else guide.lookup
        if recorded is None:
            return
        if recorded.outcome == MISS:
            asked.forget()
        elif recorded.outcome == HIT:
            with guide.recorder.spans.here.unrecorded():
                _fill(asked, recorded.sizes, earlier)

    return prepare


def _fill(asked: CacheLookup, sizes: Sizes | None, earlier: Sequence[Mapping[Any, Any]]) -> None:
    """Make the cache entry of an operator, with the recorded sizes if that is possible."""
    if asked.entry is None:
        asked.work_out()
    if sizes is None or asked.sizes(asked.entry) == sizes:
        return
    for known in earlier:
        entry = asked.entry_with(known)
        if asked.sizes(entry) == sizes:
            asked.entry = entry
            return
