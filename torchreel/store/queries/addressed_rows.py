"""Queries for what an address names, or leaves out: a compile, an event, the latest failure."""

import itertools
from collections.abc import Iterator

from sqlalchemy import ColumnElement, select

from torchreel.errors import UsageError
from torchreel.escaping.shell import command
from torchreel.store import schema
from torchreel.store.addressing import UNNAMED, Address
from torchreel.store.database import Store
from torchreel.store.queries.compile_rows import (
    FAILING,
    compile_by_id,
    compiles,
    with_true_statuses,
)
from torchreel.store.queries.event_rows import known_columns, paged_events
from torchreel.store.queries.failure_rows import failures_by_compile
from torchreel.store.queries.reading import fetch
from torchreel.store.queries.recording_rows import programs, recording, recordings_of
from torchreel.store.records import (
    Compile,
    Event,
    Recording,
)


def compile_at(store: Store, address: Address) -> Compile:
    """Return the compile that an address means; UsageError when there is none.

    A compile's name without an attempt means its last attempt; an event, the compile it belongs
    to; a recording or nothing, the latest failing compile there, else the latest compile that
    Dynamo did not skip.
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


def covered(store: Store, address: Address) -> list[Recording]:
    """Return the recording that an address names; where it names none, all but replays."""
    if address.recording is not None:
        return [recording(store, address.recording)]
    return programs(store)


def is_covered(compile: Compile, address: Address) -> bool:
    """Return True if a compile of a covered recording is one that the address covers."""
    name = (address.generation, address.compile)
    named = address.compile is None or (compile.generation, compile.compile_id) == name
    return named and (address.attempt is None or compile.attempt == address.attempt)


def event_at(store: Store, address: Address) -> Event:
    """Return the event that an address with `@` means; UsageError when there is none."""
    table = schema.events
    place = (table.c.recording_id == address.recording, table.c.seq == address.event)
    rows = fetch(store, select(*known_columns(table)).where(*place), Event)
    if not rows and address.event is not None:
        pages = schema.event_pages
        here = select(pages).where(pages.c.recording_id == address.recording)
        rows = list(paged_events(store, here, None, (address.event, address.event)))
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


_FEW = 50
"""Compiles that are read at a time by whoever looks for one."""


def _newest_compiles(
    store: Store, recording_id: int | None, *conditions: ColumnElement[bool]
) -> Iterator[list[Compile]]:
    """Yield groups of compiles, the newest first, for an address that names no compile."""
    table, owners = schema.compiles, schema.recordings
    query = select(table).where(*conditions).order_by(table.c.started_ns.desc(), table.c.id.desc())
    if recording_id is not None:
        query = query.where(table.c.recording_id == recording_id)
    else:
        query = query.join(owners, table.c.recording_id == owners.c.id)
        query = query.where(owners.c.kind != "replay")
    for start in itertools.count(0, _FEW):
        rows = fetch(store, query.limit(_FEW).offset(start), Compile)
        of = recordings_of(store, sorted({row.recording_id for row in rows}))
        known = {row.id for row in of}
        yield with_true_statuses(store, of, [row for row in rows if row.recording_id in known])
        if not rows:
            return


def _latest(store: Store, recording_id: int | None) -> Compile | None:
    """Return the latest compile; a frame that Dynamo left to Python only if there is no other."""
    for conditions in ([schema.compiles.c.status != "skipped"], []):
        for rows in _newest_compiles(store, recording_id, *conditions):
            if rows:
                return rows[0]
    return None


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
    """Return the attempt that an address means; None for the last one.

    Compiles that torch has no name for are numbered as attempts, although each is a compile by
    itself. An address without a number means the first of these.
    """
    return 0 if address.compile == UNNAMED and address.attempt is None else address.attempt
