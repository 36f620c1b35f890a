"""The read side of a store: one function for each question of a command or a replay.

Each takes an open `Store` and returns the dataclasses of `records`. Nothing here writes. Statuses
are those that are true now: a recording whose process is gone has died, whatever the row says.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, Row, Select, Table, func, select

from torchreel.errors import DamagedStore, UsageError
from torchreel.escaping.shell import command
from torchreel.events.frames import FrameSkip, FrameStart
from torchreel.store import schema
from torchreel.store.addressing import UNNAMED, Address
from torchreel.store.blobs.page_reader import Room, kinds_of, read_frames, read_pages
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.processes import marks
from torchreel.store.processes.liveness import PROCESS, is_alive
from torchreel.store.records import (
    ByCatch,
    Checkpoint,
    Compile,
    Event,
    EventPages,
    Failure,
    FrameBundle,
    Graph,
    GraphTarget,
    Lost,
    OutputCode,
    Recording,
    Reduction,
    Replay,
    StackFrame,
    StackPage,
    Stage,
)

_Row = TypeVar("_Row")
_Read = TypeVar("_Read")
_Else = TypeVar("_Else")

FAILING = ("failed", "crashed", "hung")
"""The statuses of a compile that failed ('restarted' is no failure: it was tried again)."""

PIECES = frozenset({"standalone_compile", "compile_fx", "aot_autograd"})
"""Values of `backend` in the row of a compile that is a piece of a graph."""

FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})
"""Signals of compilers and compiled code. SIGKILL or SIGTERM may be anybody's doing."""


def recordings(store: Store) -> list[Recording]:
    """Return every recording, oldest first."""
    rows = _fetch(store, select(schema.recordings).order_by(schema.recordings.c.id), Recording)
    return _as_they_ended(store, rows)


def newest(
    store: Store, limit: int, before: int | None = None, *, replays: bool = False
) -> list[Recording]:
    """Return the newest recordings, oldest first; of those before a number, if one is given.

    Replays are left out unless `replays` is set.
    """
    table = schema.recordings
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.id < before)
    if not replays:
        query = query.where(table.c.kind != "replay")
    return _as_they_ended(store, _fetch(store, query, Recording)[::-1])


class RecordingCounts(NamedTuple):
    """Numbers of recordings: all replays, and those older than some recording."""

    replays: int
    older_replays: int
    older: int
    """Without replays."""


def recording_counts(store: Store, first: int) -> RecordingCounts:
    """Count the replays, and the recordings older than `first`."""
    at = schema.recordings.c
    is_replay, is_older = at.kind == "replay", at.id < first
    each = ([is_replay], [is_replay, is_older], [~is_replay, is_older])
    numbers: list[ColumnElement[Any]] = [func.count().filter(*wanted) for wanted in each]
    query = select(*numbers).select_from(schema.recordings)
    return next(
        (RecordingCounts(*map(int, row)) for row in store.rows(query)), RecordingCounts(0, 0, 0)
    )


def recordings_of(store: Store, recording_ids: Sequence[int]) -> list[Recording]:
    """Return some recordings, oldest first, as `recordings` does."""
    table = schema.recordings
    query = select(table).order_by(table.c.id)
    found = _fetch_many(store, query, Recording, table.c.id, sorted(recording_ids))
    return _as_they_ended(store, list(found))


def recording(store: Store, recording_id: int) -> Recording:
    """Return one recording; UsageError when the store has none of that number."""
    query = select(schema.recordings).where(schema.recordings.c.id == recording_id)
    rows = _fetch(store, query, Recording)
    if not rows:
        raise UsageError(
            f"{store.target} has no recording {recording_id}: list what it has with "
            f"'{command('torchreel', 'ls', store.target)}'."
        )
    return _as_they_ended(store, rows)[0]


def environment(store: Store, recording_id: int) -> dict[str, str]:
    """Return the environment of a recording: machine, versions and variables, by name."""
    table = schema.environment
    query = select(table).where(table.c.recording_id == recording_id)
    return {row.key: row.value for row in sorted(store.rows(query), key=lambda row: row.key)}


def environment_values(store: Store, key: str, recording_ids: Sequence[int]) -> dict[int, str]:
    """Return one value of `environment`, by the number of each recording that has it."""
    table = schema.environment
    query = select(table.c.recording_id, table.c.key, table.c.value).where(table.c.key == key)
    found = in_chunks(store, query, table.c.recording_id, recording_ids)
    return {row.recording_id: row.value for row in found}


def lost(store: Store, recording_id: int) -> list[Lost]:
    """Return the losses of a recording, with their reasons."""
    table = schema.lost
    query = select(table).where(table.c.recording_id == recording_id)
    # Sorted here, as below: a server sorts text by the language that its database was made with.
    return sorted(_fetch(store, query, Lost), key=lambda row: (row.reason, row.place))


def lost_counts(store: Store, recording_ids: Sequence[int]) -> dict[int, int]:
    """Return the number of losses of some recordings, by recording, if any."""
    table = schema.lost
    found: Counter[int] = Counter()
    for row in _fetch_many(store, select(table), Lost, table.c.recording_id, recording_ids):
        found[row.recording_id] += row.count
    return dict(found)


def compiles(store: Store, recording_id: int) -> list[Compile]:
    """Return the compiles of a recording, in the order in which they began."""
    table = schema.compiles
    rows = _fetch(store, _of(table.c.recording_id, recording_id), Compile)
    return _with_true_statuses(store, [recording(store, recording_id)], rows)


def compiles_by_recording(
    store: Store, of: Sequence[Recording], *, failing: bool = False
) -> dict[int, list[Compile]]:
    """Return the compiles of some recordings, by the recording's number; of each, as `compiles`.

    With `failing`, those alone that have a failure, or a status that may mean one.
    """
    table = schema.compiles
    query = select(table).order_by(table.c.id)
    if failing:
        failed = select(schema.failures.c.compile_id)
        is_wanted = table.c.status.in_((*FAILING, "running")) | table.c.id.in_(
            failed.where(schema.failures.c.recording_id == table.c.recording_id)
        )
        query = query.where(is_wanted)
    found: dict[int, list[Compile]] = {row.id: [] for row in of}
    rows = _fetch_many(store, query, Compile, table.c.recording_id, list(found))
    for row in _with_true_statuses(store, of, list(rows)):
        found[row.recording_id].append(row)
    return found


def pieces_of(store: Store, compile: Compile) -> list[Compile]:
    """Return the compiles of parts of a compile's graph, which its backend compiled apart."""
    return [
        row
        for row in compiles(store, compile.recording_id)
        if row.compile_id.rpartition("/")[0] == compile.compile_id
        and (row.attempt, row.generation) == (compile.attempt, compile.generation)
        and row.backend in PIECES
    ]


def compile_by_id(store: Store, row_id: int) -> Compile:
    """Return the compile with that row id, as other rows refer to it."""
    rows = _fetch(store, _of(schema.compiles.c.id, row_id), Compile)
    if not rows:
        raise DamagedStore(f"{store.target} refers to a compile (row {row_id}) that it lacks.")
    return _with_true_statuses(store, [recording(store, rows[0].recording_id)], rows)[0]


def is_cut(store: Store, compile: Compile) -> bool:
    """Return True if the event log of a compile may be cut: its process died during writing."""
    if compile.status in ("crashed", "hung", "unknown"):
        return True
    return compile.ended_ns is None and recording(store, compile.recording_id).status == "died"


def compile_at(store: Store, address: Address) -> Compile:
    """Return the compile that an address means; UsageError when there is none.

    A compile's name without an attempt means its last attempt; an event, the compile it belongs
    to; a recording or nothing, the latest failing compile there, else the latest compile.
    """
    if address.compile is not None:
        found = _named_compile(store, address)
        if address.event is not None:
            event_at(store, address)
        return found
    if address.event is not None:
        event = event_at(store, address)
        if event.compile_id is None:
            raise UsageError(f"{address} belongs to no compile: name the compile instead.")
        return compile_by_id(store, event.compile_id)
    require(store, address)
    latest = latest_failing(store, address.recording) or _latest(store, address.recording)
    if latest is None:
        raise UsageError(f"{address} has no compile in it: nothing was compiled while it recorded.")
    return latest


def require(store: Store, address: Address) -> None:
    """Raise UsageError where an address names a recording, compile or event that is not there.

    For verbs that take all that an address covers: they would find nothing, and call it done.
    """
    if address.compile is not None:
        compile_at(store, address)
    elif address.event is not None:
        event_at(store, address)
    elif address.recording is not None:
        recording(store, address.recording)


def event_at(store: Store, address: Address) -> Event:
    """Return the event that an address with `@` means; UsageError when there is none."""
    table = schema.events
    place = (table.c.recording_id == address.recording, table.c.seq == address.event)
    rows = _fetch(store, select(*_known(table)).where(*place), Event)
    if not rows and address.event is not None:
        pages = schema.event_pages
        here = select(pages).where(pages.c.recording_id == address.recording)
        rows = list(_paged(store, here, None, (address.event, address.event)))
    if not rows:
        raise UsageError(
            f"{address} is not in the event log: list it with 'torchreel show --events'."
        )
    return rows[0]


def without_failure(store: Store, compile: Compile) -> str:
    """Return the sentence for a compile that did not fail; if none did, it says so."""
    if latest_failing(store) is None:
        return f"No compile in {store.target} failed"
    return f"The compile {compile.place} did not fail"


def latest_failing(store: Store, recording_id: int | None = None) -> Compile | None:
    """Return the compile that failed last, in one recording or in all that are no replays."""
    table = schema.compiles
    with_failure = table.c.id.in_(select(schema.failures.c.compile_id))
    may_have_failed = table.c.status.in_((*FAILING, "running")) | with_failure
    for rows in _newest_compiles(store, recording_id, may_have_failed):
        failures = failures_by_compile(store, rows)
        for row in rows:
            if row.status in FAILING or row.id in failures:
                return row
    return None


def stages(store: Store, compile: Compile) -> list[Stage]:
    """Return the stages that a compile entered, in order."""
    return _fetch(store, _of(schema.stages.c.compile_id, compile.id), Stage)


def open_stage(store: Store, compile: Compile) -> Stage | None:
    """Return the innermost stage that a compile has entered and not left."""
    return open_stages(store, [compile]).get(compile.id)


def last_place(store: Store, compile: Compile) -> marks.Place:
    """Return the place where a compile was when its process died.

    Its marks say so as long as they are there. Rows of stages may be some tenths of a second late.
    """
    row = recording(store, compile.recording_id)
    ends = marks.read(store.target, row.pid, row.started_ns)
    place = ends.places.get(compile.started_ns) if ends is not None else None
    if place is not None and place.stage:
        return place
    still = open_stage(store, compile)
    return marks.Place(still.stage, still.partition) if still else marks.Place(_FIRST_STAGE)


_FIRST_STAGE = "dynamo"
"""The stage of a compile that has entered none."""


def open_stages(store: Store, compiles: Sequence[Compile]) -> dict[int, Stage]:
    """Return the innermost stage that each of some compiles has entered and not left, by the
    compile's row id.
    """
    return {
        number: still[-1]
        for number, stages in stages_by_compile(store, compiles).items()
        if (still := [stage for stage in stages if stage.status == "open"])
    }


def stages_by_compile(store: Store, compiles: Sequence[Compile]) -> dict[int, list[Stage]]:
    """Return the stages that some compiles entered, in order, by the compile's row id."""
    table = schema.stages
    query = select(table).order_by(table.c.id)
    found: dict[int, list[Stage]] = {}
    for row in _fetch_many(store, query, Stage, table.c.compile_id, [row.id for row in compiles]):
        found.setdefault(row.compile_id, []).append(row)
    return found


def events(
    store: Store,
    of: Compile | Recording,
    kind: str | Sequence[str] | None = None,
    between: tuple[int, int] | None = None,
) -> list[Event]:
    """Return the events of a recording or of a compile; of one kind, some or all.

    `between` are the first and the last position that count: pages without one are not read.
    """
    kinds = [kind] if isinstance(kind, str) else kind
    in_rows = _part(schema.events, of)
    if kinds is not None:
        in_rows = in_rows.where(schema.events.c.kind.in_(kinds))
    if between is not None:
        in_rows = in_rows.where(schema.events.c.seq.between(*between))
    paged = _paged(store, _part(schema.event_pages, of), kinds, between)
    return sorted([*_fetch(store, in_rows, Event), *paged], key=lambda event: event.seq)


def _paged(
    store: Store,
    query: Select[Any],
    kinds: Sequence[str] | None,
    between: tuple[int, int] | None,
) -> Iterator[Event]:
    """Yield the events in the pages that a query finds, of some kinds, at some positions."""
    if between is not None:
        at = schema.event_pages.c
        query = query.where(at.last_seq >= between[0], at.first_seq <= between[1])
    room = Room(store.target, store.size)
    rows = [
        pages
        for pages in _fetch(store, query, EventPages)
        if kinds is None or any(found and found[0] in kinds for found in kinds_of(pages))
    ]
    for pages, data in zip(rows, store.read_blobs(row.digest for row in rows), strict=True):
        for event in read_pages(pages, room.take(data), kinds):
            if between is None or between[0] <= event.seq <= between[1]:
                yield event


def events_by_compile(
    store: Store, compiles: Sequence[Compile], kinds: Sequence[str]
) -> dict[int, list[Event]]:
    """Return the events of some kinds of some compiles, by the compile's row id.

    As `events` of each, in a fraction of the time where the compiles are many.
    """
    rows, pages = schema.events, schema.event_pages
    in_rows = select(*_known(rows)).where(rows.c.kind.in_(kinds))
    found: dict[int, list[Event]] = {}
    for start in range(0, len(compiles), _CHUNK):
        ids = [row.id for row in compiles[start : start + _CHUNK]]
        events = _fetch(store, in_rows.where(rows.c.compile_id.in_(ids)), Event)
        in_pages = select(pages).where(pages.c.compile_id.in_(ids))
        for event in (*events, *_paged(store, in_pages, kinds, None)):
            if event.compile_id is not None:
                found.setdefault(event.compile_id, []).append(event)
    for events in found.values():
        events.sort(key=lambda event: event.seq)
    return found


def event_counts(store: Store, of: Compile | Recording) -> dict[str, int]:
    """Return the number of events of each kind, without reading the events."""
    rows = schema.events
    query = _part(rows, of, rows.c.kind, func.count()).group_by(rows.c.kind)
    found: Counter[str] = Counter()
    for kind, number in map(tuple, store.rows(query)):
        found[kind] += number
    for pages in _fetch(store, _part(schema.event_pages, of), EventPages):
        for page in readable(store, partial(kinds_of, pages), []):
            if page is not None:
                found[page[0]] += page[1]
    return dict(sorted(found.items()))


def event_counts_by_compile(store: Store, recording_id: int) -> dict[int | None, Counter[str]]:
    """Return the number of events of each kind in each compile of a recording, by row id."""
    rows, pages = schema.events, schema.event_pages
    query = select(rows.c.compile_id, rows.c.kind, func.count())
    query = query.where(rows.c.recording_id == recording_id).group_by(
        rows.c.compile_id, rows.c.kind
    )
    found: dict[int | None, Counter[str]] = {}
    for compile_id, kind, number in map(tuple, store.rows(query)):
        found.setdefault(compile_id, Counter())[kind] += number
    for row in _fetch(store, select(pages).where(pages.c.recording_id == recording_id), EventPages):
        for page in readable(store, partial(kinds_of, row), []):
            if page is not None:
                found.setdefault(row.compile_id, Counter())[page[0]] += page[1]
    return found


def _part(table: Table, of: Compile | Recording, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return the rows of a recording or of a compile."""
    column = table.c.compile_id if isinstance(of, Compile) else table.c.recording_id
    return select(*(columns or _known(table))).where(column == of.id)


def _known(table: Table) -> list[Column[Any]]:
    """Return the columns that the record has: a row's id means nothing to a reader of events."""
    return [c for c in table.c if table is not schema.events or c.name != "id"]


def stack_frames(store: Store, recording_id: int) -> dict[int, StackFrame]:
    """Return every frame that events of a recording were seen from, by id."""
    pages = _fetch(store, _of(schema.stack_pages.c.recording_id, recording_id), StackPage)
    room = Room(store.target, store.size)
    found = (read_frames(page, room.take(store.read_blob(page.digest))) for page in pages)
    return {frame.id: frame for frames in found for frame in frames}


def stack(store: Store, event: Event) -> list[StackFrame]:
    """Return the user's stack at an event, outermost frame first; empty when it has none."""
    return unwound(stack_frames(store, event.recording_id), event)


def unwound(frames: Mapping[int, StackFrame], event: Event) -> list[StackFrame]:
    """Return the user's stack at an event, from the frames of its recording."""
    found: list[StackFrame] = []
    here = event.stack
    while here is not None and here in frames and len(found) < len(frames):
        found.append(frames[here])
        here = frames[here].parent
    return found[::-1]


def graphs(store: Store, compile: Compile) -> list[Graph]:
    """Return the graphs of a compile, in the order in which they were recorded."""
    return _fetch(store, _of(schema.graphs.c.compile_id, compile.id), Graph)


def first_graphs(store: Store, recording_id: int) -> dict[int, Graph]:
    """Return the first graph of each compile of a recording that has any, by the compile's row
    id.
    """
    graphs, compiles = schema.graphs, schema.compiles
    query = select(graphs).join(compiles, graphs.c.compile_id == compiles.c.id)
    query = query.where(compiles.c.recording_id == recording_id).order_by(graphs.c.id.desc())
    return {row.compile_id: row for row in _fetch(store, query, Graph)}


def first_graphs_of(store: Store, compiles: Sequence[Compile]) -> dict[int, Graph]:
    """Return the first graph of each of some compiles that has any, by the compile's row id."""
    table = schema.graphs
    query = select(table).order_by(table.c.id.desc())
    ids = [row.id for row in compiles]
    return {
        row.compile_id: row for row in _fetch_many(store, query, Graph, table.c.compile_id, ids)
    }


def graphs_by_compile(
    store: Store, compiles: Sequence[Compile], stage: str
) -> dict[int, list[Graph]]:
    """Return the graphs of a stage of some compiles, by the compile's row id."""
    table = schema.graphs
    query = select(table).where(table.c.compile_id.in_([row.id for row in compiles]))
    found: dict[int, list[Graph]] = {}
    for row in _fetch(store, query.where(table.c.stage == stage).order_by(table.c.id), Graph):
        found.setdefault(row.compile_id, []).append(row)
    return found


def checkpoints_by_compile(
    store: Store, compiles: Sequence[Compile], entry: str
) -> dict[int, list[Checkpoint]]:
    """Return the checkpoints of an entry of some compiles, by the compile's row id."""
    table = schema.checkpoints
    query = select(table).where(table.c.compile_id.in_([row.id for row in compiles]))
    query = query.where(table.c.entry == entry).order_by(table.c.id)
    found: dict[int, list[Checkpoint]] = {}
    for row in _fetch(store, query, Checkpoint):
        found.setdefault(row.compile_id, []).append(row)
    return found


def graph_targets(store: Store, graph: Graph) -> list[GraphTarget]:
    """Return the call targets of a graph: the outer graph's first, then by name."""
    table = schema.graph_targets
    query = select(table).where(table.c.graph_id == graph.id)
    found = _fetch(store, query, GraphTarget)
    return sorted(found, key=lambda row: (row.depth, row.target))


def is_without_graph(store: Store, compile: Compile) -> bool:
    """Return whether Dynamo looked at a frame, and made no graph of it.

    It left the frame to Python (it could not trace it, or had compiled it too often), or there was
    nothing in it to compile. False where that may as well have been lost, or not been kept.
    """
    return (
        compile.status in ("ok", "skipped")
        and not graphs(store, compile)
        and not {FrameStart.kind, FrameSkip.kind}.isdisjoint(event_counts(store, compile))
        and not lost(store, compile.recording_id)
    )


def checkpoints(store: Store, compile: Compile) -> list[Checkpoint]:
    """Return the checkpoints of a compile: the places where a replay can start."""
    return _fetch(store, _of(schema.checkpoints.c.compile_id, compile.id), Checkpoint)


def frame_bundle(store: Store, compile: Compile) -> FrameBundle | None:
    """Return the Python frame of a compile, if it was kept (the last, should there be several)."""
    found = _fetch(store, _of(schema.frame_bundles.c.compile_id, compile.id), FrameBundle)
    return found[-1] if found else None


def is_decomposition(store: Store, compile: Compile) -> bool:
    """Return True for the decomposition of an exported program: it has no other checkpoint."""
    return {row.entry for row in checkpoints(store, compile)} == {"export"}


def has_frame(store: Store, compile: Compile) -> bool:
    """Return True if the Python frame of a compile, or the call of an export, was kept."""
    row = frame_bundle(store, compile)
    return row is not None and row.digest is not None


def with_frame_alone(store: Store, compiles: Sequence[Compile]) -> frozenset[int]:
    """Return the row ids of those compiles that have no checkpoint, and whose frame was kept."""
    ids = [row.id for row in compiles]
    of = schema.checkpoints.c.compile_id
    without = sorted({*ids} - {row.compile_id for row in in_chunks(store, select(of), of, ids)})
    table = schema.frame_bundles
    query = select(table).order_by(table.c.id)
    last = {
        row.compile_id: row
        for row in _fetch_many(store, query, FrameBundle, table.c.compile_id, without)
    }
    return frozenset(number for number, row in last.items() if row.digest is not None)


def output_codes(store: Store, compile: Compile) -> list[OutputCode]:
    """Return the source that the backend generated for a compile."""
    return _fetch(store, _of(schema.output_codes.c.compile_id, compile.id), OutputCode)


def failures(store: Store, recording_id: int | None = None) -> list[Failure]:
    """Return the failures of one recording or of the whole store, in the order in which they
    happened.
    """
    table = schema.failures
    query = select(table).order_by(table.c.time_ns, table.c.id)
    if recording_id is not None:
        query = query.where(table.c.recording_id == recording_id)
    return _fetch(store, query, Failure)


def failures_by_recording(store: Store, recording_ids: Sequence[int]) -> dict[int, list[Failure]]:
    """Return the failures of some recordings, by the recording's number; of each, as `failures`."""
    table = schema.failures
    query = select(table).order_by(table.c.time_ns, table.c.id)
    found: dict[int, list[Failure]] = {number: [] for number in recording_ids}
    for row in _fetch_many(store, query, Failure, table.c.recording_id, recording_ids):
        found[row.recording_id].append(row)
    return found


def failures_by_compile(store: Store, compiles: Sequence[Compile]) -> dict[int, Failure]:
    """Return the first failure of each of some compiles that has any, by the compile's row id."""
    table = schema.failures
    query = select(table).order_by(table.c.time_ns.desc(), table.c.id.desc())
    ids = [row.id for row in compiles]
    found = _fetch_many(store, query, Failure, table.c.compile_id, ids)
    return {row.compile_id: row for row in found if row.compile_id is not None}


def failure_of(store: Store, compile: Compile) -> Failure | None:
    """Return the first failure of a compile: later ones are consequences."""
    table = schema.failures
    query = select(table).where(table.c.compile_id == compile.id)
    found = _fetch(store, query.order_by(table.c.time_ns, table.c.id).limit(1), Failure)
    return found[0] if found else None


def config(store: Store, config_id: int | None) -> list[ConfigEntry]:
    """Return the config values that were not the default; none for None."""
    table = schema.config_entries
    columns = (table.c.module, table.c.key, table.c.value, table.c.portable)
    query = select(*columns).where(table.c.config_id == config_id)
    return sorted(_fetch(store, query, ConfigEntry), key=lambda row: (row.module, row.key))


def replays(store: Store, compile: Compile) -> list[Replay]:
    """Return the replays of a compile and their verdicts, oldest first."""
    return _fetch(store, _of(schema.replays.c.compile_id, compile.id), Replay)


def reductions(store: Store, failure: Failure | None = None) -> list[Reduction]:
    """Return the runs of the minifier on one failure, or all of them, oldest first."""
    table = schema.reductions
    query = select(table).order_by(table.c.id)
    if failure is not None:
        query = query.where(table.c.failure_id == failure.id)
    return _fetch(store, query, Reduction)


def reductions_by_failure(store: Store, failure_ids: Sequence[int]) -> dict[int, list[Reduction]]:
    """Return the runs of the minifier on some failures, by the failure's row id, oldest first."""
    table = schema.reductions
    query = select(table).order_by(table.c.id)
    found: dict[int, list[Reduction]] = {}
    for row in _fetch_many(store, query, Reduction, table.c.failure_id, failure_ids):
        if row.failure_id is not None:
            found.setdefault(row.failure_id, []).append(row)
    return found


def runs_at_work(store: Store, since_ns: int) -> int:
    """Return the number of runs of the reductions that began since then and have not ended."""
    at = schema.reductions.c
    query = select(at.oracle_runs).where(at.status == "running", at.started_ns >= since_ns)
    return sum(row.oracle_runs for row in store.rows(query))


def state_of(store: Store) -> str:
    """Return a text that is another one when recordings, compiles, failures or reductions were
    added, deleted or ended: a server says nothing of changes.
    """
    runs, found = schema.recordings.c, schema.compiles.c
    ended = (func.count(runs.ended_ns), func.count().filter(runs.status == "running"))
    counted = (
        (schema.recordings, ended),
        (schema.compiles, (func.count(found.ended_ns),)),
        (schema.failures, ()),
        (schema.reductions, (func.sum(schema.reductions.c.oracle_runs),)),
    )
    with store.connect() as connection:
        queries = (select(func.count(), func.max(table.c.id), *more) for table, more in counted)
        return repr([tuple(connection.execute(query).one()) for query in queries])


def by_catch(store: Store, reduction: Reduction) -> list[ByCatch]:
    """Return the other failures that a reduction met."""
    return _fetch(store, _of(schema.by_catch.c.reduction_id, reduction.id), ByCatch)


def _of(key: Column[int], value: int) -> Select[Any]:
    """Return the rows of the key's table where it has that value, in the order of their ids."""
    table = key.table
    return select(table).where(key == value).order_by(table.c.id)


def _fetch(store: Store, query: Select[Any], row_type: type[_Row]) -> list[_Row]:
    """Return the rows that a query finds, as records; their values are checked by `Store.rows`."""
    make: Callable[..., _Row] = row_type
    if row_type in (Failure, ByCatch):
        make = partial(_with_signature, row_type)
    found = (readable(store, partial(make, **row._mapping), None) for row in store.rows(query))
    return [record for record in found if record is not None]


_FEW = 50
"""Compiles that are read at a time by whoever looks for one."""
_CHUNK = 500
"""Values that one query asks for: SQLite takes some thousand parameters."""


def in_chunks(
    store: Store, query: Select[Any], column: Column[Any], values: Sequence[Any]
) -> Iterator[Row[Any]]:
    """Yield the rows of a query where a column has one of many values, in chunks of these."""
    for start in range(0, len(values), _CHUNK):
        yield from store.rows(query.where(column.in_(values[start : start + _CHUNK])))


def _fetch_many(
    store: Store,
    query: Select[Any],
    row_type: type[_Row],
    column: Column[Any],
    values: Sequence[Any],
) -> Iterator[_Row]:
    """Yield the rows as `_fetch` returns them, where a column has one of many values."""
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        yield from _fetch(store, query.where(column.in_(chunk)), row_type)


def _with_signature(make: Callable[..., _Row], *, signature: Json, **columns: object) -> _Row:
    return make(**columns, signature=Signature.from_json(signature))


def readable(store: Store, read: Callable[[], _Read], otherwise: _Else) -> _Read | _Else:
    """Return the result of `read`; `otherwise` if it can't be read and that is tolerated."""
    try:
        return read()
    except DamagedStore as error:
        store.skip(error)
        return otherwise


def _as_they_ended(store: Store, rows: Sequence[Recording]) -> list[Recording]:
    """Return recordings with the statuses that are true now."""
    running = [row.id for row in rows if row.status == "running"]
    processes = environment_values(store, PROCESS, running)
    return [
        replace(row, status=_status(store, row, processes.get(row.id)))
        if row.status == "running"
        else row
        for row in rows
    ]


def _status(store: Store, row: Recording, process: str | None) -> str:
    if is_alive(row.pid, process):
        return "running"
    ends = marks.read(store.target, row.pid, row.started_ns)
    if ends is not None and ends.orderly:
        return "done"
    elsewhere = marks.may_go_on_elsewhere(store.target, row.pid, row.started_ns)
    return "running" if elsewhere else "died"


def _with_true_statuses(
    store: Store, of: Sequence[Recording], rows: list[Compile]
) -> list[Compile]:
    """Return compiles with true statuses, where a row says 'running' and the process is gone."""
    by_id = {row.id: row for row in of}
    unsure = {row.recording_id for row in rows if row.status == "running"}
    gone = sorted(number for number in unsure if by_id[number].status != "running")
    if not gone:
        return rows
    marked = environment_values(store, marks.KEY, gone)
    ends = {n: marks.read(store.target, by_id[n].pid, by_id[n].started_ns) for n in gone}
    return [
        replace(row, status=_end(row, by_id[n], ends[n], is_marked=n in marked))
        if row.status == "running" and (n := row.recording_id) in ends
        else row
        for row in rows
    ]


def _end(row: Compile, of: Recording, ends: marks.Ends | None, *, is_marked: bool) -> str:
    """Return the status of a compile whose process ended: 'crashed' if the compiler was at work."""
    if of.status == "done" and ends is None:
        return row.status  # a thread compiled on while the process, or its recording, ended
    if not is_marked:
        return "crashed"  # an older version, which left no marks
    found = ends.of(row.started_ns) if ends is not None else "unknown"
    if found == "unknown" and of.exit_signal in FAULTS:
        return "crashed"
    return "crashed" if found == "running" and of.status == "died" else found


def _newest_compiles(
    store: Store, recording_id: int | None, *conditions: ColumnElement[bool]
) -> Iterator[list[Compile]]:
    """Yield the compiles among which an address that names none looks for its own: the newest
    first, some at a time.
    """
    table, owners = schema.compiles, schema.recordings
    query = select(table).where(*conditions).order_by(table.c.started_ns.desc(), table.c.id.desc())
    if recording_id is not None:
        query = query.where(table.c.recording_id == recording_id)
    else:
        query = query.join(owners, table.c.recording_id == owners.c.id)
        query = query.where(owners.c.kind != "replay")
    for start in itertools.count(0, _FEW):
        rows = _fetch(store, query.limit(_FEW).offset(start), Compile)
        of = recordings_of(store, sorted({row.recording_id for row in rows}))
        known = {row.id for row in of}
        yield _with_true_statuses(store, of, [row for row in rows if row.recording_id in known])
        if not rows:
            return


def _latest(store: Store, recording_id: int | None) -> Compile | None:
    return next((rows[0] for rows in _newest_compiles(store, recording_id) if rows), None)


def _named_compile(store: Store, address: Address) -> Compile:
    """Return the compile that has the name in `address`, in its recording."""
    if address.recording is None:
        raise UsageError(f"{address} names a compile without the recording it is in.")
    named = [
        row
        for row in compiles(store, address.recording)
        if row.compile_id == address.compile
        and row.generation == address.generation
        and _attempt_of(address) in (None, row.attempt)
    ]
    if not named:
        raise UsageError(
            f"{address} is not in the store: list the compiles with "
            f"'{command('torchreel', 'ls', store.target)}'."
        )
    return max(named, key=lambda row: (row.attempt, row.id))


def _attempt_of(address: Address) -> int | None:
    """Return the attempt that an address means; None for the last.

    Compiles that torch has no name for are numbered by attempts, and are none of one another.
    """
    return 0 if address.compile == UNNAMED and address.attempt is None else address.attempt
