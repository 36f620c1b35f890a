"""Impose on a replay what each operator found in the fake-tensor cache when it was recorded.

Lives here: `Lookup`, what the tape says of an operator; reading them from a tape (`lookups_of`),
which imports no torch; and `imposed`, which the child of a replay runs its stage in.  The cache is
filled by all that a process compiled before, and what it gives is not always what the operator
would work out: a result out of it has no storage offset, and traces no symbolic arithmetic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchreel.errors import DamagedStore
from torchreel.replay.compare.lanes import mark_of
from torchreel.replay.compare.selection import DISPATCH, MARK
from torchreel.replay.imposed import real_inputs
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder
    from torchreel.replay.compare.selection import Point
    from torchreel.store.database import Store
    from torchreel.store.records import Compile, Event

HIT, MISS = "hit", "miss"
_DEEPEST = 100
"""Operators that run within each other, at most; decompositions go some ten deep."""


@dataclass(frozen=True)
class Lookup:
    """An operator under a fake mode: what the cache had for it, and for those that it ran."""

    name: str
    outcome: str
    within: tuple[Lookup, ...] = ()

    def to_json(self) -> Json:
        """As data that travels with a request."""
        return [self.name, self.outcome, [inner.to_json() for inner in self.within]]


Lookups = Mapping[str, Sequence[Lookup]]
"""By stage, in the order in which the operators began."""


def parsed(data: Mapping[str, Sequence[Any]]) -> Lookups:
    """The lookups that a request carries."""
    return {stage: [_parsed(row) for row in rows] for stage, rows in data.items()}


def _parsed(row: Sequence[Any]) -> Lookup:
    name, outcome, within = row
    return Lookup(str(name), str(outcome), tuple(map(_parsed, within)))


def lookups_of(store: Store, compile: Compile, point: Point) -> dict[str, list[Lookup]]:
    """Return what the tape says from a checkpoint on; real inputs become fake in the program
    alone.
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


def by_stage(events: Iterable[Event]) -> dict[str, list[Lookup]]:
    """Events of operators as trees: one is on the tape when it ends, after those within it."""
    found: dict[str, list[Lookup]] = {}
    running: list[tuple[int, Lookup]] = []
    for event in events:
        data = event.data if isinstance(event.data, Mapping) else {}
        depth, within = data.get("depth"), []
        depth = depth if isinstance(depth, int) else 0
        if not 0 <= depth <= _DEEPEST:
            raise DamagedStore(f"An operator within {depth} others is on the tape: none can be.")
        while running and running[-1][0] > depth:
            within.append(running.pop()[1])
        lookup = Lookup(event.name, str(data.get("outcome")), tuple(within[::-1]))
        if depth:
            running.append((depth, lookup))
        else:
            found.setdefault(event.stage or "", []).append(lookup)
    return found


@dataclass
class _Place:
    """The position among the recorded operators of a stage, or within one of them."""

    expected: Sequence[Lookup]
    at: int = 0

    def next(self, name: str) -> Lookup | None:
        """The operator that is recorded here; None from the first one on that is another."""
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
        """An operator begins."""
        lookup = self._place().next(name)
        self.running.append((lookup, _Place(lookup.within if lookup is not None else ())))

    def _place(self) -> _Place:
        if self.running:
            return self.running[-1][1]
        top = self.recorder.spans.top
        stage = top.stage if top is not None else ""
        return self.stages.setdefault(stage, _Place(()))

    @property
    def outcome(self) -> str:
        """What the cache had for the innermost operator; '' where that is not known."""
        lookup = self.running[-1][0] if self.running else None
        return lookup.outcome if lookup is not None else ""


@contextlib.contextmanager
def imposed(recorder: Recorder, lookups: Lookups) -> Iterator[None]:
    """Have the fake-tensor cache give what it gave when recorded, and no more.

    An operator that was worked out is worked out again.  For one that was found, what the cache
    would have had is worked out first, unseen by the recorder and by the tracer.
    """
    from torchreel.replay.torch_names import around_fake_dispatch

    guide = _Guide(recorder, {stage: _Place(rows) for stage, rows in lookups.items()})
    with around_fake_dispatch(_following(guide), _prepared(guide)):
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


def _prepared(guide: _Guide) -> Callable[[Any, Any, Callable[[], object]], None]:
    def prepare(cache: Any, key: Any, work_out: Callable[[], object]) -> None:
        if guide.is_idle:
            return
        if guide.outcome == MISS:
            cache.pop(key, None)
        elif guide.outcome == HIT and key not in cache:
            with _unrecorded(guide.recorder):
                work_out()

    return prepare


@contextlib.contextmanager
def _unrecorded(recorder: Recorder) -> Iterator[None]:
    here = recorder.spans.here
    here.inside = True
    try:
        yield
    finally:
        here.inside = False
