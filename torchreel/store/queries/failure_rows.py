"""Queries about failures, and about what was computed from them: replays, reductions."""

from collections.abc import Sequence

from sqlalchemy import select

from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.queries.reading import fetch, fetch_many, rows_of
from torchreel.store.records import (
    ByCatch,
    Compile,
    Failure,
    Reduction,
    Replay,
)


def failures(store: Store, recording_id: int | None = None) -> list[Failure]:
    """Return the failures of one recording or of the whole store, in the order in which they
    happened.
    """
    table = schema.failures
    query = select(table).order_by(table.c.time_ns, table.c.id)
    if recording_id is not None:
        query = query.where(table.c.recording_id == recording_id)
    return fetch(store, query, Failure)


def failures_by_recording(store: Store, recording_ids: Sequence[int]) -> dict[int, list[Failure]]:
    """Return the failures of some recordings, by the recording's number; of each, as `failures`."""
    table = schema.failures
    query = select(table).order_by(table.c.time_ns, table.c.id)
    found: dict[int, list[Failure]] = {number: [] for number in recording_ids}
    for row in fetch_many(store, query, Failure, table.c.recording_id, recording_ids):
        found[row.recording_id].append(row)
    return found


def failures_by_compile(store: Store, compiles: Sequence[Compile]) -> dict[int, Failure]:
    """Return the first failure of each of some compiles that has any, by the compile's row id."""
    table = schema.failures
    query = select(table).order_by(table.c.time_ns.desc(), table.c.id.desc())
    ids = [row.id for row in compiles]
    found = fetch_many(store, query, Failure, table.c.compile_id, ids)
    return {row.compile_id: row for row in found if row.compile_id is not None}


def failure_of(store: Store, compile: Compile) -> Failure | None:
    """Return the first failure of a compile: later ones are consequences."""
    table = schema.failures
    query = select(table).where(table.c.compile_id == compile.id)
    found = fetch(store, query.order_by(table.c.time_ns, table.c.id).limit(1), Failure)
    return found[0] if found else None


def replays(store: Store, compile: Compile) -> list[Replay]:
    """Return the replays of a compile and their verdicts, oldest first."""
    return fetch(store, rows_of(schema.replays.c.compile_id, compile.id), Replay)


def reductions(store: Store, failure: Failure | None = None) -> list[Reduction]:
    """Return the runs of the minifier on one failure, or all of them, oldest first."""
    table = schema.reductions
    query = select(table).order_by(table.c.id)
    if failure is not None:
        query = query.where(table.c.failure_id == failure.id)
    return fetch(store, query, Reduction)


def reductions_by_failure(store: Store, failure_ids: Sequence[int]) -> dict[int, list[Reduction]]:
    """Return the runs of the minifier on some failures, by the failure's row id, oldest first."""
    table = schema.reductions
    query = select(table).order_by(table.c.id)
    found: dict[int, list[Reduction]] = {}
    for row in fetch_many(store, query, Reduction, table.c.failure_id, failure_ids):
        if row.failure_id is not None:
            found.setdefault(row.failure_id, []).append(row)
    return found


def runs_at_work(store: Store, since_ns: int) -> int:
    """Return the number of runs of the reductions that began since then and have not ended."""
    at = schema.reductions.c
    query = select(at.oracle_runs).where(at.status == "running", at.started_ns >= since_ns)
    return sum(row.oracle_runs for row in store.rows(query))


def by_catch(store: Store, reduction: Reduction) -> list[ByCatch]:
    """Return the other failures that a reduction met."""
    return fetch(store, rows_of(schema.by_catch.c.reduction_id, reduction.id), ByCatch)
