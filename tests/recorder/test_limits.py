"""Bounded disk: what is deleted when a store is full, in what order, and what never is."""

import os
import random
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from torchreel.recorder.event_log import retention
from torchreel.recorder.event_log.log import EventLog
from torchreel.recorder.event_log.retention import Limits, Retention, drop_material, size_on_disk
from torchreel.recorder.event_log.rows import Add, AddPages, Blob, Ref, Update
from torchreel.recorder.failing_open import losses
from torchreel.store import Store, queries
from torchreel.store.recording import open_for_recording

NOISE = random.Random(0)
CAP = 1 << 20


@pytest.fixture(autouse=True)
def _no_losses() -> None:
    losses.reset()


def noise(size: int) -> bytes:
    """Bytes that can't be compressed, and are text."""
    return NOISE.randbytes(size // 2).hex().encode()


def recorder(path: Path, limits: Limits) -> EventLog:
    columns = {"run": "r", "kind": "program", "pid": os.getpid(), "argv": ["x"], "cwd": "/"}
    log = EventLog(str(path), Add("recordings", {**columns, "started_ns": 1, "status": "running"}))
    log.retention = Retention(limits)
    return log


def compile_row(log: EventLog, n: int, status: str, started_ns: int = 0) -> Ref:
    row = Add(
        "compiles",
        {
            "recording_id": log.recording, "compile_id": f"{n}/0", "attempt": 0, "frame_name": "f",
            "frame_file": "", "frame_line": 0, "status": status,
            "started_ns": started_ns or time.time_ns(),
        },
    )  # fmt: skip
    log.append(row)
    return row.ref


def add_material(log: EventLog, compile: Ref, seq: int, size: int) -> None:
    """A checkpoint, and a page of events with a payload."""
    columns = {"entry": "graph", "partition": "", "ordinal": 0, "digest": Blob(noise(size // 2))}
    log.append(Add("checkpoints", {"compile_id": compile, **columns}))
    payload = noise(size // 2).decode()
    event = ("k", 1, True, False, None, seq, 0, None, "", payload, None, None, {})
    log.append(AddPages(log.recording, compile, [[event]]))


def add_failure(log: EventLog, compile: Ref, kind: str = "dynamo") -> None:
    from torchreel.store.failures.signature import crash_signature

    signature = crash_signature(kind, "", "SIGKILL")
    columns = {
        "recording_id": log.recording, "compile_id": compile, "stage": "dynamo", "partition": "",
        "failure_class": "crash", "exception_type": "", "message": "", "chain": [],
        "signature": signature.to_json(), "signature_digest": signature.digest, "time_ns": 1,
    }  # fmt: skip
    log.append(Add("failures", columns))


def fill(
    log: EventLog, path: Path, count: int, failing: int, size: int = 80_000, kinds: int = 1
) -> int:
    """Compiles, of which the first ones fail; the largest size that the store had meanwhile."""
    largest = 0
    for n in range(count):
        compile = compile_row(log, n, "failed" if n < failing else "ok")
        add_material(log, compile, n, size)
        if n < failing:
            add_failure(log, compile, f"stage {n % kinds}")
        assert log.commit("test")
        largest = max(largest, size_on_disk(str(path)))
    log.close()
    return largest


def test_the_oldest_successes_lose_their_material_first(path: Path) -> None:
    largest = fill(recorder(path, Limits(max_bytes=CAP)), path, 40, failing=2)
    assert largest < CAP * 1.2, "between two batches it may be a little more"
    assert size_on_disk(str(path)) < CAP
    with Store.open(path) as store:
        rows = queries.compiles(store, 1)
        left = [n for n, row in enumerate(rows) if queries.checkpoints(store, row)]
        assert len(rows) == 40, "their rows are small, and stay"
        assert left[:2] == [0, 1], "the failures stay, old as they are"
        assert left[2:] == list(range(40 - len(left) + 2, 40)), "the newest successes stay"
        for n in left:
            (checkpoint,) = queries.checkpoints(store, rows[n])
            assert len(store.read_blob(checkpoint.digest)) == 40_000
            (event,) = queries.events(store, rows[n])
            assert event.payload is not None
            assert len(store.read_blob(event.payload)) == 40_000
        with store.connect() as connection:
            blobs = connection.execute(text("SELECT count(*) FROM blobs")).scalar()
        # A checkpoint, a payload and a page of each: no blob is left that nothing names.
        assert blobs == 3 * len(left)
    assert losses.snapshot() == []


def test_old_failures_go_last_and_the_newest_never(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_NEWEST_FAILURES", 3)
    fill(recorder(path, Limits(max_bytes=CAP)), path, 40, failing=40, kinds=40)
    assert size_on_disk(str(path)) < CAP
    with Store.open(path) as store:
        names = [row.compile_id for row in queries.compiles(store, 1)]
        assert 3 <= len(names) < 40
        assert names == [f"{n}/0" for n in range(40 - len(names), 40)]
        assert len(queries.failures(store)) == len(names)
    assert {row[0] for row in losses.snapshot()} == {retention.OLD}
    assert sum(row[2] for row in losses.snapshot()) == 40 - len(names)


def test_new_kinds_survive_and_repeats_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spool whose collector is away: thousands of repeats of few kinds, each kind first early."""
    monkeypatch.setattr(retention, "_NEWEST_FAILURES", 3)
    fill(recorder(path, Limits(max_bytes=CAP)), path, 60, failing=60, kinds=4)
    assert size_on_disk(str(path)) < CAP
    with Store.open(path) as store:
        left = [int(row.compile_id.partition("/")[0]) for row in queries.compiles(store, 1)]
        kept = queries.failures(store)
    assert left[:4] == [0, 1, 2, 3], "the first of each kind"
    assert left[-3:] == [57, 58, 59], "the newest"
    counted = losses.snapshot()
    assert {row[0] for row in counted} == {retention.REPEATS}
    assert sorted(row[1] for row in counted) == sorted(
        {f"failure {failure.signature_digest[:12]}" for failure in kept}
    )
    assert sum(row[2] for row in counted) + len(left) == 60, "nothing is lost without a count"


def test_failures_alone_may_be_more_than_the_cap(path: Path) -> None:
    fill(recorder(path, Limits(max_bytes=CAP)), path, 5, failing=5, size=600_000)
    assert size_on_disk(str(path)) > CAP
    with Store.open(path) as store:
        assert len(queries.failures(store)) == 5
    assert [row[:2] for row in losses.snapshot()] == [
        ("failures alone are more than max-bytes", "retention")
    ]


def test_what_is_too_old_goes(path: Path) -> None:
    log = recorder(path, Limits())
    for n in range(4):
        old = time.time_ns() - int(1e9) * 3600 * 24 * (10 - 3 * n)
        compile = compile_row(log, n, "failed" if n == 0 else "ok", old)
        add_material(log, compile, n, 10_000)
    assert log.commit("test")
    log.append(Update("recordings", log.recording, {"status": "done"}))
    log.close()
    later = recorder(path, Limits(max_age=5 * 24 * 3600.0))
    compile_row(later, 0, "ok")
    later.close()
    with Store.open(path) as store:
        assert [row.compile_id for row in queries.compiles(store, 1)] == ["2/0", "3/0"]
        assert [row.compile_id for row in queries.compiles(store, 2)] == ["0/0"]


def test_a_blob_that_somebody_else_names_stays(path: Path) -> None:
    log = recorder(path, Limits())
    shared = noise(1000)
    refs = [compile_row(log, n, "ok") for n in range(2)]
    columns = {"entry": "graph", "partition": "", "ordinal": 0, "digest": Blob(shared)}
    for ref in refs:
        log.append(Add("checkpoints", {"compile_id": ref, **columns}))
    assert log.commit("test")
    assert refs[0].id is not None
    assert refs[1].id is not None
    store = open_for_recording(str(path))
    with store.writer() as writer:
        drop_material(writer, refs[0].id)
    with Store.open(path) as reader:
        (kept,) = queries.checkpoints(reader, queries.compiles(reader, 1)[1])
        assert reader.read_blob(kept.digest) == shared
    with store.writer() as writer:
        drop_material(writer, refs[1].id)
    store.close()
    # The first writer knew that blob to be there: it must not believe so any more.
    log.append(Add("checkpoints", {"compile_id": refs[0], **columns}))
    log.close()
    with Store.open(path) as reader:
        (again,) = queries.checkpoints(reader, queries.compiles(reader, 1)[0])
        assert reader.read_blob(again.digest) == shared


def test_the_cases_of_a_reduction_stay(path: Path) -> None:
    fill(recorder(path, Limits()), path, 3, failing=1, size=1000)
    document = noise(1000)
    with Store.open(path, write=True) as store, store.writer() as w:
        case = {"digest": "c" * 64, "failure_id": 1, "call_nodes": 1, "document": w.blob(document)}
        w.put("cases", **case)
        digest = str(case["document"])
    later = recorder(path, Limits(max_age=3600.0))
    compile_row(later, 0, "ok")
    assert later.commit("test")
    later.close()
    direct = open_for_recording(str(path))
    with direct.writer() as writer:
        drop_material(writer, 1)
    direct.close()
    with Store.open(path) as store:
        assert store.read_blob(digest) == document
