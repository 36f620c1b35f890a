"""The part of an event log that an entry replays, as lanes of lines in canonical form.

Lives here: lines, what of their data is set aside, that operators within an operator belong to it,
and that code from a cache ends a lane.  Not here: which events are in scope (`selection`), the
tables (`rules`), the spelling (`normalise`), the comparison (`events`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from torchreel.events.custom import CustomOperator
from torchreel.events.frames import FrameStart
from torchreel.events.guards import AmbientState, Guard
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.events.shape_env import RangeUpdate, Replacement, ShapeEnvCreate
from torchreel.events.trace import TraceStrings
from torchreel.replay.compare.normalise import (
    Canonical,
    Normaliser,
    equal_symbols,
    torch_file,
)
from torchreel.replay.compare.normalise_dynamo import Caller, DynamoNormaliser
from torchreel.replay.compare.rules import (
    FAKE_INPUTS,
    FLIGHT,
    FROM_CACHE,
    ONCE,
    SCOPES,
    TAKEN_AGAIN,
    Excuse,
    Scope,
    without,
)
from torchreel.replay.compare.selection import (
    DISPATCH,
    GUARD_RECORD,
    MARK,
    EventSelection,
    Fact,
    Point,
    Sifted,
    fact_of,
    is_of_conversion,
    is_of_lookup,
)
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.records import Compile, Event
from torchreel.store.trace.metadata import STRING

_CACHES = CacheOutcome.kind
WHOLE = "AOTAutogradCache"
"""It gives the forward and the backward."""
_CACHE = frozenset({"hit", "miss"})
_NOT_OF_THE_REPLAY = frozenset({FAKE_INPUTS, "seen before"})
"""Set aside before anybody looks where the code came from."""


@dataclass(frozen=True)
class Operator:
    """An operator that ran under a fake mode, and those that ran within it."""

    name: str
    outcome: str
    result: Json
    within: tuple[Operator, ...]

    def cached_differences(self, other: Operator) -> int | None:
        """Return the number of differences that the cache explains; None if there are others.

        Operators within the operator are counted too.
        """
        if self.name != other.name:
            return None
        is_untold = self.result != other.result
        if is_untold and not self.is_cached_as(other):
            return None
        if self.outcome != other.outcome:
            return 1 if {self.outcome, other.outcome} <= _CACHE else None
        if len(self.within) != len(other.within):
            return None
        counts = [a.cached_differences(b) for a, b in zip(self.within, other.within, strict=True)]
        if None in counts:
            return None
        return int(is_untold) + sum(count for count in counts if count is not None)

    def is_cached_as(self, other: Operator) -> bool:
        """Return True if both were looked up in the cache, and at most their strides differ.

        A symbol that became a number is a number in the cache. The strides of a result are numbers,
        or products of symbols that the event log leaves out, depending on which result was computed
        first.
        """
        cached = {self.outcome, other.outcome} <= _CACHE
        return cached and _is_same_result(self.result, other.result)


def _is_same_result(one: Json, other: Json) -> bool:
    """Return True if results are the same, except for strides that one of them leaves out."""
    if one == other:
        return True
    if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
        return False
    if _is_tensor(one) and _is_tensor(other) and None in (one[2], other[2]):
        numbers = all(isinstance(size, int) for size in one[1])
        return numbers and [*one[:2], one[3]] == [*other[:2], other[3]]
    return all(map(_is_same_result, one, other))


def _is_tensor(result: Sequence[Json]) -> bool:
    """Return True if an outline is that of a tensor: dtype, sizes, strides (or None) and device."""
    strides = result[2] if len(result) == 4 else ""
    dtype, sizes = result[:2] if len(result) == 4 else (None, None)
    has_strides = strides is None or isinstance(strides, list)
    return has_strides and isinstance(dtype, str) and isinstance(sizes, list)


@dataclass(frozen=True)
class LogLine:
    """An event that is compared."""

    event: Event
    form: Canonical
    operator: Operator | None = None
    aside: tuple[tuple[str, Json], ...] = ()
    """The parts of its data that are set aside, by class."""
    read: Callable[[str], str] = str
    """Reads payloads by digest; most are the same blob in both event logs and are never read."""

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

    def equals(self, other: LogLine) -> bool:
        """Return True if both say the same, operators within operators apart."""
        if self.text != other.text and not self._is_cached_as(other):
            return False
        return self.event.payload == other.event.payload or self.payload == other.payload

    def _is_cached_as(self, other: LogLine) -> bool:
        """Return True if both say the same, apart from results that the cache respelled."""
        if self.operator is None or other.operator is None:
            return False
        same = self._without_result().text == other._without_result().text
        return same and self.operator.is_cached_as(other.operator)

    def _without_result(self) -> Canonical:
        data = self.form.data
        return (
            replace(self.form, data={**data, "result": None})
            if isinstance(data, Mapping)
            else self.form
        )


_GUARDS = "guards"


def _is_of_dynamo(line: LogLine) -> bool:
    """Return True for an event that Dynamo makes after the backend, whether or not a cache was hit.

    Guards of the ShapeEnv are not among them. They name the line that first needed them, which is
    another line after a hit.
    """
    kind = line.event.kind
    own = kind == AmbientState.kind or kind.startswith(_OUTPUT)
    return own or (kind == Guard.kind and line.event.name != "SHAPE_ENV")


_OUTPUT = "output_graph."
"""Begins the kinds of bytecode, and of the globals that it needs."""


@dataclass
class Lane:
    """A sequence of events whose order is fixed, and the number that were set aside, by class."""

    lines: list[LogLine] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)
    cached: str = ""
    """The cache that gave the code; events after the hit are compared only if Dynamo makes them."""
    hit: int = 0
    """The number of lines before the cache hit."""
    begins: dict[str, int] = field(default_factory=dict)
    """The first event of each stage, compared or not."""

    def beside(self, replayed: Lane) -> tuple[list[LogLine], list[LogLine]]:
        """Return the lines of this lane and of a replay's that can be compared after a cache hit.

        These are the lines before the hit, and later ones that Dynamo makes itself: bytecode and
        guards.
        """
        here = self.hit
        left, right = (
            [*lane.lines[:here], *filter(_is_of_dynamo, lane.lines[here:])]
            for lane in (self, replayed)
        )
        return left, right if here < len(self.lines) else replayed.lines[:here]


def lanes(
    store: Store,
    compile: Compile,
    scope: Scope,
    point: Point | None,
    excuses: Sequence[Excuse],
    *,
    replay: bool = False,
    known: frozenset[Fact] = frozenset(),
    stand_ins: frozenset[str] = frozenset(),
    equal: Mapping[str, str] = MappingProxyType({}),
    called_by: frozenset[Caller] = frozenset(),
) -> dict[str, Lane] | None:
    """Return the lanes of a compile, by name; None if its event log lacks the checkpoint.

    A `replay` begins at its checkpoint, so every event in it is in scope, except for facts that
    were `known` there (`facts_at_start`).  `stand_ins` are operators whose fake kernels are not the
    recorded ones: their results are compared, not the operators within them.  `equal` are the
    symbols that the recorded compile found to be equal; `called_by` are the frames that called the
    recorded one.
    """
    found: dict[str, Lane] = {}
    selected = EventSelection(scope, point, excuses, began=began(point, replay=replay), known=known)
    files, lines, callers = _files(store, compile), *lines_and_callers(store, compile)
    readers: dict[str, _Reader] = {}
    for event in queries.events(store, compile):
        sifted = selected.sift(event)
        if sifted is None:
            continue
        name = sifted.lane
        lane = found.setdefault(name, Lane())
        lane.begins.setdefault(event.stage or "", event.seq)
        if name not in readers:  # each lane numbers what it meets
            frame = (compile.frame_file, compile.frame_name)
            forms = DynamoNormaliser(frame, lines, callers | called_by)
            readers[name] = _Reader(store, Normaliser(files, forms, equal), stand_ins)
        readers[name].add(lane, event, sifted)
    if scope.checkpoint and point is not None and selected.mark is None and not replay:
        return None
    if any(lane.cached == WHOLE for lane in found.values()):
        for name in {*(scope.lanes or {}).values()}:
            found.setdefault(name, Lane()).cached = WHOLE
    for lane in found.values():
        lane.lines = _without_order_of_sets(lane.lines)
    return found


def allowed_of(
    store: Store, compile: Compile, allow: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the classes of difference that are allowed: those asked for, and of the recording."""
    mode = queries.environment(store, compile.recording_id).get("mode")
    return allow | {FLIGHT} if mode == "flight" else allow


def began(point: Point | None, *, replay: bool) -> bool:
    """Return True if an event log begins at the checkpoint; only the log of a replay can."""
    return replay and point is not None and point.entry not in TAKEN_AGAIN


def cache_hits(store: Store, compile: Compile) -> frozenset[str]:
    """Return the caches that gave a compile some of its code."""
    return frozenset(
        event.name
        for event in queries.events(store, compile, _CACHES)
        if isinstance(event.fields, CacheOutcome) and event.fields.outcome == "hit"
    )


def holes(store: Store, compile: Compile, after: int, until: int) -> list[int]:
    """Return the positions between two events of a compile that its recording has no event for."""
    recording = queries.recording(store, compile.recording_id)
    there = {event.seq for event in queries.events(store, recording, between=(after, until))}
    return [seq for seq in range(after + 1, until) if seq not in there]


def facts_at_start(store: Store, compile: Compile, point: Point) -> frozenset[Fact]:
    """Return the facts known when a replay begins: earlier ones, and guards of input conversion.

    One that begins with the frame knows none, and has real inputs to convert.
    """
    if not SCOPES[point.entry].checkpoint:
        return frozenset()
    mark = mark_of(queries.events(store, compile, MARK), point)
    before = mark.seq if mark is not None else 0
    events = itertools.chain.from_iterable(queries.events(store, compile, kind) for kind in ONCE)
    converted = filter(is_of_conversion, queries.events(store, compile, GUARD_RECORD))
    known = itertools.chain((event for event in events if event.seq < before), converted)
    return frozenset(map(fact_of, known))


def symbols_found_equal(store: Store, compile: Compile) -> dict[str, str]:
    """Return the symbols that the ShapeEnv of a compile replaced by others, by symbol."""
    kinds = (ShapeEnvCreate.kind, Replacement.kind)
    return equal_symbols(queries.events(store, compile, kinds))


def mark_of(events: Sequence[Event], point: Point) -> Event | None:
    """Return the event that marks a checkpoint; None if there is none."""
    return next((event for event in events if point.is_marked_by(event)), None)


def named(event: Event) -> str:
    """Return an event in a word or two."""
    return f"{event.kind} {event.name}".rstrip()


def _files(store: Store, compile: Compile) -> dict[int, str]:
    normaliser = Normaliser()
    recording = queries.recording(store, compile.recording_id)
    for kind in (TraceStrings.kind, STRING):
        for event in queries.events(store, recording, kind):
            normaliser.learn(event)
    return normaliser.files


def lines_and_callers(store: Store, compile: Compile) -> tuple[tuple[int, int], frozenset[Caller]]:
    """Return the first and last line of the frame of a compile, and the frames that called it."""
    start = next(iter(queries.events(store, compile, FrameStart.kind)), None)
    if start is None or not isinstance(start.fields, FrameStart):
        return DynamoNormaliser.lines, frozenset()
    callers = ((frame.file, frame.line, frame.name) for frame in queries.stack(store, start))
    return (start.fields.line, start.fields.lines), frozenset(callers)


_PLACES = ("defined_in", "fake")
"""Fields of an operator's event that say where its code is: a stand-in's is elsewhere."""


# -- lines ----------------------------------------------------------------------------------------


class _Reader:
    """Turns events into lines, in their order."""

    def __init__(self, store: Store, normaliser: Normaliser, stand_ins: frozenset[str]) -> None:
        self._store, self._normaliser, self._stand_ins = store, normaliser, stand_ins
        self._running: list[tuple[int, Operator]] = []

    def add(self, lane: Lane, event: Event, sifted: Sifted) -> None:
        """Take in the next event; where a cache gave the code, bytecode and guards alone follow."""
        if event.kind == _CACHES and isinstance(event.data, Mapping):
            self._look_for_hit(lane, event, event.data)
        follows = event.stage == _GUARDS or event.kind.startswith(_OUTPUT)
        if sifted.aside in _NOT_OF_THE_REPLAY or not lane.cached or follows:
            self._add(lane, event, sifted)

    def _look_for_hit(self, lane: Lane, event: Event, data: Mapping[str, Json]) -> None:
        if data.get("outcome") == "hit":
            lane.cached = event.name if event.name == WHOLE else lane.cached or event.name
            lane.lines = list(itertools.takewhile(_is_compiled, lane.lines))
            # The key of a cache names the vector instructions: to look there was to ask for them.
            while lane.lines and lane.lines[-1].event.kind in ONCE:
                lane.lines.pop()
            lane.hit = len(lane.lines)

    def _add(self, lane: Lane, event: Event, sifted: Sifted) -> None:
        if sifted.aside:
            lane.aside[sifted.aside] += 1
            return
        operator = None
        if event.kind == DISPATCH:
            operator = self._operator(event, sifted.depth)
            if sifted.depth:
                self._running.append((sifted.depth, operator))
                return
        lane.lines.append(self._line(event, operator, sifted.excuses))

    def _operator(self, event: Event, depth: int) -> Operator:
        """Return an operator with those that ran within it, which are noted before it."""
        data = as_object(event.data)
        within: list[Operator] = []
        while self._running and self._running[-1][0] > depth:
            within.append(self._running.pop()[1])
        outcome = str(data.get("outcome"))
        result: Json = [data.get("reason"), data.get("result")]
        if event.name in self._stand_ins:
            within = []
        return Operator(event.name, outcome, result, tuple(within[::-1]))

    def _line(self, event: Event, operator: Operator | None, applying: Sequence[Excuse]) -> LogLine:
        aside = tuple((e.why, _picked(event.data, e.fields)) for e in applying)
        shown = event
        for excuse in applying:
            shown = replace(shown, data=without(shown.data, excuse.fields))
        if operator is not None and operator.outcome in _CACHE:
            shown = replace(shown, data={**shown.data, "outcome": "cached"})  # type: ignore[dict-item]
        if event.kind == CustomOperator.kind and event.name in self._stand_ins:
            shown = replace(shown, data=without(shown.data, _PLACES))
        form = self._normaliser.canonical(shown)
        return LogLine(event, form, operator, aside, self._payload)

    def _payload(self, digest: str) -> str:
        text = self._store.read_blob(digest).decode("utf-8", "surrogatepass")
        return self._normaliser.payload(text)


def _without_order_of_sets(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return lines in which the ranges that follow from one guard are sorted by their symbols.

    Torch refines them in the order of a set of symbols, which follows from the random seed of
    Python's hashes (ShapeEnv._refine_ranges).
    """
    found: list[LogLine] = []
    for kind, group in itertools.groupby(lines, lambda line: line.event.kind):
        together = list(group)
        names = {line.event.name for line in together}
        if kind == RangeUpdate.kind and len(names) == len(together):
            together = _at_their_places(
                sorted(together, key=lambda line: line.event.name), together
            )
        found += together
    return found


def _at_their_places(lines: Sequence[LogLine], before: Sequence[LogLine]) -> list[LogLine]:
    """Return lines with the distances to their cause that lines had at these places before."""
    return [
        replace(line, form=replace(line.form, cause=old.form.cause))
        for line, old in zip(lines, before, strict=True)
    ]


def _is_compiled(line: LogLine) -> bool:
    """Return True if an event came about by compiling, and not out of a cache."""
    data = line.event.data
    return not is_of_lookup(line.event) and not (
        isinstance(data, Mapping) and torch_file(data.get("pathname")) in FROM_CACHE
    )


def _picked(data: Json, fields: Sequence[str]) -> Json:
    found: list[Json] = []
    for path in fields:
        value: Json = data
        for key in path.split("."):
            value = as_object(value).get(key)
        found.append(value)
    return found
