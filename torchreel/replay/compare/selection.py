"""Selects the events that an entry replays, one by one: also of an event log that still grows.

Lives here: the scope of an entry, its lanes, and what is set aside as a whole.  Not here: the
tables (`rules`), lines in canonical form (`lanes`).  Called for a recorded event log as a whole,
and in the child of a replay for each event as it happens: so both count the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.events.fake_tensors import FakeDispatch
from torchreel.events.inductor import CppCompile
from torchreel.events.shape_env import ShapeEnvCheckpoint
from torchreel.replay.compare.normalise import torch_file
from torchreel.replay.compare.rules import (
    FAKE_INPUTS,
    ONCE,
    TRACE,
    EventLike,
    Excuse,
    Scope,
    is_of_trace,
)
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import as_object, list_only

MARK = ShapeEnvCheckpoint.kind
DISPATCH = FakeDispatch.kind

Fact = tuple[str, str, bytes]
"""Kind, name and data of an event that is noted once in a compile."""


READ = ONCE | {MARK, DISPATCH}
"""The kinds whose data say what becomes of an event; besides, those of torch's own trace."""


@dataclass(frozen=True)
class Point:
    """A checkpoint: which, of those of its entry."""

    entry: str
    partition: str = ""
    ordinal: int = 0

    def is_marked_by(self, event: EventLike) -> bool:
        """Return True if an event says that this checkpoint was taken there."""
        if event.kind != MARK or event.name != self.entry or not isinstance(event.data, Mapping):
            return False
        wanted = {"partition": self.partition, "ordinal": self.ordinal}
        return wanted.items() <= event.data.items()


@dataclass(frozen=True)
class Sifted:
    """The classification of an event that is in scope."""

    lane: str
    aside: str = ""
    """The class in which it is set aside as a whole; '' when it is compared."""
    depth: int = 0
    """Of an operator under a fake mode: how many it runs within; compared as part of these."""
    excuses: tuple[Excuse, ...] = ()
    """Those that set aside something of its data."""

    @property
    def is_line(self) -> bool:
        """Return True if the event is compared by itself."""
        return not self.aside and not self.depth


class EventSelection:
    """Takes the events of a compile in their order.

    `began` says that the event log begins at the checkpoint, so that everything is in scope: a
    replay from a Dynamo graph.  What is in `known` was noted before the checkpoint.
    """

    def __init__(
        self,
        scope: Scope,
        point: Point | None,
        excuses: Sequence[Excuse],
        *,
        began: bool = False,
        known: frozenset[Fact] = frozenset(),
    ) -> None:
        self.mark: int | None = None
        """The position of the checkpoint's mark, once it was met."""
        self._scope, self._point, self._known = scope, point, set(known)
        self._open = began or not scope.checkpoint or point is None
        self._alone = point is not None and scope.checkpoint and point.entry == "aot"
        self._ended = False
        self._converting = bool(scope.inputs)
        self.lane = ""
        """That of the last event in scope."""
        self._lanes = scope.lanes or {}
        self._others: frozenset[str | None] = scope.without
        self._excuses: dict[str, list[Excuse]] = {}
        for excuse in excuses:
            self._excuses.setdefault(excuse.kind, []).append(excuse)

    def sift(self, event: EventLike) -> Sifted | None:
        """Classify the next event; None for one that is out of scope."""
        if not self._open or self._ended:
            self._look_for_mark(event)
            return None
        stage = event.stage
        if stage is None and event.kind == CppCompile.kind:
            return None  # of a thread that compiles code, while its graph goes on
        if self._alone and (stage in self._others or _is_of_aot(event)):
            self._ended = True
            return None
        if stage in self._scope.without or (event.kind, event.name) in self._scope.others:
            return None
        self.lane = self._lanes.get(stage or "", self.lane)
        return self._judge(event)

    def _look_for_mark(self, event: EventLike) -> None:
        if self._point is None or self._open or not self._point.is_marked_by(event):
            return
        self._open, self.mark = True, event.seq
        self.lane = self._lanes.get(event.stage or "", self.lane)
        # One ATen graph: it ends where anything begins that is of another.
        starts = frozenset(stage for stage in self._lanes if stage != event.stage)
        self._others = self._scope.without | starts

    def _judge(self, event: EventLike) -> Sifted:
        excuses = self._excuses.get(event.kind, [])
        if is_of_trace(event.kind):
            excuses = [*excuses, *self._excuses.get(TRACE, ())]
        applying = [excuse for excuse in excuses if excuse.covers(event)]
        aside = next((excuse.why for excuse in applying if not excuse.fields), "")
        if self._converting and (not aside or event.kind.startswith(self._scope.inputs)):
            # What is set aside anyway (times, file numbers) comes in between.
            converts = event.kind.startswith(self._scope.inputs)
            self._converting = converts or is_of_conversion(event)
            if self._converting:
                return Sifted(self.lane, FAKE_INPUTS)
        if event.kind in _FACTS and fact_of(event) in self._known:
            return Sifted(self.lane, "seen before")
        if event.kind in ONCE:
            # Another compile may have been between forward and backward: then it is noted again.
            self._known.add(fact_of(event))
        if aside:
            return Sifted(self.lane, aside)
        if self._alone and _is_of_cached_result(event):
            return Sifted(self.lane, "fake-tensor cache")
        depth = _depth(event) if event.kind == DISPATCH else 0
        return Sifted(self.lane, "", depth, tuple(applying))


def fact_of(event: EventLike) -> Fact:
    """Return kind, name and data of the fact that an event notes.

    The data is b"" for kinds that may repeat.
    """
    data = event.data if event.kind in ONCE else _expression(event)
    return event.kind, event.name, canonical_json(data) if event.kind in _FACTS else b""


def _expression(event: EventLike) -> Json:
    """Return the expression of torch's record of a guard."""
    return as_object(as_object(event.data).get(GUARD_RECORD)).get("expr")


GUARD_RECORD = "guard_added_fast"
"""torch's record of a guard, also of one that it suppresses. A ShapeEnv evaluates each once."""
_FACTS = ONCE | {GUARD_RECORD}
_CONVERSION = "process_inputs"
"""In AOTAutograd: converts its inputs, some of which are views of bases with symbolic sizes."""


def is_of_conversion(event: EventLike) -> bool:
    """Return True for torch's record of a guard that it suppressed while it converted inputs.

    Where a replay, which has no inputs to convert, comes to that guard, it is evaluated later.
    """
    return _is_guard_within(event, _CONVERSION)


_LOOKUP = "_lookup_graph"
"""In Inductor's cache: takes over the guards of an entry that it found."""


def is_of_lookup(event: EventLike) -> bool:
    """Return True for torch's record of a guard that comes with code out of a cache."""
    return _is_guard_within(event, _LOOKUP)


_RESULT_OF_ENTRY = "_get_output_tensor_from_cache_entry"
"""In torch's FakeTensorMode: makes a result out of an entry of its cache, and suppresses guards."""


def _is_of_cached_result(event: EventLike) -> bool:
    """Return True for torch's record of a suppressed guard, which it evaluates once in a process.

    An ATen graph that is replayed alone has a new ShapeEnv, which asks again.
    """
    return _is_guard_within(event, _RESULT_OF_ENTRY)


def _is_guard_within(event: EventLike, function: str) -> bool:
    if event.kind != GUARD_RECORD or not isinstance(event.data, Mapping):
        return False
    frames = list_only(as_object(event.data.get(event.kind)).get("stack"))
    return any(isinstance(f, Mapping) and f.get("name") == function for f in frames)


def _depth(event: EventLike) -> int:
    depth = event.data.get("depth") if isinstance(event.data, Mapping) else 0
    return depth if isinstance(depth, int) else 0


def _is_of_aot(event: EventLike) -> bool:
    """Return True for a trace record of AOTAutograd, which wraps the code that Inductor made."""
    data = as_object(event.data)
    return torch_file(data.get("pathname", "")).startswith("torch/_functorch/")
