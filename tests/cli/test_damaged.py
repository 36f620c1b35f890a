"""Damaged and absurd stores: every command ends, in one sentence, and lists what can be read."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

import torchreel
from benchmarks.damage.mutants import FAMILIES, bomb, family_of
from tests.cli.conftest import Run
from tests.cli.stores import failing
from torchreel.store import Store, canonical_json, queries
from torchreel.store.documents.jsontypes import digest_of

MUTANTS = 60
ROOT = Path(__file__).parents[2]


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def store(empty: Path) -> Path:
    """A store with a failing compile."""
    return failing(empty)


# -- a sample of what `make damaged` runs ---------------------------------------------------------


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A real recording with recompiles and symbols, and a failing one."""
    folder = tmp_path_factory.mktemp("recordings")
    torch._dynamo.reset()
    with torchreel.record(folder / "dynamic.db"):
        compiled = torch.compile(lambda x: (x.relu() * x.shape[0]).sum(), backend="aot_eager")
        for size in (3, 5, 7):
            compiled(torch.ones(size, 2, requires_grad=True)).backward()
    torch._dynamo.reset()
    Store.open(folder / "failing.db", create=True).close()
    return [folder / "dynamic.db", failing(folder / "failing.db")]


@pytest.mark.slow
def test_no_command_ends_in_a_traceback_a_hang_or_much_memory(
    recordings: list[Path], tmp_path: Path
) -> None:
    options = ["--count", str(MUTANTS), "--light", "--light-every", "20", "--folder", tmp_path]
    command = [sys.executable, "-m", "benchmarks.damaged", *map(str, options), "--of"]
    ended = subprocess.run(
        [*command, *map(str, recordings)], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {row["number"] for row in rows} == set(range(MUTANTS))
    assert {row["family"] for row in rows} == set(FAMILIES)
    assert {"0", "3"} <= {row["kind"] for row in rows}, "neither damage nor commands are nothing"


def test_every_family_is_among_the_first() -> None:
    assert {family_of(number) for number in range(20)} == set(FAMILIES)


# -- what is readable is listed -------------------------------------------------------------------


def test_a_damaged_row_leaves_the_others(run: Run, store: Path) -> None:
    change(store, "UPDATE compiles SET frame_name = CAST(x'ff' AS TEXT) WHERE compile_id = '0/0'")
    result = run("ls", store)
    assert result.status == 3
    assert "#1/0/1" in result.out
    assert "#1/0/0" not in result.out
    assert "not readable: " in result.err
    assert "compiles.frame_name of row 1 is text that is not UTF-8" in result.err


@pytest.mark.parametrize(
    ("command", "table"),
    [
        ("ls", "lost"), ("ls", "failures"), ("ls", "graphs"), ("ls", "environment"),
        ("show", "lost"), ("show", "failures"), ("show", "graphs"), ("show", "stages"),
        ("show", "checkpoints"), ("show", "config_entries"), ("show", "event_pages"),
    ],
)  # fmt: skip
def test_a_table_that_is_gone_leaves_the_others(
    run: Run, store: Path, command: str, table: str
) -> None:
    change(store, f"DROP TABLE {table}")
    result = run(command, store)
    assert result.status == 3
    assert "#1/0/1" in result.out
    assert f"no such table: {table}" in result.err
    assert "Traceback" not in result.err


def test_a_listing_as_json_is_whole(run: Run, store: Path) -> None:
    change(store, "UPDATE compiles SET started_ns = 'absurd' WHERE compile_id = '0/0'")
    result = run("ls", store, "--json")
    assert [row["compile_id"] for row in json.loads(result.out)] == ["0/1"]
    assert result.status == 3


def test_a_store_that_is_whole_exits_with_0(run: Run, store: Path) -> None:
    assert run("ls", store).status == 0
    assert run("show", store).status == 0


# -- bombs ----------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
sys.modules["torch"] = None
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from torchreel.cli import main
main()
"""


def limited(*words: object) -> subprocess.CompletedProcess[str]:
    """A command with 1 GB of address space, and ten seconds of the processor."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, words)],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (10, 10)),
    )  # fmt: skip


def put(path: Path, packed: bytes, size: int, data: bytes = b"x") -> None:
    """Let the graph of a store be another blob."""
    digest = digest_of(data)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO blobs (digest, codec, size, data) VALUES (?, 'zstd', ?, ?)",
            (digest, size, packed),
        )
        connection.execute("UPDATE graphs SET digest = ?", (digest,))
        connection.commit()


@pytest.mark.parametrize("size", [944 << 20, 1 << 20, 16 << 20, 1 << 40, -1])
def test_a_small_blob_that_unpacks_to_much(store: Path, size: int) -> None:
    packed = bomb(b"[0],")
    assert len(packed) < 100_000
    put(store, packed, size)
    result = limited("show", store, "--graph", "dynamo")
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


DOCUMENTS = {
    "levels": b"[" * 10_000 + b"]" * 10_000,
    "objects": b'{"nodes":' * 10_000 + b"1" + b"}" * 10_000,
    "brackets": b"[" * 15_000_000,
    "lists": b"[" + b"[]," * 5_000_000 + b"[]]",
    "digits": b'{"nodes":[' + b"9" * 5000 + b"]}",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_absurd_document(store: Path, name: str) -> None:
    import zstandard

    data = DOCUMENTS[name]
    put(store, zstandard.compress(data), len(data), data)
    result = limited("show", store, "--graph", "dynamo")
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_one_large_page_that_many_rows_name(store: Path) -> None:
    """Each row is read, and each time the page is unpacked anew."""
    columns = {name: [1] * 60_000 for name in ("seq", "time_ns")} | {
        "name": ["n"] * 60_000,
        "stage": None,
        "cause": None,
        "stack": None,
        "payload": None,
    }
    page = canonical_json({"fields": None, **columns, "data": [{}] * 60_000})
    with Store.open(store, write=True) as opened, opened.writer() as w:
        digest = w.blob(page)
        for _ in range(200):
            w.add(
                "event_pages", recording_id=1, compile_id=2, first_seq=1, last_seq=2,
                kinds=[["k", 60_000]], digest=digest,
            )  # fmt: skip
    result = limited("show", store, "--events")
    assert result.returncode == 3, result.stderr[-500:]
    assert "hold more than a file of its size does" in result.stderr


# -- cycles ---------------------------------------------------------------------------------------


def test_packs_that_begin_with_each_other(run: Run, recordings: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(recordings[0].read_bytes())
    change(path, "UPDATE packs SET first = (SELECT max(id) FROM packs) - id + 1")
    result = run("show", path, "--events")
    assert result.status == 3
    assert "Traceback" not in result.err


def test_frames_that_are_their_own_parents(empty: Path, run: Run) -> None:
    from torchreel.store.blobs.pages import write_frames

    failing(empty)
    frames = [(number, number % 3 + 1, "m.py", 1, "f") for number in (1, 2, 3)]
    with Store.open(empty, write=True) as opened, opened.writer() as w:
        w.add("stack_pages", recording_id=1, digest=w.blob(write_frames(frames)))
        w.connection.exec_driver_sql("UPDATE events SET stack = 1")
        w.connection.exec_driver_sql("UPDATE events SET cause = seq")
    with Store.open(empty) as opened:
        (event,) = queries.events(opened, queries.recording(opened, 1))
        assert len(queries.stack(opened, event)) == 3
    for command in (("show", "--events"), ("why", "graph-break"), ("why", "@1")):
        assert run(command[0], f"{empty}#1/0/1", *command[1:]).status in (0, 1, 2, 3)


def test_numbers_that_no_clock_shows(run: Run, store: Path) -> None:
    for place in ("recordings.started_ns", "compiles.ended_ns", "lost.count", "stages.ended_ns"):
        table, _, column = place.partition(".")
        change(store, f"UPDATE {table} SET {column} = {2**63 - 1}")
    assert run("ls", store).status == 0
    assert run("show", store).status == 0


def test_what_is_missing_in_a_damaged_store_may_be_in_what_is_damaged(
    run: Run, store: Path
) -> None:
    change(store, "UPDATE recordings SET ended_ns = x'00'")
    result = run("show", store)
    assert (result.status, result.out) == (3, ""), result
    assert "not readable: " in result.err
    assert "It may be in what is not readable." in result.err
