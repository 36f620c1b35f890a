"""Queries about recordings: their rows, statuses, environments, configs and losses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select

from torchreel.errors import UsageError
from torchreel.escaping.shell import command
from torchreel.store import schema
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.processes import marks
from torchreel.store.processes.liveness import PROCESS, is_alive
from torchreel.store.queries.reading import fetch, fetch_many, in_chunks
from torchreel.store.records import (
    Lost,
    Recording,
)


def recordings(store: Store) -> list[Recording]:
    """Return every recording, oldest first."""
    rows = fetch(store, select(schema.recordings).order_by(schema.recordings.c.id), Recording)
    return _as_they_ended(store, rows)


def programs(store: Store) -> list[Recording]:
    """Return every recording but those of replays, oldest first."""
    return [row for row in recordings(store) if row.kind != "replay"]


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
    return _as_they_ended(store, fetch(store, query, Recording)[::-1])


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
    found = fetch_many(store, query, Recording, table.c.id, sorted(recording_ids))
    return _as_they_ended(store, list(found))


def recording(store: Store, recording_id: int) -> Recording:
    """Return one recording; UsageError when the store has none of that number."""
    query = select(schema.recordings).where(schema.recordings.c.id == recording_id)
    rows = fetch(store, query, Recording)
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
    return sorted(fetch(store, query, Lost), key=lambda row: (row.reason, row.place))


def lost_counts(store: Store, recording_ids: Sequence[int]) -> dict[int, int]:
    """Return the number of losses of some recordings, by recording, if any."""
    table = schema.lost
    found: Counter[int] = Counter()
    for row in fetch_many(store, select(table), Lost, table.c.recording_id, recording_ids):
        found[row.recording_id] += row.count
    return dict(found)


def config(store: Store, config_id: int | None) -> list[ConfigEntry]:
    """Return the config values that were not the default; none for None."""
    table = schema.config_entries
    columns = (table.c.module, table.c.key, table.c.value, table.c.portable)
    query = select(*columns).where(table.c.config_id == config_id)
    return sorted(fetch(store, query, ConfigEntry), key=lambda row: (row.module, row.key))


def state_of(store: Store) -> str:
    """Return a text that changes when the store does; a server does not report changes.

    It changes when recordings, compiles, failures or reductions are added, deleted or ended.
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
