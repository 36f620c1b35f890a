"""A page of recordings is read with a fixed number of statements, and whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.pushing import FAILED
from tests.store.rows import (
    add_compile,
    add_event,
    add_failure,
    add_graph,
    add_recording,
    add_stage,
)
from tests.store.statements import statements
from torchreel.analysis.listing import PageRange, RecordingPage, read
from torchreel.store import Store, Writer, canonical_json, parse

MISS = {"reason": "size", "guards": ["n > 3"], "source": None, "held": None}
BREAK = {"type": "print", "reason": "a call of print"}


def _add(w: Writer, number: int) -> None:
    """A recording with a compile of each kind that a listing says something of."""
    recording = add_recording(
        w, run=f"run {number}", pid=2**22 + 1, status="died", started_ns=number
    )
    w.add_many("environment", [{"recording_id": recording, "key": "marks", "value": "none"}])
    for place in ("guards", "graph"):
        lost = {"reason": "none", "place": place, "count": number, "message": ""}
        w.add_many("lost", [{"recording_id": recording, **lost}])
    failed = add_compile(w, recording, "0/0", status="failed", started_ns=10 * number)
    add_graph(w, failed, call_nodes=number)
    add_graph(w, failed, call_nodes=99)
    for time_ns in (number, number + 1):
        add_failure(w, recording, failed, FAILED, time_ns=time_ns, message=str(time_ns))
    hung = add_compile(w, recording, "1/0", status="hung")
    add_stage(w, hung, "dynamo", status="open")
    add_stage(w, hung, "lowering", status="open")
    skipped = add_compile(w, recording, "2/0", status="skipped")
    columns = dict.fromkeys(("fields", "name", "stage", "cause", "stack", "payload"))
    digest = w.blob(canonical_json({**columns, "seq": [7], "time_ns": [7], "data": [BREAK]}))
    pages = {"first_seq": 7, "last_seq": 7, "kinds": [["frame.graph_break", 1]], "digest": digest}
    w.add("event_pages", recording_id=recording, compile_id=skipped, **pages)
    again = add_compile(w, recording, "3/1", status="running")
    add_event(w, recording, 9, compile_id=again, kind="frame.cache_miss", data=MISS)


def _listing(store: Store, limit: int) -> tuple[RecordingPage, int]:
    with statements(store) as executed:
        found = read(store, parse(store.target), PageRange(limit))
    return found, len(executed)


@pytest.mark.parametrize("where", ["file", "server"])
def test_a_page_takes_as_many_statements_as_a_recording(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / "run.db") if where == "file" else request.getfixturevalue("url")
    with Store.open(target, write=True, create=True) as store:
        with store.writer() as w:
            for number in range(1, 31):
                _add(w, number)
        _listing(store, 1)  # which asks what tables there are
        one, few = _listing(store, 1)
        found, many = _listing(store, 20)
    assert few == many
    assert (one.older, found.older, found.replays) == (29, 10, 0)
    assert [row.id for row in found.recordings] == list(range(11, 31))
    for row in found.recordings:
        failed, hung, skipped, again = found.compiles[row.id]
        assert found.failures[failed.id].message == str(row.id)
        assert found.graphs[failed.id].call_nodes == row.id
        assert found.stages[hung.id].stage == "lowering"
        assert found.skipped == {**found.skipped, skipped.id: "print"}
        assert again.status == "unknown"
        assert found.lost[row.id] == 2 * row.id
        assert str(found.causes[row.id]) == "1 recompile for 1 cause, 1 graph break"
    assert found.latest_failing is not None
    assert found.latest_failing.place == "30/0/0"
