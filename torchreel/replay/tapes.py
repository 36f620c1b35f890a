"""The part of a tape that an entry replays, as lanes of lines in canonical form.

Lives here: which events are in scope, what of them is set aside, and that operators within an
operator belong to it.  Not here: the tables (`compared`), the spelling (`normalise`), the
comparison (`events`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torchreel.replay.compared import FROM_CACHE, ONCE, Excuse, Scope, without
from torchreel.replay.dynamo_forms import DynamoForms
from torchreel.replay.normalise import Canonical, Normaliser, torch_file
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.jsontypes import Json, canonical_json
from torchreel.store.records import Compile, Event
from torchreel.store.torch_trace import STRING

MARK = "shape_env.checkpoint"
DISPATCH = "fake_tensors.dispatch"
_CACHES = "nondeterminism.cache"
_WHOLE = "AOTAutogradCache"
"""It gives the forward and the backward."""
_CACHE = frozenset({"hit", "miss"})


@dataclass(frozen=True)
class Point:
    """A checkpoint: which, of those of its entry."""

    entry: str
    partition: str = ""
    ordinal: int = 0


@dataclass(frozen=True)
class Operator:
    """An operator that ran under a fake mode, and those that ran within it."""

    name: str
    outcome: str
    result: Json
    within: tuple[Operator, ...]

    def history(self, other: Operator) -> int | None:
        """How often one has cached what the other worked out; None where they differ otherwise."""
        if self.name != other.name or self.result != other.result:
            return None
        if self.outcome != other.outcome:
            return 1 if {self.outcome, other.outcome} <= _CACHE else None
        if len(self.within) != len(other.within):
            return None
        counts = [a.history(b) for a, b in zip(self.within, other.within, strict=True)]
        return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(frozen=True)
class Line:
    """An event that is compared."""

    event: Event
    form: Canonical
    operator: Operator | None = None
    aside: tuple[tuple[str, Json], ...] = ()
    """What of its data is set aside, by class."""
    read: Callable[[str], str] = str
    """Gives a payload by its digest: most are the same blob on both tapes, and not read at all."""

    @cached_property
    def text(self) -> bytes:
        """The bytes that have to be equal, but for the payload."""
        return self.form.text

    @cached_property
    def payload(self) -> str | None:
        """The text that comes with it, in canonical form."""
        if self.event.payload is None:
            return None
        return self.read(self.event.payload)

    def equals(self, other: Line) -> bool:
        """Whether both say the same, operators within operators apart."""
        if self.text != other.text:
            return False
        return self.event.payload == other.event.payload or self.payload == other.payload


Fact = tuple[str, str, bytes]
"""Kind, name and data of an event that is noted once in a compile."""


@dataclass
class Lane:
    """A sequence of events whose order is fixed, and how many were set aside, by class."""

    lines: list[Line] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)
    cached: str = ""
    """The cache that gave the rest, which is not to be compared: the lane ends early."""


def lanes(
    store: Store,
    compile: Compile,
    scope: Scope,
    point: Point | None,
    excuses: Sequence[Excuse],
    *,
    replay: bool = False,
    known: frozenset[Fact] = frozenset(),
) -> dict[str, Lane] | None:
    """The lanes of a compile, by name; None when its tape does not say where the checkpoint is.

    A `replay` begins at its checkpoint, so that everything in it is in scope, but for what was
    `known` there (`facts_before`).
    """
    everything = queries.events(store, compile)
    files, callers = _files(store, compile), _callers(store, compile)
    readers: dict[str, _Reader] = {}
    events = _in_scope(everything, scope, point, replay=replay)
    if events is None:
        return None
    found: dict[str, Lane] = {}
    first = _converting(events, scope)
    for place, (name, event) in enumerate(_in_lanes(events, scope)):
        lane = found.setdefault(name, Lane())
        if place < first:
            lane.aside["fake inputs"] += 1
        elif _fact(event) in known:
            lane.aside["seen before"] += 1
        else:
            if name not in readers:  # each lane numbers what it meets
                forms = DynamoForms((compile.frame_file, compile.frame_name), callers)
                readers[name] = _Reader(store, excuses, Normaliser(files, dynamo=forms))
            readers[name].add(lane, event)
    if any(lane.cached == _WHOLE for lane in found.values()):
        for name in {*(scope.lanes or {}).values()}:
            found.setdefault(name, Lane()).cached = _WHOLE
    return found


def holes(store: Store, compile: Compile, after: int, until: int) -> list[int]:
    """The positions between two events of a compile at which the tape of its recording has none."""
    recording = queries.recording(store, compile.recording_id)
    there = {event.seq for event in queries.events(store, recording)}
    return [seq for seq in range(after + 1, until) if seq not in there]


def facts_before(store: Store, compile: Compile, point: Point) -> frozenset[Fact]:
    """What was noted before a checkpoint and is noted once only."""
    mark = mark_of(queries.events(store, compile, MARK), point)
    before = mark.seq if mark is not None else 0
    events = itertools.chain.from_iterable(queries.events(store, compile, kind) for kind in ONCE)
    return frozenset(_fact(event) for event in events if event.seq < before)


def _fact(event: Event) -> Fact:
    return event.kind, event.name, canonical_json(event.data) if event.kind in ONCE else b""


def _files(store: Store, compile: Compile) -> dict[int, str]:
    normaliser = Normaliser()
    recording = queries.recording(store, compile.recording_id)
    for kind in ("trace.strings", STRING):
        for event in queries.events(store, recording, kind):
            normaliser.learn(event)
    return normaliser.files


def _callers(store: Store, compile: Compile) -> frozenset[tuple[str, int, str]]:
    """Who called the frame of a compile: the program, or the replay."""
    starts = queries.events(store, compile, "frame.start")
    stack = queries.stack(store, starts[0]) if starts else []
    return frozenset((frame.file, frame.line, frame.name) for frame in stack)


# -- what is in scope -----------------------------------------------------------------------------


def _in_scope(
    events: Sequence[Event], scope: Scope, point: Point | None, *, replay: bool
) -> list[Event] | None:
    kept = [event for event in events if event.stage not in scope.without]
    if not scope.checkpoint or point is None:
        return kept
    mark = mark_of(events, point)
    if mark is None:
        return kept if replay else None
    if point.entry == "aot":
        # The mark itself is in both.
        return list(_until_the_end(events, mark, scope))
    return [event for event in kept if event.seq > mark.seq]


def mark_of(events: Sequence[Event], point: Point) -> Event | None:
    """Where the tape says that a checkpoint was taken; None when it does not."""
    wanted = {"partition": point.partition, "ordinal": point.ordinal}
    for event in events:
        marks = event.kind == MARK and event.name == point.entry
        if marks and isinstance(event.data, Mapping) and wanted.items() <= event.data.items():
            return event
    return None


def _until_the_end(events: Sequence[Event], mark: Event, scope: Scope) -> Iterator[Event]:
    """From a mark on, as long as nothing begins that is of another graph."""
    starts = {stage for stage in scope.lanes or {} if stage != mark.stage} | scope.without
    for event in events:
        if event.seq <= mark.seq:
            continue
        if event.stage in starts or _is_of_aot(event):
            return
        yield event


def _is_of_aot(event: Event) -> bool:
    """Whether AOTAutograd says this, which wraps up what Inductor has made."""
    data = event.data if isinstance(event.data, Mapping) else {}
    return torch_file(data.get("pathname", "")).startswith("torch/_functorch/")


def _converting(events: Sequence[Event], scope: Scope) -> int:
    """How many events the conversion of the inputs takes, at the beginning."""
    for place, event in enumerate(events):
        if not event.kind.startswith(scope.inputs or ("-",)):
            return place
    return 0


def _in_lanes(events: Sequence[Event], scope: Scope) -> Iterator[tuple[str, Event]]:
    lane = ""
    for event in events:
        lane = (scope.lanes or {}).get(event.stage or "", lane)
        yield lane, event


# -- lines ----------------------------------------------------------------------------------------


class _Reader:
    """Turns events into lines, in their order."""

    def __init__(self, store: Store, excuses: Sequence[Excuse], normaliser: Normaliser) -> None:
        self._store, self._normaliser = store, normaliser
        self._excuses: dict[str, list[Excuse]] = {}
        for excuse in excuses:
            self._excuses.setdefault(excuse.kind, []).append(excuse)
        self._running: list[tuple[int, Operator]] = []

    def add(self, lane: Lane, event: Event) -> None:
        """Take in the next event; a lane whose code came from a cache has no more to compare."""
        data = event.data if isinstance(event.data, Mapping) else {}
        if event.kind == _CACHES and data.get("outcome") == "hit":
            lane.cached = event.name if event.name == _WHOLE else lane.cached or event.name
            lane.lines = list(itertools.takewhile(_is_compiled, lane.lines))
        if not lane.cached:
            self._add(lane, event)

    def _add(self, lane: Lane, event: Event) -> None:
        applying = [e for e in self._excuses.get(event.kind, ()) if e.covers(event)]
        whole = next((excuse for excuse in applying if not excuse.fields), None)
        if whole is not None:
            lane.aside[whole.why] += 1
            return
        operator = None
        if event.kind == DISPATCH:
            depth, operator = self._operator(event)
            if depth:
                self._running.append((depth, operator))
                return
        lane.lines.append(self._line(event, operator, applying))

    def _operator(self, event: Event) -> tuple[int, Operator]:
        """An operator is noted when it ends, after those within it."""
        data = event.data if isinstance(event.data, Mapping) else {}
        depth = data.get("depth")
        depth = depth if isinstance(depth, int) else 0
        within: list[Operator] = []
        while self._running and self._running[-1][0] > depth:
            within.append(self._running.pop()[1])
        outcome = str(data.get("outcome"))
        result: Json = [data.get("reason"), data.get("result")]
        return depth, Operator(event.name, outcome, result, tuple(within[::-1]))

    def _line(self, event: Event, operator: Operator | None, applying: Sequence[Excuse]) -> Line:
        aside = tuple((e.why, _picked(event.data, e.fields)) for e in applying)
        shown = event
        for excuse in applying:
            shown = replace(shown, data=without(shown.data, excuse.fields))
        if operator is not None and operator.outcome in _CACHE:
            shown = replace(shown, data={**shown.data, "outcome": "cached"})  # type: ignore[dict-item]
        form = self._normaliser.canonical(shown)
        return Line(event, form, operator, aside, self._payload)

    def _payload(self, digest: str) -> str:
        text = self._store.read_blob(digest).decode("utf-8", "surrogatepass")
        return self._normaliser.payload(text)


def _is_compiled(line: Line) -> bool:
    """Whether an event came about by compiling, rather than out of a cache."""
    data = line.event.data
    return not (isinstance(data, Mapping) and torch_file(data.get("pathname")) in FROM_CACHE)


def _picked(data: Json, fields: Sequence[str]) -> Json:
    found: list[Json] = []
    for path in fields:
        value: Json = data
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        found.append(value)
    return found
