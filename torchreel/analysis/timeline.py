"""Recordings as a timeline in Chrome's trace format, which ui.perfetto.dev and tracing pages open.

Lives here: which slices and marks a timeline has, and on which row each stands.  Not here: writing
the file (`torchreel.commands.export`).  The form: "Trace Event Format", the JSON object format.

A recording is a process, named by its rank.  A store does not say which thread compiled what: a
compile inside of another stands below it, and one that overlaps another is drawn on a row of its
own, as threads are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchreel.analysis.torch_timers import brief, torch_timers
from torchreel.escaping.characters import visible
from torchreel.escaping.shell import command
from torchreel.events.frames import CacheMiss, GraphBreak, Restart
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Event, Failure, Recording, Stage

_MARKS = (CacheOutcome.kind, GraphBreak.kind, Restart.kind, CacheMiss.kind)
"""Kinds of events that are marks on the timeline."""


@dataclass(frozen=True)
class TimelineSlice:
    """A span of time with a name: a compile, or a stage of it. Times in nanoseconds."""

    name: str
    category: str
    start: int
    end: int
    args: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class TimelineMark:
    """A moment with a name: a failure, a lookup in a cache, a graph break, a restart."""

    name: str
    category: str
    at: int
    args: Mapping[str, Json] = field(default_factory=dict)


@dataclass
class _Row:
    """The slices and marks of one row, and until when it is taken."""

    slices: list[TimelineSlice] = field(default_factory=list)
    marks: list[TimelineMark] = field(default_factory=list)
    open: list[int] = field(default_factory=list)

    def takes(self, start: int, end: int) -> bool:
        """Return True if a span fits, beside or inside of what stands there already."""
        while self.open and self.open[-1] <= start:
            self.open.pop()
        return not self.open or end <= self.open[-1]


@dataclass(frozen=True)
class Timeline:
    """The events of a trace, as Chrome has them, and how many of them are slices."""

    events: tuple[Json, ...]
    slices: int
    store: str
    epoch: int
    """Nanoseconds since 1970 of the beginning, which the trace calls 0."""

    def to_json(self) -> Json:
        """Return it as data: the object format of a trace."""
        about = {"store": self.store, "source": "torchreel", "epoch_ns": str(self.epoch)}
        return {"traceEvents": self.events, "displayTimeUnit": "ms", "otherData": about}


def timeline(store: Store, address: Address) -> Timeline:
    """Return the trace of what an address covers: a store, a recording or a compile.

    Raises UsageError for what the store does not have.
    """
    queries.require(store, address)
    processes = [
        (recording, _rows(store, recording, address))
        for recording in queries.covered(store, address)
    ]
    slices = [found for _, rows in processes for row in rows for found in row.slices]
    epoch = min((found.start for found in slices), default=0)
    events = (
        event
        for recording, rows in processes
        for part in (
            _process(recording, rows, epoch),
            torch_timers(store, recording, _meant(store, recording, address), epoch, len(rows)),
        )
        for event in part
    )
    return Timeline(tuple(events), len(slices), visible(store.target), epoch)


def _meant(store: Store, recording: Recording, address: Address) -> set[int]:
    return {
        row.id for row in queries.compiles(store, recording.id) if queries.is_covered(row, address)
    }


def _process(recording: Recording, rows: Sequence[_Row], epoch: int) -> Iterator[Json]:
    yield from _names(recording, len(rows))
    for number, row in enumerate(rows):
        place: dict[str, Json] = {"pid": recording.id, "tid": number}
        for found in _nested(row.slices):
            yield {**_complete(found, epoch), **place}
        for mark in row.marks:
            yield {**_instant(mark, epoch), **place}


def _rows(store: Store, recording: Recording, address: Address) -> list[_Row]:
    """Distribute the compiles over as few rows as it takes, the long before what is in them."""
    failures: dict[int | None, list[Failure]] = {}
    for failure in queries.failures(store, recording.id):
        failures.setdefault(failure.compile_id, []).append(failure)
    marks: dict[int | None, list[Event]] = {}
    for event in queries.events(store, recording, _MARKS):
        marks.setdefault(event.compile_id, []).append(event)
    rows: list[_Row] = []
    compiles = [
        row for row in queries.compiles(store, recording.id) if queries.is_covered(row, address)
    ]
    spans = {row.id: list(_slices(store, recording, row)) for row in compiles}
    for compile in sorted(compiles, key=lambda row: _order(spans[row.id])):
        slices = spans[compile.id]
        start, end = _extent(slices)
        row = next((each for each in rows if each.takes(start, end)), None)
        if row is None:
            row = _Row()
            rows.append(row)
        row.open.append(end)
        row.slices += slices
        row.marks += [_failed(each) for each in failures.get(compile.id, ())]
        row.marks += [_marked(each) for each in marks.get(compile.id, ())]
    return rows


def _order(slices: Sequence[TimelineSlice]) -> tuple[int, int]:
    start, end = _extent(slices)
    return start, -end


def _extent(slices: Sequence[TimelineSlice]) -> tuple[int, int]:
    return min(each.start for each in slices), max(each.end for each in slices)


def _slices(store: Store, recording: Recording, compile: Compile) -> Iterator[TimelineSlice]:
    """Yield a compile and its stages; one that was never left ends where its recording does."""
    stages = queries.stages(store, compile)
    last = max([compile.started_ns, recording.ended_ns or 0, *(s.ended_ns or 0 for s in stages)])
    end = compile.ended_ns if compile.ended_ns is not None else last
    args: dict[str, Json] = {
        "address": visible(f"{store.target}#{compile.place}"), "status": compile.status,
        "frame": brief(f"{compile.frame_file}:{compile.frame_line}"),
        "backend": brief(compile.backend or ""),
    }  # fmt: skip
    name = f"{compile.compile_id} {compile.frame_name}"
    yield TimelineSlice(brief(name), "compile", compile.started_ns, _after(compile, end), args)
    for stage in stages:
        yield _stage(stage, last)


def _after(row: Compile | Stage, end: int) -> int:
    return max(row.started_ns, end)


def _stage(row: Stage, last: int) -> TimelineSlice:
    end = row.ended_ns if row.ended_ns is not None else last
    name = f"{row.stage} {row.partition}".strip()
    return TimelineSlice(
        brief(name), "stage", row.started_ns, _after(row, end), {"status": row.status}
    )


def _failed(row: Failure) -> TimelineMark:
    args: dict[str, Json] = {"message": brief(row.message), "signature": row.signature_digest[:12]}
    return TimelineMark(
        brief(row.exception_type or row.failure_class), "failure", row.time_ns, args
    )


def _marked(event: Event) -> TimelineMark:
    what, reason = _what_and_why(event)
    name = " ".join(part for part in (event.name, what) if part) or event.kind
    return TimelineMark(
        brief(name), event.kind, event.time_ns, {"reason": brief(reason)} if reason else {}
    )


def _what_and_why(event: Event) -> tuple[str, str]:
    match event.fields:
        case CacheOutcome(outcome=outcome, reason=reason):
            return outcome, reason or ""
        case GraphBreak(type=what, reason=reason) | Restart(type=what, reason=reason):
            return what or "", reason or ""
        case CacheMiss(reason=reason):
            return "", reason
    return "", ""


# -- in Chrome's format ---------------------------------------------------------------------------


def _nested(slices: Iterable[TimelineSlice]) -> Iterator[TimelineSlice]:
    """Yield the slices of a row by their start, each within the slice around it.

    A stage may end after the compile around it. It is cut at the end of that compile, because
    slices of one row may not overlap unless one contains the other.
    """
    around: list[TimelineSlice] = []
    for found in sorted(slices, key=lambda each: (each.start, -each.end)):
        while around and around[-1].end <= found.start:
            around.pop()
        cut = replace(found, end=min(found.end, around[-1].end)) if around else found
        around.append(cut)
        yield cut


def _names(recording: Recording, rows: int) -> Iterator[Json]:
    argv = recording.argv
    program = command(*argv) if isinstance(argv, list) else str(argv)
    rank = "" if recording.rank is None else f"rank {recording.rank}, "
    name = brief(f"{rank}recording {recording.id}: {program}")
    order = recording.id if recording.rank is None else recording.rank
    yield _metadata(recording.id, 0, "process_name", {"name": name})
    yield _metadata(recording.id, 0, "process_sort_index", {"sort_index": order})
    for number in range(rows):
        row = "compiles" if number == 0 else f"compiles beside them ({number})"
        yield _metadata(recording.id, number, "thread_name", {"name": row})


def _metadata(pid: int, tid: int, name: str, args: Mapping[str, Json]) -> Json:
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}


def _complete(found: TimelineSlice, epoch: int) -> dict[str, Json]:
    return {
        "ph": "X", "name": found.name, "cat": found.category, "args": found.args,
        "ts": (found.start - epoch) / 1000, "dur": (found.end - found.start) / 1000,
    }  # fmt: skip


def _instant(mark: TimelineMark, epoch: int) -> dict[str, Json]:
    return {
        "ph": "i", "s": "t", "name": mark.name, "cat": mark.category, "args": mark.args,
        "ts": (mark.at - epoch) / 1000,
    }  # fmt: skip
