"""The event log: batches, commits, and what a bad row, a lock or a full buffer costs."""

import gc
import os
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from torchreel.events.event import EventType
from torchreel.recorder import failing_open
from torchreel.recorder.event_log import log, rows, stacks
from torchreel.recorder.event_log.log import EventLog
from torchreel.recorder.event_log.rows import Add, Blob, Config, Ref, Update, plain
from torchreel.recorder.failing_open import losses
from torchreel.recorder.probes import noted_events
from torchreel.recorder.recorder import Recorder, RecordingOptions
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import canonical_json, parse_json


@pytest.fixture(autouse=True)
def _no_losses() -> None:
    losses.reset()


class Tested(EventType, frozen=True):
    """A test."""

    kind = "k"

    values: object = None
    more: object = None


def recording_row() -> Add:
    columns = {"run": "r", "kind": "program", "pid": os.getpid(), "argv": ["x"], "cwd": "/"}
    return Add("recordings", {**columns, "started_ns": 1, "status": "running"})


def event(recording: Ref, seq: int, **columns: object) -> Add:
    known = {"recording_id": recording, "seq": seq, "kind": "k", "name": "", "time_ns": 1}
    return Add("events", {**known, "data": {}, **columns})


def sequences(path: Path) -> list[int]:
    with Store.open(path) as store:
        return [row.seq for row in queries.events(store, queries.recording(store, 1))]


def test_what_is_committed_is_on_disk(path: Path) -> None:
    event_log = EventLog(str(path), recording_row())
    for seq in range(10):
        event_log.append(event(event_log.recording, seq, payload=Blob(f"payload {seq}")))
    assert event_log.commit("test")
    assert sequences(path) == list(range(10))
    event_log.close()


def test_a_row_that_can_not_be_written_costs_only_itself(path: Path) -> None:
    event_log = EventLog(str(path), recording_row())
    event_log.append(event(event_log.recording, 1))
    event_log.append(event(event_log.recording, 1))
    event_log.append(Update("stages", Ref(), {"status": "ok"}))
    event_log.append(event(event_log.recording, 2))
    assert event_log.commit("test")
    event_log.close()
    assert sequences(path) == [1, 2]
    with Store.open(path) as store:
        found = [(row.reason, row.place, row.count) for row in queries.lost(store, 1)]
    assert found == [("IntegrityError", "event log.row", 1), ("Orphan", "event log.row", 1)]


def test_the_collector_forgets_an_event_that_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(RecordingOptions(str(path)))
    waiting: list[rows.Row] = []
    monkeypatch.setattr(recorder.event_log, "note", waiting.append)
    entry = recorder.add_compile("0/0", 0)
    recorder.note(Tested(("a", 1), None), "name", payload="text", entry=entry)
    recorder.note(Tested(["a"], None), "name", entry=entry)
    gc.collect(1)
    gc.collect(1)
    assert [gc.is_tracked(event) for event in waiting] == [False, True]
    first = rows.NewEvent.of(waiting[0])
    assert (first.compile, first.payload, first.stack) == (entry.number, "text", None)
    assert first.data() == {"values": ("a", 1), "more": None}
    recorder.event_log.close()


@pytest.mark.parametrize("mode", ["full", "flight"])
def test_an_open_compile_is_known_however_many_come_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(log, "_MOST_COMPILES", 3)
    monkeypatch.setattr(log, "_MOST_LOOKED_AT", 2)
    recorder = Recorder(RecordingOptions(str(path), mode=mode))
    over = recorder.add_compile("0/0", 0)
    outer = recorder.add_compile("1/0", 0)
    span = recorder.enter_frame(outer)
    for number in range(2, 10):
        recorder.add_compile(f"{number}/0", 0)
    recorder.note(Tested(), "outer", entry=outer)
    recorder.note(Tested(), "over", entry=over)
    recorder.event_log.keep(outer)
    recorder.leave(span)
    recorder.event_log.close()
    with Store.open(path) as store:
        recording = queries.recording(store, 1)
        found = [(row.name, row.compile_id) for row in queries.events(store, recording)]
        lost = [(row.reason, row.count) for row in queries.lost(store, 1)]
    known = {"outer": 2, "over": None} if mode == "full" else {"outer": 2}
    assert dict(found[-len(known) :]) == known
    assert ("of a compile that is long over", 1) in lost


def test_the_thread_ends_when_idle_and_comes_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_INTERVAL", 0.01)
    written = EventLog(str(path), recording_row())
    written.append(event(written.recording, 1))
    deadline = time.monotonic() + 30
    while "torchreel-event log" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    written.append(event(written.recording, 2))
    written.close()
    assert sequences(path) == [1, 2]


def test_a_locked_store_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchreel.store.database.BUSY_TIMEOUT_MS", 50)
    written = EventLog(str(path), recording_row())
    assert written.commit("test")
    with Store.open(path, write=True) as other, other.writer():
        written.append(event(written.recording, 1))
        written.hurry()
        time.sleep(0.2)
    assert written.commit("test")
    written.close()
    assert sequences(path) == [1]
    assert losses.snapshot() == []


def test_the_first_rows_are_waited_for_a_moment_only(path: Path) -> None:
    Store.open(path, create=True).close()
    written = EventLog(str(path), recording_row())
    written.patience = log.Patience(begin=0.1)
    written.append(event(written.recording, 1))
    with Store.open(path, write=True) as other, other.writer():
        began = time.monotonic()
        written.begin()
        assert 0.09 < time.monotonic() - began < 2
    assert not written.off
    assert written.commit("test")
    written.close()
    assert sequences(path) == [1]
    assert losses.snapshot() == []


def test_a_store_that_stays_locked_switches_the_recording_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchreel.store.files.direct._BUSY_TIMEOUT_MS", 1)
    monkeypatch.setattr(log, "_INTERVAL", 0.01)
    written = EventLog(str(path), recording_row())
    assert written.commit("test")
    with Store.open(path, write=True) as other, other.writer():
        assert not written.commit("test")
    assert written.off
    assert ("recording switched off: LockedStore", "event log") in {
        (reason, place) for reason, place, _, _ in losses.snapshot()
    }
    written.append(event(written.recording, 1))
    written.close()
    assert sequences(path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "waits"), [("program", False), ("replay", True)])
def test_a_replay_waits_at_its_end_until_all_is_written(path: Path, kind: str, waits: bool) -> None:
    """Without its recording there is no verdict; a program is kept for two seconds at most."""
    recorder = Recorder(RecordingOptions(str(path), kind=kind))
    assert recorder.event_log.commit("test")
    with Store.open(path, write=True) as other, other.writer():
        recorder.event_log.append(event(recorder.event_log.recording, 1))
        closing = threading.Thread(target=recorder.close)
        closing.start()
        closing.join(3.5)
        assert closing.is_alive() is waits
    closing.join()
    if waits:
        assert sequences(path) == [1]


def test_no_store_at_all_switches_it_off_at_once(tmp_path: Path) -> None:
    written = EventLog(str(tmp_path / "no" / "\0"), recording_row())
    assert not written.commit("test")
    assert written.off


def test_a_full_buffer_drops_rows_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MOST_OPERATIONS", 3)
    monkeypatch.setattr(EventLog, "_start", lambda self: None)
    written = EventLog(str(path), recording_row())
    for seq in range(5):
        written.append(event(written.recording, seq))
    assert losses.snapshot() == [("buffer full", "event log", 2, "")]


def test_a_failing_write_is_tried_row_by_row(path: Path) -> None:
    def once(place: str) -> None:
        failing_open.inject = None
        raise OSError("for a moment")

    written = EventLog(str(path), recording_row())
    failing_open.inject = once
    assert written.commit("test")
    written.close()
    with Store.open(path) as store:
        assert len(queries.recordings(store)) == 1


def test_two_event_logs_write_into_one_store(path: Path) -> None:
    logs = [EventLog(str(path), recording_row()) for _ in range(2)]
    for seq in range(20):
        for each in logs:
            each.append(event(each.recording, seq))
    assert all(each.commit("test") for each in logs)
    for each in logs:
        each.close()
    with Store.open(path) as store:
        for recording in queries.recordings(store):
            assert [row.seq for row in queries.events(store, recording)] == list(range(20))


def test_a_config_is_stored_once(path: Path) -> None:
    entry = {"module": "inductor", "key": "k", "value": "text", "portable": True}
    written = EventLog(str(path), recording_row())
    compile = {"recording_id": written.recording, "compile_id": "0/0", "attempt": 0}
    frame = {"frame_name": "", "frame_file": "", "frame_line": 0, "status": "ok", "started_ns": 1}
    for _ in range(2):
        written.append(Add("compiles", {**compile, **frame, "config_id": Config([entry])}))
    assert written.commit("test")
    written.close()
    with Store.open(path) as store:
        first, second = queries.compiles(store, 1)
        assert first.config_id == second.config_id
        assert [found.value for found in queries.config(store, first.config_id)] == ["text"]


def test_anything_has_a_plain_form() -> None:
    value = {1: float("nan"), "set": {2, 1}, "tuple": (1.5, None), "object": Ellipsis}
    assert plain(value) == {"1": "nan", "set": [1, 2], "tuple": [1.5, None], "object": "Ellipsis"}


def test_kinds_that_claim_to_be_exact_are(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What orjson makes of real events and graphs is what json makes of them."""
    pages: list[tuple[bytes, bytes]] = []
    write = rows.write_page

    def both(columns: Any, fields: Any, default: Any, *, exact: bool = False) -> bytes:
        page = write(columns, fields, default, exact=exact)
        if exact:
            pages.append((page, write(columns, fields, default)))
        return page

    monkeypatch.setattr(rows, "write_page", both)
    seen: set[str] = set()
    note = Recorder.note

    def see(self: Recorder, event: EventType, *args: Any, **kwargs: Any) -> int:
        seen.add(event.kind)
        return note(self, event, *args, **kwargs)

    monkeypatch.setattr(Recorder, "note", see)
    layer, views = torch.nn.Linear(4, 4), torch.arange(24.0).view(6, 4)
    with torchreel.record(path):
        compiled = torch.compile(
            lambda x, s: layer(x * s).relu(), backend="aot_eager", dynamic=True
        )
        compiled(views[1:], 0.5).sum().backward()
    exact = {event_type.kind for event_type in noted_events() if event_type.exact}
    assert exact
    assert exact <= seen
    for fast, slow in pages:
        assert fast == slow
    with Store.open(path) as store:
        (compile,) = queries.compiles(store, 1)
        graphs = queries.graphs(store, compile)
        assert graphs
        for graph in graphs:
            data = store.read_blob(graph.digest)
            assert data == canonical_json(parse_json(data))


def test_frames_of_code_without_end_are_not_all_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacks, "_MOST", 3)
    tree = stacks.Stacks()
    for number in range(5):
        tree.add(
            traceback.StackSummary.from_list(
                [("main.py", 1, "main", ""), (f"<{number}>", 1, "f", "")]
            )
        )
    frames = list(tree.take())
    assert len(tree._ids) <= 4
    # Each row has its own number, and each caller is among the rows before it.
    assert [frame[0] for frame in frames] == list(range(1, len(frames) + 1))
    assert all(caller is None or caller < number for number, caller, *_ in frames)
    assert {file for _, _, file, *_ in frames} == {"main.py", *(f"<{n}>" for n in range(5))}
