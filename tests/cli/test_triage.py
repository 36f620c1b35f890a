"""`torchreel triage`, on stores that are written row by row."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import FAILED, failing
from tests.store.rows import add_compile, add_failure, add_recording
from torchreel.store import Signature, Store

OTHER = Signature(
    "exception", "dynamo", "", ("ValueError",), ("torch._dynamo.x:f",), "no \x1b[31mred"
)


def add_other(path: Path) -> Path:
    with Store.open(path, write=True) as store, store.writer() as w:
        number = add_recording(w, pid=7)
        add_failure(w, number, add_compile(w, number, status="failed"), OTHER)
    return path


def test_it_prints_each_group(run: Run, empty: Path) -> None:
    result = run("triage", add_other(failing(empty)))
    assert result.status == 0, result
    title, first, second = result.out.split("\n\n")
    assert title == "2 failures in 1 store: 2 groups"
    for text in (
        "LoweringException/KeyError in lowering: no such key\n",
        "  in torch._inductor.lowering:scatter\n",
        "  1 failure of 1 process, ",
        f"  smallest graph: 2 call nodes: torchreel minify {empty}#1/0/1",
    ):
        assert text in first + second
    assert "\x1b" not in result.out
    assert "next: torchreel minify" in result.err


def test_json_has_every_group(run: Run, empty: Path) -> None:
    found = json.loads(run("triage", failing(empty), "--json").out)
    (group,) = found["groups"]
    assert group["signatures"] == [FAILED.digest]
    assert group["addresses"] == [f"{empty}#1/0/1"]
    assert group["next"] == ["torchreel", "minify", f"{empty}#1/0/1"]
    assert (found["stores"], found["unreadable"]) == (1, [])


def test_it_tells_what_is_new(run: Run, empty: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    shutil.copy(failing(empty), old)
    assert run("triage", empty, "--baseline", old).status == 0
    result = run("triage", add_other(empty), "--baseline", old)
    assert result.status == 1
    assert result.out.startswith("2 failures in 1 store: 2 groups, 1 of them new\n")
    assert "new: ValueError in dynamo" in result.out.split("\n\n")[1]


@pytest.mark.slow
def test_graphs_are_ranked_without_a_baseline(run: Run, empty: Path) -> None:
    result = run("triage", empty, "--accuracy")
    assert (result.status, result.out) == (
        0, "0 distinct graphs, 0 of them with other values than eager\n"
    )  # fmt: skip
    refused = run("triage", empty, "--accuracy", "--baseline", empty)
    assert refused.status == 2
    assert "--baseline compares failures" in refused.err


def test_a_store_without_failures_has_no_groups(run: Run, empty: Path) -> None:
    result = run("triage", empty)
    assert (result.status, result.out) == (0, "0 failures in 1 store: 0 groups\n")


def test_it_goes_on_without_a_store_that_can_t_be_read(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    result = run("triage", failing(empty), tmp_path / "no.db")
    assert (result.status, "1 failure in 1 store" in result.out) == (3, True)
    assert f"left out: There is no store at {tmp_path / 'no.db'}" in result.err
    assert run("triage", tmp_path / "no.db").status == 3


def test_a_damaged_part_is_no_all_clear(run: Run, empty: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    shutil.copy(failing(empty), damaged)
    with sqlite3.connect(damaged) as connection:
        connection.execute("UPDATE failures SET signature = '{}'")
    connection.close()
    result = run("triage", empty, damaged)
    assert result.status == 3, result
    assert "left out: " in result.err
    assert run("triage", empty, "--baseline", damaged).status == 3


def test_recheck_gives_no_all_clear_for_what_it_could_not_read(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    result = run("recheck", empty, tmp_path / "no.db", "--python", sys.executable, "--json")
    assert result.status == 3
    (told,) = json.loads(result.out)["unreadable"]
    assert "no.db" in told


def test_a_store_counts_once_under_whatever_path(run: Run, empty: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(failing(empty))
    relative = f"{empty.parent}/../{empty.parent.name}/{empty.name}"
    assert "1 failure in 1 store: 1 group" in run("triage", empty, empty, link, relative).out
    told = run("triage", empty, "--baseline", link)
    assert (told.status, told.out.splitlines()[0]) == (
        0,
        "1 failure in 1 store: 1 group, 0 of them new",
    ), "a store that is its own baseline has its failures, and nothing new"


def test_the_default_store_is_meant_by_nothing(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL_STORE", str(failing(empty)))
    assert "1 failure in 1 store: 1 group" in run("triage").out
