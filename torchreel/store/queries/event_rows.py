"""Queries about events: in rows and in pages, by compile, counted, with their stacks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, func, select

from torchreel.store import schema
from torchreel.store.blobs.page_reader import Room, kinds_of, read_frames, read_pages
from torchreel.store.database import Store
from torchreel.store.queries.reading import CHUNK, fetch, readable, rows_of
from torchreel.store.records import (
    Compile,
    Event,
    EventPages,
    Recording,
    StackFrame,
    StackPage,
)


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
    paged = paged_events(store, _part(schema.event_pages, of), kinds, between)
    return sorted([*fetch(store, in_rows, Event), *paged], key=lambda event: event.seq)


def paged_events(
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
        for pages in fetch(store, query, EventPages)
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
    in_rows = select(*known_columns(rows)).where(rows.c.kind.in_(kinds))
    found: dict[int, list[Event]] = {}
    for start in range(0, len(compiles), CHUNK):
        ids = [row.id for row in compiles[start : start + CHUNK]]
        events = fetch(store, in_rows.where(rows.c.compile_id.in_(ids)), Event)
        in_pages = select(pages).where(pages.c.compile_id.in_(ids))
        for event in (*events, *paged_events(store, in_pages, kinds, None)):
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
    for pages in fetch(store, _part(schema.event_pages, of), EventPages):
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
    for row in fetch(store, select(pages).where(pages.c.recording_id == recording_id), EventPages):
        for page in readable(store, partial(kinds_of, row), []):
            if page is not None:
                found.setdefault(row.compile_id, Counter())[page[0]] += page[1]
    return found


def _part(table: Table, of: Compile | Recording, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return the rows of a recording or of a compile."""
    column = table.c.compile_id if isinstance(of, Compile) else table.c.recording_id
    return select(*(columns or known_columns(table))).where(column == of.id)


def known_columns(table: Table) -> list[Column[Any]]:
    """Return the columns that the record has: a row's id means nothing to a reader of events."""
    return [c for c in table.c if table is not schema.events or c.name != "id"]


def stack_frames(store: Store, recording_id: int) -> dict[int, StackFrame]:
    """Return every frame that events of a recording were seen from, by id."""
    pages = fetch(store, rows_of(schema.stack_pages.c.recording_id, recording_id), StackPage)
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
