"""Stops a running replay: at a stage, at an event, or wherever a prompt asks for.

Lives here: the recorder's watcher in the child, which counts the events that are compared as they
happen.  Not here: which event is meant (`time_travel`), the prompt itself (`prompt`).

A stop is an exception that is no `Exception` (`failures.Stopped`): it passes through the compiler,
and what the compiler notes while it is unwound comes after the last event that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from torchreel.recorder.event_log.failures import Stopped
from torchreel.recorder.event_log.rows import NewEvent, plain
from torchreel.recorder.recorder import Recorder
from torchreel.replay.compare.rules import SCOPES, TAKEN_AGAIN, excuses
from torchreel.replay.compare.selection import READ, EventSelection, Point
from torchreel.replay.compare.time_travel import BEFORE, Sought, Stop, Target
from torchreel.store.documents.jsontypes import Json

MOST_KEPT = 1_000
"""Events that a prompt can look back at."""


@dataclass(frozen=True)
class Happened:
    """A compared event of the replay."""

    seq: int
    lane: str
    number: int
    """Its place in its lane, from 1."""
    kind: str
    name: str
    data: Callable[[], object]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


Ask = Callable[["Stops", str], None]
"""Holds a prompt at a stop, before a stage or after an event ('').  What comes next: `Stops.go`."""


class Stops:
    """Stops a replay: knows the next place to stop at, and the events so far."""

    def __init__(self, sought: Sought, point: Point, ask: Ask | None = None) -> None:
        began = point.entry not in TAKEN_AGAIN
        known = frozenset((kind, name, data.encode()) for kind, name, data in sought.known)
        self._selection = EventSelection(
            SCOPES[point.entry], point, excuses(frozenset(sought.allow)), began=began, known=known
        )
        self._lanes = SCOPES[point.entry].lanes or {}
        self._ask, self._asking = ask, False
        self.sought = sought
        self.happened: list[Happened] = []
        self._numbers: Counter[str] = Counter()
        self._last, self._lane = 0, ""
        self._stage: tuple[str, str] | None = (sought.stage, sought.partition)
        self._at: Target | None = sought.target
        self._steps = 0 if sought.stage or sought.target else 1
        self.moved = False
        self.stopped: Stop | None = None

    # -- what happens -----------------------------------------------------------------------------

    def event(self, event: NewEvent) -> None:
        """Note that an event was written."""
        if self._asking or self.stopped is not None:
            return
        self._last = event.seq
        sifted = self._selection.sift(_Noted(event))
        if sifted is None or not sifted.is_line:
            return
        self._lane = sifted.lane
        self._numbers[sifted.lane] += 1
        number = self._numbers[sifted.lane]
        self.happened.append(
            Happened(event.seq, sifted.lane, number, event.kind, event.name, event.data)
        )
        del self.happened[:-MOST_KEPT]
        at, last = self._at, self._steps == 1
        self._steps = max(0, self._steps - 1)
        if last or (at is not None and (at.lane, at.number) == (sifted.lane, number)):
            self._stop("", "", "")

    def stage(self, stage: str, partition: str) -> None:
        """Note that a stage is about to begin."""
        if self._asking or self.stopped is not None or self._stage is None:
            return
        wanted, part = self._stage
        if wanted not in ("*", stage) or part not in ("", partition):
            return
        self._lane = self._lanes.get(stage, self._selection.lane)
        self._stop(f"stage {stage} {partition}".rstrip(), stage, partition)

    def _stop(self, what: str, stage: str, partition: str) -> None:
        here = Stop(self._last, self._lane, stage, partition, self.moved)
        if self._ask is not None:
            self._stage = self._at = None
            self._steps, self._asking = 0, True
            try:
                self._ask(self, what)
            except Stopped:
                self.stopped = here
                raise
            finally:
                self._asking = False
            return
        self.stopped = here
        raise Stopped

    # -- what comes next --------------------------------------------------------------------------

    def go(
        self, steps: int = 0, stage: tuple[str, str] | None = None, at: Target | None = None
    ) -> None:
        """Go on: for some events, to a stage ('*' for any), to an event, or to the end."""
        self.moved = True
        self._steps, self._stage, self._at = steps, stage, at


class _Noted:
    """An event that was just noted, as the selection of events looks at it."""

    __slots__ = ("_event", "kind", "name", "seq", "stage")

    def __init__(self, event: NewEvent) -> None:
        self._event = event
        self.kind, self.name, self.seq, self.stage = event.kind, event.name, event.seq, event.stage

    @property
    def data(self) -> Json:
        data = self._event.data()
        of_trace = self._event.fields is None and isinstance(data, Mapping)
        return plain(data) if of_trace or self.kind in READ else None


@contextmanager
def watching(recorder: Recorder, stops: Stops | None) -> Iterator[None]:
    """Let `stops` see each event that the recorder notes."""
    recorder.watcher = stops
    try:
        yield
    finally:
        recorder.watcher = None


def parse(data: Mapping[str, Any]) -> Sought:
    """Return the place to stop at, parsed from the data of a request."""
    target = data["target"]
    return Sought(**{**data, "target": None if target is None else Target(**target)})


def stop_report(stops: Stops | None) -> dict[str, Any] | None:
    """Return the stop, for the report."""
    return None if stops is None or stops.stopped is None else asdict(stops.stopped)


def recent(stops: Stops, count: int = BEFORE) -> list[Happened]:
    """Return the last events that are compared."""
    return stops.happened[-count:]
