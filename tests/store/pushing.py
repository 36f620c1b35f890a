"""Stores to push, and processes that push them."""

from __future__ import annotations

import random
import shutil
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from sqlalchemy import func, inspect, select

from tests.store.rows import (
    add_compile,
    add_event,
    add_failure,
    add_graph,
    add_recording,
    add_stage,
)
from torchreel.errors import StoreError
from torchreel.store import ConfigEntry, Signature, Store, canonical_json, queries
from torchreel.store.database import Store as Database
from torchreel.store.schema import metadata
from torchreel.store.sending.push import push_path

FAILED = Signature("exception", "lowering", "inference", ("KeyError",), ("torch:f",), "no key")


def fill(path: Path, runs: range, *, size: int = 2000) -> Path:
    """Add recordings with failing compiles; what the graphs say is shared between recordings."""
    with Database.open(path, create=True) as store:
        for run in runs:
            with store.writer() as w:
                recording = add_recording(w, run=f"run {run}", pid=run + 1, ended_ns=9)
                _compiles(w, recording, run, size)
    return path


def _compiles(w: Any, recording: int, run: int, size: int) -> None:
    shared, own = random.Random(7), random.Random(run)
    w.add_many("environment", [{"recording_id": recording, "key": "torch", "value": "2.13.0"}])
    lost = {"reason": "none", "place": "guards", "count": run, "message": "opaque"}
    w.add_many("lost", [{"recording_id": recording, **lost}])
    config = w.config([ConfigEntry("inductor", "max_fusion_size", run % 3)])
    for number in range(3):
        row = add_compile(w, recording, f"0/{number}", config_id=config, status="failed")
        add_stage(w, row, "dynamo")
        payload = w.blob(own.randbytes(size))
        page = canonical_json({"payload": payload, "text": own.randbytes(9).hex()})
        columns = {"first_seq": number, "last_seq": number, "kinds": [["k", 1]]}
        w.add("event_pages", recording_id=recording, compile_id=row, digest=w.blob(page), **columns)
        graph = add_graph(w, row, digest=w.blob(shared.randbytes(size)))
        target = {"graph_id": graph, "depth": 0, "target": "op:aten.relu.default", "count": 1}
        w.add_many("graph_targets", [target])
        checkpoint = {"entry": "graph", "partition": "", "ordinal": 0, "graph_id": graph}
        digest = w.blob(b"{}" * size)
        checkpoint_id = w.add("checkpoints", compile_id=row, digest=digest, **checkpoint)
        add_event(w, recording, 100 + number, compile_id=row, data={"n": [number, 1.5, None]})
        add_failure(
            w, recording, row, FAILED, exception_type="KeyError", checkpoint_id=checkpoint_id,
            time_ns=number,
        )  # fmt: skip


def content(store: Store) -> dict[str, list[object]]:
    """All that is read of each recording of a store, without numbers of rows, by its run."""
    found: dict[str, list[object]] = {}
    for recording in queries.recordings(store):
        rows: list[object] = [
            queries.environment(store, recording.id),
            [(row.reason, row.place, row.count) for row in queries.lost(store, recording.id)],
        ]
        for compile_ in queries.compiles(store, recording.id):
            rows.append((compile_.compile_id, queries.config(store, compile_.config_id)))
            rows += [store.read_blob(row.digest) for row in queries.graphs(store, compile_)]
            rows += [store.read_blob(row.digest) for row in queries.checkpoints(store, compile_)]
            failure = queries.failure_of(store, compile_)
            assert failure is not None
            kept = queries.checkpoints(store, compile_)
            rows += [failure.signature, [row.id for row in kept] == [failure.checkpoint_id]]
            rows += [len(queries.graph_targets(store, g)) for g in queries.graphs(store, compile_)]
        rows += _pages(store, recording.id)
        found.setdefault(recording.run, []).append(rows)
    return found


def _pages(store: Store, recording: int) -> list[object]:
    table = metadata.tables["event_pages"]
    found: list[object] = []
    for row in store.rows(select(table).where(table.c.recording_id == recording)):
        page = store.read_blob(row.digest)
        found += [page, store.read_blob(page.decode()[12:76])]
    return found


def counts(store: Store) -> dict[str, int]:
    """The number of rows in each table that has any."""
    with store.connect() as connection:
        here = inspect(connection).get_table_names()
        found = {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
            if name in here
        }
    return {name: number for name, number in found.items() if number}


def push_once(path: str, url: str, begun: Event | None = None) -> str:
    """Push a store, in a process of a pool; the error, if there is one.  Sets `begun` first."""
    if begun is not None:
        begun.set()
    try:
        with Store.open(url, write=True) as target:
            report = push_path(path, target)
        return " ".join(report.refused)
    except StoreError as error:
        return str(error)


def push_until_done(path: str, url: str) -> None:
    """Push a store, as often as it takes."""
    while push_once(path, url):
        pass


def copy(path: Path, name: str) -> Path:
    """A copy of a store beside it."""
    return Path(shutil.copy(path, path.with_name(name)))
