"""Pushing: what is new arrives whole and once, whoever pushes, and whatever ends."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import and_, delete, or_, select, text

from tests.server import Server
from tests.store.pushing import (
    FAILED,
    content,
    copy,
    counts,
    fill,
    push_once,
    push_until_done,
)
from tests.store.rows import add_compile, add_failure, add_recording
from torchreel.errors import DamagedStore, NewerStore, StoreError
from torchreel.recorder.claims import claimed
from torchreel.sharing.audit.walk import LINE, leaves
from torchreel.store import Store, queries, schema
from torchreel.store.deletion import blobs as deletion
from torchreel.store.deletion.blobs import sweep
from torchreel.store.deletion.recordings import delete_recordings
from torchreel.store.sending import push
from torchreel.store.sending import target as targets
from torchreel.store.sending.contents import SourceBlobs
from torchreel.store.sending.push import push_path, send_one
from torchreel.store.sending.target import send_recording
from torchreel.store.servers import connections

FOUND = replace(FAILED, message="found later")
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["server", "file"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store to push to."""
    if request.param == "server":
        found: str = request.getfixturevalue("url")
        return found
    path = tmp_path / "joined.db"
    Store.open(path, create=True).close()
    return str(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three recordings."""
    return fill(tmp_path / "run.db", range(3))


def test_what_is_pushed_is_what_was_recorded(path: Path, target: str) -> None:
    with Store.open(target, write=True) as central:
        report = push_path(str(path), central)
        assert sorted(report.sent) == [1, 2, 3]
        assert (report.known, report.refused) == (0, [])
        with Store.open(path) as source:
            assert content(central) == content(source)
            here, there = counts(source), counts(central)
    assert there.pop("origins") == 3 + 9  # and the failures
    assert {**here, "packs": 0} == {**there, "packs": 0}


def test_a_file_has_the_indexes_of_a_server_from_the_first_push_on(
    path: Path, tmp_path: Path
) -> None:
    expected = {str(index.name) for index in schema.indexes_of_pushes()}
    assert {"ix_failures_recording_id", "ix_failure_kinds_kind"} <= expected
    central_path = tmp_path / "central.db"
    with Store.open(central_path, create=True) as central:
        assert not expected & _indexes(central)
        push_path(str(path), central)
        assert expected <= _indexes(central)
        with central.connect() as connection:
            asked = "EXPLAIN QUERY PLAN SELECT id FROM failures WHERE recording_id = 1"
            assert "ix_failures_recording_id" in str(connection.execute(text(asked)).all())
    with Store.open(path) as source:
        assert not expected & _indexes(source)
    with Store.open(central_path) as central:
        definitions = (("schema", kind, LINE) for kind in ("table", "index"))
        assert not {leaf.place for leaf in leaves(central)} & set(definitions)


def _indexes(store: Store) -> set[str]:
    with store.connect() as connection:
        names = text("SELECT name FROM sqlite_master WHERE type = 'index'")
        return set(connection.execute(names).scalars())


def test_pushing_again_sends_nothing(path: Path, target: str) -> None:
    other = copy(path, "copy.db")
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        before = counts(central)
        for again in (path, other):
            report = push_path(str(again), central)
            assert (report.sent, report.known, report.added) == ({}, 3, 0)
        assert counts(central) == before
        fill(path, range(3, 4))
        assert sorted(push_path(str(path), central).sent) == [4]


def test_numbers_are_the_other_stores_own(path: Path, target: str, tmp_path: Path) -> None:
    second = fill(tmp_path / "second.db", range(5, 6))
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        assert push_path(str(second), central).sent == {1: 4}
        failing = queries.failures(central, 4)
        assert {row.compile_id for row in failing} == {
            row.id for row in queries.compiles(central, 4)
        }


def test_blobs_are_sent_once(path: Path, target: str) -> None:
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        blobs = counts(central)["blobs"]
    with Store.open(path) as source:
        assert blobs == counts(source)["blobs"] == 3 + 1 + 2 * 9


def test_a_recording_that_runs_is_sent_when_it_has_ended(path: Path, target: str) -> None:
    import os

    with Store.open(path, write=True) as store, store.writer() as w:
        running = add_recording(w, run="running", pid=os.getpid(), status="running")
    with Store.open(target, write=True) as central:
        report = push_path(str(path), central)
        assert (len(report.sent), report.running) == (3, 1)
        with Store.open(path, write=True) as store, store.writer() as w:
            w.update("recordings", running, status="done")
        assert list(push_path(str(path), central).sent) == [running]


def test_a_process_that_died_is_written_down_before_it_is_sent(path: Path, target: str) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        died = add_recording(w, run="died", pid=2**22 + 1, status="running")
        add_compile(w, died, status="running")
    with Store.open(target, write=True) as central:
        number = push_path(str(path), central).sent[died]
        assert queries.recording(central, number).status == "died"
        (crash,) = queries.failures(central, number)
        assert crash.failure_class == "crash"


def test_what_a_launcher_waits_for_is_left_to_it(path: Path, target: str) -> None:
    """It knows the signal that ended the program, a moment later than the program is gone."""
    with Store.open(path, write=True) as store, store.writer() as w:
        dead = add_recording(w, status="running", pid=2**31 - 1, run="dead")
        add_compile(w, dead, status="running")
    with Store.open(target, write=True) as central:
        with claimed(str(path)):
            report = push_path(str(path), central)
            assert (sorted(report.sent), report.running) == ([1, 2, 3], 1)
        with Store.open(path, write=True) as store, store.writer() as w:
            w.update("recordings", dead, exit_signal="SIGSEGV")
        assert sorted(push_path(str(path), central).sent) == [dead]
        (failure,) = queries.failures(central, 4)
    assert failure.signature.signal == "SIGSEGV"


def test_replays_stay(path: Path, target: str) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        add_recording(w, kind="replay", replay_of=1)
    with Store.open(target, write=True) as central:
        assert sorted(push_path(str(path), central).sent) == [1, 2, 3]


def _reduce(path: Path) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        found = add_failure(w, 2, 5, FOUND, message="found later", time_ns=99)
        w.put("cases", digest="c" * 64, failure_id=found, call_nodes=2, document=w.blob(b"case"))
        row = {"start_case": "c" * 64, "best_case": "c" * 64, "status": "fixpoint"}
        row |= {"oracle_runs": 3, "cache_hits": 0, "seconds": 1.5, "started_ns": 5}
        number = w.add("reductions", failure_id=found, **row)
        w.add("reductions", failure_id=found, **{**row, "status": "running", "started_ns": 6})
        caught = {"signature": FAILED.to_json(), "signature_digest": FAILED.digest}
        w.add("by_catch", reduction_id=number, case_digest="c" * 64, **caught)
        finding = {"signature_digest": "s", "environment_digest": "e", "document": {"a": 1}}
        w.add("findings", kind="bisection", case_digest="c" * 64, time_ns=1, **finding)


@pytest.mark.parametrize("before", [True, False])
def test_what_was_found_later_is_sent_once(path: Path, target: str, before: bool) -> None:
    with Store.open(target, write=True) as central:
        if before:
            push_path(str(path), central)
        _reduce(path)
        reports = [push_path(str(path), central) for _ in range(2)]
        assert [report.added for report in reports] == [3 if before else 0, 0]
        found = next(row for row in queries.failures(central, 2) if row.message == "found later")
        (reduction,) = queries.reductions(central, found)
        assert (reduction.status, reduction.oracle_runs) == ("fixpoint", 3)
        assert len(queries.by_catch(central, reduction)) == 1
        number = counts(central)
        assert (number["cases"], number["findings"], number["failures"]) == (1, 1, 10)


def _find(path: Path, message: str, started_ns: int, **columns: object) -> None:
    """Add a failure, found later, and its reduction."""
    signature = replace(FAILED, message=message)
    with Store.open(path, write=True) as store, store.writer() as w:
        found = add_failure(w, 2, 5, signature, message=message, time_ns=started_ns, **columns)
        row = {"start_case": message, "best_case": message, "status": "fixpoint"}
        row |= {"oracle_runs": 3, "cache_hits": 0, "seconds": 1.5, "started_ns": started_ns}
        w.add("reductions", failure_id=found, **row)


def _found(central: Store) -> dict[str, list[str]]:
    """The messages of the failures that were found later, with the cases of their reductions."""
    return {
        row.message: [found.best_case for found in queries.reductions(central, row)]
        for row in queries.failures(central, 2)
        if row.message.startswith("found by")
    }


def test_what_two_found_in_copies_of_one_recording_is_all_sent(path: Path, target: str) -> None:
    one, other = copy(path, "one.db"), copy(path, "other.db")
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        for at, (where, message) in enumerate([(one, "found by a"), (other, "found by b")], 50):
            _find(where, message, at)
            assert push_path(str(where), central).added == 2
        assert _found(central) == {"found by a": ["found by a"], "found by b": ["found by b"]}
        for where in (path, one, other):
            assert push_path(str(where), central).added == 0


def test_what_came_later_is_sent_by_the_slower_of_two(
    path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody pushes a copy without it, after it was asked what is there."""
    other = copy(path, "other.db")
    _find(path, "found by a", 50)
    send = send_recording

    def send_after_another(*arguments: Any) -> int | None:
        monkeypatch.setattr(push, "send_recording", send)
        with Store.open(target, write=True) as its:
            assert len(push_path(str(other), its).sent) == 3
        return send(*arguments)

    with Store.open(target, write=True) as central:
        monkeypatch.setattr(push, "send_recording", send_after_another)
        report = push_path(str(path), central)
        assert (report.sent, report.known, report.added) == ({}, 3, 2)
        assert _found(central) == {"found by a": ["found by a"]}


def test_what_was_found_on_the_server_is_not_sent_back_to_it(
    path: Path, target: str, tmp_path: Path
) -> None:
    back = tmp_path / "back.db"
    with Store.open(target, write=True) as central, Store.open(back, create=True) as here:
        push_path(str(path), central)
        _find(Path(target) if "://" not in target else target, "found by a", 50)  # type: ignore[arg-type]
        send_one(central, 2, here)
        before = counts(central)
        assert push_path(str(back), central).added == 0
        after = counts(central)
        assert {**before, "origins": 0} == {**after, "origins": 0}


def test_what_was_pushed_under_an_identity_of_old_is_known(path: Path, target: str) -> None:
    _find(path, "found by a", 50)
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        before = counts(central)
        at = schema.origins.c
        with central.writer() as w:
            (found,) = central.rows(select(schema.failures).where(schema.failures.c.time_ns == 50))
            later = or_(and_(at.kind == "failure", at.row_id == found.id), at.kind == "reduction")
            w.connection.execute(delete(schema.origins).where(later))
        assert push_path(str(path), central).added == 0
        assert counts(central) == before


def test_what_comes_to_a_recording_that_lost_a_part_is_refused(path: Path, target: str) -> None:
    with Store.open(target, write=True) as central:
        push_path(str(path), central)
        _find(path, "found by a", 50)
        with Store.open(path, write=True) as source, source.writer() as w:
            w.delete("compiles", 4)
        (refused,) = push_path(str(path), central).refused
    assert "recording 2: a part of it was deleted" in refused


def _case_of_two(path: Path) -> None:
    """Let two failures lead to one case, which the first has."""
    with Store.open(path, write=True) as store, store.writer() as w:
        for recording, compile_ in ((1, 1), (2, 5)):
            found = add_failure(w, recording, compile_, FOUND, message="found later", time_ns=99)
            case = {"digest": "c" * 64, "failure_id": found, "call_nodes": 2}
            w.put("cases", **case, document=w.blob(b"case"))
            row = {"start_case": "c" * 64, "best_case": "c" * 64, "status": "fixpoint"}
            row |= {"oracle_runs": 3, "cache_hits": 0, "seconds": 1.5, "started_ns": recording}
            w.add("reductions", failure_id=found, **row)


def test_a_case_comes_with_every_reduction_that_names_it(path: Path, target: str) -> None:
    _case_of_two(path)
    with Store.open(path, write=True) as source:
        delete_recordings(source, [1])
    with Store.open(target, write=True) as central:
        assert sorted(push_path(str(path), central).sent) == [2, 3]
        (row,) = central.rows(select(schema.cases))
        assert central.read_blob(row.document) == b"case"
        (failure,) = central.rows(select(schema.failures).where(schema.failures.c.time_ns == 99))
        assert row.failure_id == failure.id


def test_a_case_goes_with_the_last_that_names_it(path: Path) -> None:
    _case_of_two(path)
    with Store.open(path, write=True) as store:
        delete_recordings(store, [1])
        assert counts(store)["cases"] == 1
        delete_recordings(store, [2])
        assert "cases" not in counts(store)


def test_of_two_that_send_the_same_blobs_one_leaves_a_pack(
    path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "lacking", lambda store, digests: list(digests))
    with Store.open(target, write=True) as central, Store.open(path) as source:
        digests = [row.digest for row in source.rows(select(schema.blobs.c.digest))]
        blobs = SourceBlobs(source)
        assert sorted(blobs.named_by(digests)) == sorted(digests)
        for among in (digests[:5], digests[:5], digests):
            targets.send_blobs(blobs, among, central)
        assert (counts(central)["packs"], counts(central)["blobs"]) == (2, len(digests))


def test_two_put_one_blob_at_once(url: str) -> None:
    with Store.open(url, write=True) as store, store.writer() as one:
        digest = one.blob(b"the same")
        done: list[str] = []

        def other() -> None:
            with Store.open(url, write=True) as its, its.writer() as w:
                done.append(w.blob(b"the same"))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.5)  # it waits for the end of the first
        one.connection.commit()
        thread.join(10)
        assert done == [digest]


def test_a_sweep_takes_no_blob_that_somebody_found(url: str) -> None:
    with Store.open(url, write=True) as store, store.writer() as w:
        w.blob(b"found again")
    with Store.open(url, write=True) as store, Store.open(url, write=True) as sweeping:
        with store.writer() as w:
            digest = w.blob(b"found again")
            sweeper = threading.Thread(target=sweep, args=[sweeping])
            sweeper.start()
            sweeper.join(0.5)
            assert sweeper.is_alive()
            row = add_compile(w, add_recording(w), "0/0")
            w.add("output_codes", compile_id=row, partition="", ordinal=0, digest=digest)
        sweeper.join(10)
        assert store.read_blob(digest) == b"found again"


def test_a_sweep_locks_nobody_out_while_it_reads_and_sees_what_came_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections._WRITER, "lock_timeout", 1000)
    with Store.open(url, write=True) as store, store.writer() as w:
        inner, unused = w.blob(b"inner"), w.blob(b"unused")
        outer = w.blob(inner.encode())
        used = w.blob(b"used")
        compile_ = add_compile(w, add_recording(w))
        columns = {"compile_id": compile_, "partition": "", "digest": used}
        w.add("output_codes", ordinal=0, **columns)
    put: list[str] = []
    works = deletion._named_by_blob

    def put_first(*arguments: Any) -> set[str]:
        if not put:
            with Store.open(url, write=True) as its, its.writer() as other:
                put.append(other.blob(f"new {unused[:9]}".encode()))
                other.blob(inner.encode())  # is there
                for number, digest in enumerate([outer, *put], 1):
                    other.add("output_codes", **{**columns, "digest": digest}, ordinal=number)
        return works(*arguments)

    monkeypatch.setattr(deletion, "_named_by_blob", put_first)
    with Store.open(url, write=True) as store:
        assert sweep(store) == 1
        assert [store.read_blob(digest) for digest in (used, outer, inner)] == [
            b"used", inner.encode(), b"inner",
        ]  # fmt: skip
        with pytest.raises(DamagedStore):
            store.read_blob(unused)
        assert store.read_blob(put[0]).startswith(b"new")


# ---- What is bad


def _change(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as raw:
            raw.execute(statement)
        raw.close()

    return change


def _changes(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        for statement in statements:
            _change(statement)(path)

    return change


def _with_blob(codec: str, size: int, data: str) -> Callable[[Path], None]:
    digest = "ab" * 32

    def change(path: Path) -> None:
        with sqlite3.connect(path) as raw:
            raw.execute(
                "INSERT INTO blobs (digest, codec, size, data) VALUES (?, ?, ?, " + data + ")",
                (digest, codec, size),
            )
            raw.execute("UPDATE graphs SET digest = ? WHERE compile_id < 4", (digest,))
        raw.close()

    return change


BAD = {
    "a blob with another digest": _with_blob("raw", 3, "x'616263'"),
    "a blob that does not unpack": _with_blob("zstd", 3, "x'616263'"),
    "a blob that is too large": _with_blob("zstd", 1 << 29, "zeroblob(3000000)"),
    "a blob of an unknown codec": _with_blob("lzma", 3, "x'616263'"),
    "no JSON": _change("UPDATE recordings SET argv = '[1' WHERE id = 1"),
    "no number": _change("UPDATE compiles SET started_ns = 'x' WHERE recording_id = 1"),
    "no text": _change("UPDATE graphs SET stage = x'ff' WHERE compile_id = 1"),
    "an enormous text": _change(
        "UPDATE compiles SET frame_name = hex(zeroblob(9000000)) WHERE recording_id = 1"
    ),
    "an enormous key": _change(
        "UPDATE lost SET place = hex(zeroblob(5000)) WHERE recording_id = 1"
    ),
    "a NUL": _change("UPDATE recordings SET exit_signal = 'SIG' || char(0) WHERE id = 1"),
    "a NUL in a digest": _change("UPDATE failures SET signature_digest = char(0)"),
    "two rows with one key": _changes(
        "CREATE TABLE copied AS SELECT * FROM environment",
        "DROP TABLE environment",
        "ALTER TABLE copied RENAME TO environment",
        "INSERT INTO environment SELECT * FROM environment",
    ),
    "a signature that is none": _change("UPDATE failures SET signature = '{}'"),
    "no signature": _change("UPDATE failures SET signature = '[1' WHERE recording_id = 1"),
    "a config that is not there": _change("UPDATE compiles SET config_id = 77"),
    "a number that no column takes": _change("UPDATE graphs SET nodes = 1.5 WHERE compile_id = 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_recording_is_refused_and_leaves_nothing(
    tmp_path: Path, target: str, name: str
) -> None:
    bad = fill(tmp_path / "bad.db", range(1))
    BAD[name](bad)
    with Store.open(target, write=True) as central:
        report = push_path(str(bad), central)
        assert len(report.refused) == 1
        assert report.sent == {}
        assert counts(central) == {}
        fill(bad, range(1, 2))  # another one of the same store is sent
        if "blob" not in name:
            assert list(push_path(str(bad), central).sent) == [2]


def test_a_store_of_the_future_is_refused(path: Path, target: str) -> None:
    _change("UPDATE alembic_version SET version_num = '9999'")(path)
    with Store.open(target, write=True) as central:
        with pytest.raises(NewerStore):
            push_path(str(path), central)
        assert counts(central) == {}


# ---- Many at once, and sudden ends


@pytest.mark.slow
def test_eight_push_at_once(tmp_path: Path, url: str) -> None:
    """Each store is pushed by two, from copies of its file; all share blobs."""
    stores = [fill(tmp_path / f"{n}.db", range(4 * n, 4 * n + 6)) for n in range(4)]
    paths = [*stores, *(copy(store, f"copy-{store.name}") for store in stores)]
    with SPAWN.Pool(8) as pool:
        problems = pool.starmap(push_once, [(str(path), url) for path in paths])
    assert problems == [""] * 8
    _check_whole(stores, url, recordings=18)


def _check_whole(stores: list[Path], url: str, recordings: int) -> None:
    """All that is in the stores is in the server's, each recording once, and nothing besides."""
    expected: dict[str, list[object]] = {}
    for path in stores:
        with Store.open(path) as source:
            expected |= content(source)
    with Store.open(url, write=True) as central:
        assert content(central) == expected
        found = counts(central)
        assert (found["recordings"], len(expected)) == (recordings, recordings)
        assert found["origins"] == recordings * 4
        assert found["failures"] == found["compiles"] == recordings * 3
        sweep(central)
        assert content(central) == expected


def _seconds_of_a_push(folder: Path, url: str) -> float:
    """Measure here and now how long a push of one store takes; 12 others make the sum 24."""
    other = fill(folder / "measured.db", range(12, 24), size=200_000)
    start = time.monotonic()
    assert push_once(str(other), url) == ""
    return time.monotonic() - start


@pytest.mark.slow
def test_pushers_that_are_killed_at_any_moment(tmp_path: Path, url: str) -> None:
    store = fill(tmp_path / "run.db", range(12), size=200_000)
    chance = random.Random(5)
    whole_push = _seconds_of_a_push(tmp_path, url)
    kills = 0
    while kills < 12:
        begun = SPAWN.Event()
        process = SPAWN.Process(target=push_once, args=(str(store), url, begun))
        process.start()
        begun.wait(60)
        process.join(chance.uniform(0, whole_push / 16))
        if not process.is_alive():
            break
        process.kill()
        process.join()
        kills += 1
    assert kills > 3
    with Store.open(url) as central:
        half = content(central)
    whole: dict[str, list[object]] = {}
    for path in (store, tmp_path / "measured.db"):
        with Store.open(path) as source:
            whole |= content(source)
    assert all(whole[run] == rows for run, rows in half.items())
    assert push_once(str(store), url) == ""
    _check_whole([store, tmp_path / "measured.db"], url, recordings=24)


@pytest.mark.slow
def test_a_server_that_is_killed_under_pushers(tmp_path: Path, url: str, server: Server) -> None:
    stores = [fill(tmp_path / f"{n}.db", range(6 * n, 6 * n + 6), size=100_000) for n in range(2)]
    pushers = [
        SPAWN.Process(target=push_until_done, args=(str(store), url)) for store in stores * 2
    ]
    for pusher in pushers:
        pusher.start()
    for _ in range(4):
        time.sleep(0.7)
        server.kill()
        server.start()
    for pusher in pushers:
        pusher.join(120)
        assert pusher.exitcode == 0
    _check_whole(stores, url, recordings=12)


@pytest.mark.slow
def test_a_sweep_takes_no_blob_from_under_a_push(tmp_path: Path, url: str) -> None:
    store = fill(tmp_path / "run.db", range(10), size=50_000)
    done = threading.Event()

    def sweep_on() -> None:
        with Store.open(url, write=True) as central:
            while not done.is_set():
                sweep(central)

    sweeper = threading.Thread(target=sweep_on)
    sweeper.start()
    try:
        push_until_done(str(store), url)
    finally:
        done.set()
        sweeper.join()
    _check_whole([store], url, recordings=10)


def test_a_target_that_is_gone_is_an_error(path: Path, url: str, server: Server) -> None:
    with Store.open(url, write=True) as central:
        server.stop()
        try:
            with pytest.raises(StoreError):
                push_path(str(path), central)
        finally:
            server.start()
        assert sorted(push_path(str(path), central).sent) == [1, 2, 3]
