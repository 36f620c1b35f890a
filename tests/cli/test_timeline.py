"""`torchreel export --format perfetto`: a trace in Chrome's format, whatever a store has in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import FAILED, failing
from tests.store.rows import add_compile, add_event, add_failure, add_recording, add_stage
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.store import Store, queries

EVIL = "<script>\u202e\x1b[31m"


def job(path: Path) -> Path:
    """Two ranks: a compile with another in it, one beside them, and one that never ended."""
    with Store.open(path, write=True) as store, store.writer() as w:
        for rank in (1, 0):
            recording = add_recording(w, rank=rank, run="job", started_ns=1_000, ended_ns=9_000_000)
            outer = add_compile(w, recording, "0/0", started_ns=1_000_000, ended_ns=5_000_000)
            add_stage(w, outer, "dynamo", started_ns=1_100_000, ended_ns=4_000_000)
            add_stage(w, outer, "lowering", started_ns=3_000_000, ended_ns=4_500_000)
            inner = add_compile(w, recording, "0/0/0", started_ns=2_000_000, ended_ns=2_500_000)
            add_stage(w, inner, "lowering", started_ns=2_100_000, ended_ns=2_200_000)
            beside = {"started_ns": 4_800_000, "ended_ns": 6_000_000, "frame_name": EVIL}
            add_compile(w, recording, "1/0", **beside)
            last = {"started_ns": 7_000_000, "ended_ns": None, "status": "failed"}
            cut = add_compile(w, recording, "2/0", **last)
            add_stage(w, cut, "lowering", started_ns=7_500_000, ended_ns=None, status="open")
            add_failure(w, recording, cut, FAILED, exception_type=EVIL, time_ns=8_000_000)
            data = {"outcome": "miss", "key": "k"}
            add_event(
                w, recording, 1, compile_id=outer, kind=CacheOutcome.kind, name="FxGraphCache",
                data=data, time_ns=3_500_000,
            )  # fmt: skip
    return path


@pytest.fixture
def trace(run: Run, empty: Path, tmp_path: Path) -> dict[str, Any]:
    result = run("export", job(empty), "--format", "perfetto", "-o", tmp_path / "out")
    assert result.status == 0, result
    file = tmp_path / "out" / "timeline.json"
    assert result.out == f"wrote {file}: 16 slices\n"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_it_has_the_form_of_a_trace(trace: dict[str, Any]) -> None:
    """The Trace Event Format: complete, instant and metadata events; times in microseconds."""
    assert trace["displayTimeUnit"] == "ms"
    required = {"X": {"ts", "dur", "cat", "args"}, "i": {"ts", "s", "cat", "args"}, "M": {"args"}}
    for event in trace["traceEvents"]:
        assert event.keys() == {"ph", "name", "pid", "tid", *required[event["ph"]]}
        assert type(event["pid"]) is type(event["tid"]) is int
        assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
    assert min(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X") == 0
    assert trace["otherData"]["epoch_ns"] == "1000000"


def test_slices_of_a_row_lie_in_one_another_or_apart(trace: dict[str, Any]) -> None:
    rows = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    assert sorted(rows) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for row in rows.values():
        open_until: list[float] = []
        for event in row:
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1]
            open_until.append(event["ts"] + event["dur"])
    names = [event["name"] for event in rows[1, 0]]
    assert names[:4] == ["0/0 f", "dynamo", "0/0/0 f", "lowering"]
    assert [event["name"] for event in rows[1, 1]] == ["1/0 <script>\\u202e\\x1b[31m"]


def test_ranks_are_processes_in_their_order(trace: dict[str, Any]) -> None:
    told = {
        (event["pid"], event["name"]): event["args"]
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    assert told[1, "process_name"]["name"].startswith("rank 1, recording 1: ")
    assert told[1, "process_sort_index"] == {"sort_index": 1}
    assert told[2, "process_sort_index"] == {"sort_index": 0}


def test_failures_and_lookups_are_marks(trace: dict[str, Any]) -> None:
    marks = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "i" and e["pid"] == 1}
    assert marks.keys() == {"FxGraphCache miss", "<script>\\u202e\\x1b[31m"}
    assert marks["FxGraphCache miss"]["ts"] == 2500.0
    open_one = next(e for e in trace["traceEvents"] if e["name"].startswith("2/0"))
    assert open_one["ts"] + open_one["dur"] == 8000.0


def test_timers_of_torch_have_a_row_of_their_own(run: Run, empty: Path, tmp_path: Path) -> None:
    begun = {"name": EVIL, "ph": "B", "ts": 2_000.5, "cat": "dynamo_timed", "tid": 0, "pid": 7}
    records: list[object] = [
        {**begun, "args": {"compile_id": "0/0", "nodes": 3}},
        {**begun, "ph": "E", "ts": 3_000.5},
        {**begun, "ph": "X", "tid": "many", "ts": 3_500, "dur": 10},
        {**begun, "ph": "q"},
        {**begun, "ts": None},
        ["no timer"],
    ]
    with Store.open(job(empty), write=True) as store, store.writer() as w:
        (row, *_) = queries.compiles(store, 1)
        for number, record in enumerate(records):
            payload = w.blob(json.dumps(record).encode())
            add_event(w, 1, 10 + number, compile_id=row.id, kind="chromium_event", payload=payload)
    assert run("export", f"{empty}#1", "--format", "perfetto", "-o", tmp_path / "out").status == 0
    found = json.loads((tmp_path / "out" / "timeline.json").read_text())["traceEvents"]
    (name,) = [event for event in found if event["args"].get("name") == "timers of torch"]
    timers = [event for event in found if event["tid"] == name["tid"] and event["ph"] != "M"]
    assert [(event["ph"], event["ts"], event["args"]) for event in timers] == [
        ("B", 1_000.5, {"compile_id": "0/0", "nodes": 3}),
        ("E", 2_000.5, {}),
        ("X", 2_500.0, {}),
    ]
    assert not any(character in timers[0]["name"] for character in "\u202e\x1b")


def test_one_compile_and_files_in_the_way(run: Run, empty: Path, tmp_path: Path) -> None:
    words = ("--format", "perfetto", "-o", tmp_path)
    assert "2 slices" in run("export", f"{job(empty)}#1/0/0/0", *words).out
    assert run("export", empty, *words).status == 2
    assert run("export", empty, *words, "--force").status == 0
    assert run("export", f"{empty}#9", *words, "--force").status == 2


def test_it_does_not_import_torch(empty: Path, tmp_path: Path) -> None:
    words = ["export", str(failing(empty)), "--format", "perfetto", "-o", str(tmp_path / "x")]
    code = (
        f"import sys; from torchreel.cli import app\napp({words!r}, standalone_mode=False)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
