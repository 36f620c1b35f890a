"""`torchreel ls` in its four formats."""

import csv
import io
import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.stores import failing
from tests.store.rows import add_recording
from torchreel.store import Store


def test_tables_name_recordings_compiles_and_what_comes_next(run: Run, empty: Path) -> None:
    result = run("ls", failing(empty))
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["recording", "kind", "status", "started", "lost", "program"]
    assert f"{empty}#1" in lines[1]
    assert "done, status 1" in lines[1]
    (failed,) = [line for line in lines if "failed" in line]
    assert failed.split()[:6] == [
        f"{empty}#1/0/1",
        "f",
        "failed",
        "lowering",
        "2",
        "LoweringException/KeyError:",
    ]
    assert result.err == f"next: torchreel show {empty}#1/0/1\n"


def test_json_csv_and_lines_hold_the_same_rows(run: Run, empty: Path) -> None:
    failing(empty)
    rows = json.loads(run("ls", empty, "--json").out)
    lines = [json.loads(line) for line in run("ls", empty, "--nl").out.splitlines()]
    cells = list(csv.DictReader(io.StringIO(run("ls", empty, "--csv").out)))
    assert rows == lines
    assert [row["address"] for row in rows] == [f"{empty}#1/0/0", f"{empty}#1/0/1"]
    assert [row["stage"] for row in rows] == [None, "lowering"]
    assert [row["address"] for row in cells] == [row["address"] for row in rows]
    assert rows[1]["failure"] == "LoweringException/KeyError: no such key"


def test_an_address_restricts_what_is_listed(run: Run, empty: Path) -> None:
    failing(empty)
    (row,) = json.loads(run("ls", f"{empty}#1/0/0", "--json").out)
    assert row["status"] == "ok"


def test_a_recording_without_compiles_is_listed_too(run: Run, empty: Path) -> None:
    with Store.open(empty, write=True) as store, store.writer() as w:
        add_recording(w, exit_signal="SIGSEGV", status="died")
    (row,) = json.loads(run("ls", empty, "--json").out)
    assert (row["recording"], row["compile_id"], row["status"]) == (1, None, "died")
    assert "died by SIGSEGV" in run("ls", empty).out


def test_replays_are_counted_and_listed_on_request(run: Run, empty: Path) -> None:
    failing(empty)
    with Store.open(empty, write=True) as store, store.writer() as w:
        add_recording(w, kind="replay")
    result = run("ls", empty)
    assert f"{empty}#2" not in result.out
    assert f"1 replay in it: torchreel ls {empty} --all lists them." in result.err
    assert f"{empty}#2" in run("ls", empty, "--all").out
    assert f"{empty}#2" in run("ls", f"{empty}#2").out


def test_an_empty_store_says_how_to_fill_it(run: Run, empty: Path) -> None:
    result = run("ls", empty)
    assert result.status == 0
    assert f"torchreel record -o {empty} -- python PROGRAM.py" in result.err


def _numbers(out: str) -> list[int]:
    return [row["recording"] for row in json.loads(out)]


def test_a_page_has_the_newest_recordings(run: Run, empty: Path) -> None:
    with Store.open(empty, write=True) as store, store.writer() as w:
        for number in range(1, 8):
            add_recording(w, run=f"run {number}", kind="replay" if number % 3 == 0 else "program")
    result = run("ls", empty, "--limit", 2, "--json")
    assert _numbers(result.out) == [5, 7]
    older = f"3 older recordings in it: torchreel ls {empty} --before 5 --limit 2 lists the newest."
    assert older in result.err
    older_page = run("ls", empty, "--before", 5, "--limit", 2, "--json")
    assert _numbers(older_page.out) == [2, 4]
    assert "1 older recording in it" in older_page.err
    last = run("ls", empty, "--before", 2, "--json")
    assert _numbers(last.out) == [1]
    assert "older" not in last.err
    every = run("ls", empty, "--before", 5, "--limit", 2, "--all", "--json")
    assert _numbers(every.out) == [3, 4]
    assert f"torchreel ls {empty} --before 3 --limit 2 --all" in every.err
    assert "5 older recordings" not in run("ls", empty).err


def test_one_format_at_a_time(run: Run, empty: Path) -> None:
    result = run("ls", empty, "--json", "--csv")
    assert (result.status, result.out) == (2, "")
    assert "just one of" in result.err


def test_a_page_before_all_recordings_says_so(run: Run, empty: Path) -> None:
    result = run("ls", failing(empty), "--before", 1)
    assert result.status == 0
    said = [f"{empty} holds no recording before 1.", f"next: torchreel ls {empty}"]
    assert result.err.splitlines() == said


def test_csv_of_an_empty_store_has_its_head(run: Run, empty: Path, tmp_path: Path) -> None:
    head = run("ls", empty, "--csv").out
    assert head == run("ls", failing(empty), "--csv").out.splitlines(keepends=True)[0]
