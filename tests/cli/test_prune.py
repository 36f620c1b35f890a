"""`torchreel prune`, on files and on a server."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.cli.conftest import Run
from tests.cli.stores import FAILED
from tests.server import Server
from tests.store.rows import add_compile, add_failure, add_recording
from torchreel.analysis.triage.keeping import PruneLimits, prune
from torchreel.errors import DamagedStore, LockedStore
from torchreel.store import Store, post_mortem, queries, schema
from torchreel.store.database import DELETING
from torchreel.store.deletion.recordings import delete_recordings, used_bytes
from torchreel.store.processes import liveness
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.sending.push import push_path
from torchreel.store.servers.roles import DELETE, READ, grant

DAY = 24 * 3600 * 10**9
OTHER = replace(FAILED, message="another", frames=("torch._inductor.lowering:other",))


def fill(path: Path, kinds: str, *, size: int = 3000) -> Path:
    """Add a recording a day, up to yesterday: 'a' and 'b' fail, '.' does not."""
    began = time.time_ns() - len(kinds) * DAY
    with Store.open(path, create=True) as store, store.writer() as w:
        for number, kind in enumerate(kinds):
            at = began + number * DAY
            times = {"started_ns": at, "ended_ns": at + 2, "status": "done"}
            recording = add_recording(w, run=f"run {number}", pid=number + 1, **times)
            status = "ok" if kind == "." else "failed"
            row = add_compile(w, recording, status=status, started_ns=at)
            blob = w.blob(bytes((number * 7 + n * n * 31) % 251 for n in range(size)))
            w.add("output_codes", compile_id=row, partition="", ordinal=0, digest=blob)
            if kind != ".":
                signature = FAILED if kind == "a" else OTHER
                failure = add_failure(w, recording, row, signature, time_ns=at + 1)
                cases = {"start_case": "x", "best_case": "x", "status": "interrupted"}
                effort = {"oracle_runs": 0, "cache_hits": 0, "seconds": 0.0, "started_ns": at}
                w.add("reductions", failure_id=failure, **cases, **effort)
    return path


def left(target: str | Path) -> list[int]:
    with Store.open(target) as store:
        return [int(row.run.partition(" ")[2]) for row in queries.recordings(store)]


def test_by_age_the_first_and_the_last_of_each_group_stay(run: Run, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "ab.aab.a")
    said = run("prune", path, "--max-age", "2.5d", "--dry-run")
    assert (said.status, said.out) == (0, "3 recordings would be deleted\n"), said
    result = run("prune", path, "--max-age", "2.5d")
    assert result.status == 0, result
    assert result.out == "3 recordings and 3 blobs deleted\n"
    assert "4 recordings of 2 groups stay" in result.err
    assert run("prune", path, "--max-age", "2.5d").out == "0 recordings and 0 blobs deleted\n"


@pytest.mark.usefixtures("a_file")
def test_what_is_left_is_what_should_be(run: Run, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "ab.aab.a")
    assert run("prune", path, "--max-age", "2.5d").status == 0
    assert left(path) == [0, 1, 5, 6, 7]
    with Store.open(path) as store:
        assert len(queries.reductions(store)) == 4, "reductions go with their failures"
        assert len(queries.failures(store)) == 4


@pytest.mark.usefixtures("a_file")
def test_of_a_group_the_newest_are_enough(run: Run, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "aaaa.bbbb")
    assert run("prune", path, "--max-group", 2).status == 0
    assert left(path) == [0, 2, 3, 4, 5, 7, 8]
    assert run("prune", path, "--max-group", 0).status == 0
    assert left(path) == [0, 3, 4, 5, 8]


@pytest.mark.usefixtures("a_file")
def test_by_size_the_oldest_go_first(run: Run, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "a" * 4 + "." * 60, size=200_000)
    with Store.open(path) as store:
        before = used_bytes(store)
    with Store.open(path, write=True) as store:
        report = prune(store, PruneLimits(size=before // 2))
    assert report.size <= before // 2
    assert report.size > before // 4, "no more than was asked for, by far"
    assert left(path) == [0, 3, *range(64 - (64 - 2 - report.recordings), 64)]
    result = run("prune", path, "--max-bytes", 1)
    assert left(path) == [0, 3]
    assert "no more may be deleted" in result.err


@pytest.mark.usefixtures("a_file")
def test_a_dry_run_counts_what_the_size_deletes(run: Run, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "a" * 4 + "." * 20, size=200_000)
    with Store.open(path) as store:
        before = used_bytes(store)
    words = ("prune", path, "--max-bytes", before // 2)
    said = run(*words, "--dry-run")
    assert left(path) == list(range(24)), "nothing went"
    with Store.open(path) as store:
        assert used_bytes(store) == before
    result = run(*words)
    deleted = result.out.partition(" ")[0]
    assert (said.status, said.out) == (0, f"{deleted} recordings would be deleted\n"), said
    assert len(left(path)) == 24 - int(deleted)
    sizes = [each.err.partition(" MiB")[0].rpartition("\n")[2] for each in (said, result)]
    assert sizes[0] == sizes[1]
    assert "MiB of rows would be left." in said.err
    assert "no more may be deleted" in run("prune", path, "--max-bytes", 1, "--dry-run").err


def test_verdicts_go_with_their_failures(tmp_path: Path) -> None:
    """With the last failure of a signature, or with the case that was judged."""
    path = fill(tmp_path / "run.db", "aab")
    judged = [("x", FAILED), ("z", FAILED), ("x", OTHER)]
    with Store.open(path, write=True) as store:
        with store.writer() as w:
            w.put("cases", digest="z", failure_id=1, call_nodes=1, document="none")
            for case, signature in judged:
                keys = {"case_digest": case, "signature_digest": signature.digest}
                other = {"environment_digest": "e", "verdict": "none", "observed": None}
                w.put("verdicts", **keys, **other, seconds=0.0)
        delete_recordings(store, [1, 3])
        found = store.rows(select(schema.verdicts))
    assert [(row.case_digest, row.signature_digest) for row in found] == [("x", FAILED.digest)]


def test_a_limit_has_to_be_named(run: Run, empty: Path) -> None:
    assert run("prune", empty).status == 2
    assert run("prune", empty, "--max-age", "old").status == 2


def test_a_failure_that_can_t_be_read_stops_it(tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "aaa")
    with Store.open(path, write=True) as store:
        with store.writer() as w:
            w.update("failures", 2, signature="{}")
        with pytest.raises(DamagedStore):
            prune(store, PruneLimits(age=1.0))
    assert left(path) == [0, 1, 2]


def _add_silent(target: str | Path, identity: str | None) -> None:
    """Add a recording that says it runs, of a process whose id nobody has here."""
    with Store.open(target, write=True) as store, store.writer() as w:
        number = add_recording(w, run="run 9", pid=2**31 - 1, status="running", started_ns=1)
        if identity is not None:
            w.put("environment", recording_id=number, key=PROCESS, value=identity)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("place", ["another boot", "here", None])
def test_what_another_machine_may_still_write_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, is_shared: bool
) -> None:
    """On a disk that is not shared, another boot is that of this machine, before."""
    monkeypatch.setattr(post_mortem, "is_on_network", lambda directory: is_shared)
    path = fill(tmp_path / "run.db", "a")
    here = liveness.machine_identity() if place == "here" else "another-boot pid:[1]"
    _add_silent(path, place and f"{here} 77")
    with Store.open(path, write=True) as store:
        prune(store, PruneLimits(age=1.0))
    assert left(path) == ([0, 9] if is_shared and place != "here" else [0])


def test_what_is_recorded_into_a_server_stays(server: Server) -> None:
    url = server.new_database()
    with Store.open(url, create=True) as central:
        _add_silent(url, "another-boot pid:[1] 77")
        assert prune(central, PruneLimits(age=1.0)).recordings == 0
    assert left(url) == [9]


@pytest.mark.usefixtures("a_file")
def test_on_a_server_it_takes_the_role_that_may(run: Run, server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", "ab.aab.a")
    url = server.new_database()
    with Store.open(url, create=True) as central:
        push_path(str(path), central)
        with central.writer() as w:
            grant(w.connection)
    for role in (READ, DELETE):
        server.execute(
            f"DO $$ BEGIN CREATE ROLE {role}_pruner LOGIN IN ROLE {role}; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    database = url.rpartition("/")[2]
    with pytest.raises(LockedStore):
        Store.open(server.url(database, user=f"{READ}_pruner"), write=True, rights=DELETING)
    result = run("prune", server.url(database, user=f"{DELETE}_pruner"), "--max-age", "2.5d")
    assert (result.status, result.out) == (0, "3 recordings and 3 blobs deleted\n"), result
    assert left(url) == [0, 1, 5, 6, 7]
    with Store.open(url, write=True) as central:
        assert push_path(str(path), central).sent == {}, "what was deleted stays deleted"
        before = used_bytes(central)
        trial = prune(central, PruneLimits(size=before - 100), dry_run=True)
        assert used_bytes(central) == before
        report = prune(central, PruneLimits(size=before - 100))
        assert (report.recordings, report.size < before) == (1, True)
        assert report == trial
