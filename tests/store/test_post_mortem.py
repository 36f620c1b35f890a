"""Recordings whose process died without a word: real processes, really killed."""

import signal
import threading
from pathlib import Path

import pytest

from tests.store.processes import child, run_child
from tests.store.rows import add_compile, add_graph, add_recording, add_stage
from torchreel.store import Store, queries
from torchreel.store.failures.signature import crash_signature
from torchreel.store.post_mortem import settle

COMPILING = """
store = Store.open(path, write=True)
with store.writer() as w:
    recording = add_recording(w, status="running", pid=os.getpid())
    done = add_compile(w, recording, "0/0")
    compile_ = add_compile(w, recording, "0/1", status="running")
    add_stage(w, compile_, "dynamo", status="open")
    add_stage(w, compile_, "joint")
    add_stage(w, compile_, "lowering", partition="forward", status="open")
    add_stage(w, compile_, "pre_grad")
    graph = add_graph(w, compile_)
    for digest in "ab":
        w.add("checkpoints", compile_id=compile_, entry="aot", partition="forward", ordinal=0,
              digest=digest, graph_id=graph)
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_process_that_died_in_a_compile(path: Path, number: signal.Signals) -> None:
    assert run_child(COMPILING + f"os.kill(os.getpid(), {number.value})", path) == -number
    with Store.open(path, write=True) as store:
        (recording,) = queries.recordings(store)
        with store.writer() as w:  # as `torchreel record` does, that waited for its child
            w.update("recordings", recording.id, exit_signal=-number)
        assert settle(store) == 1
        done, crashed = queries.compiles(store, recording.id)
        failure = queries.failure_of(store, crashed)
    assert (done.status, crashed.status) == ("ok", "crashed")
    assert failure is not None
    assert failure.signature == crash_signature("lowering", "forward", number.name)
    assert (failure.stage, failure.partition) == ("lowering", "forward")
    assert number.name in failure.message
    with Store.open(path) as store:
        last = queries.checkpoints(store, crashed)[-1]
        assert (failure.checkpoint_id, last.digest) == (last.id, "b")
        assert queries.recordings(store)[0].status == "died"


def test_settling_again_adds_nothing(path: Path) -> None:
    run_child(COMPILING + "os.kill(os.getpid(), signal.SIGKILL)", path)
    with Store.open(path, write=True) as store:
        assert settle(store) == 1
        before = queries.failures(store)
        assert len(before) == 1
        assert settle(store) == 0
        assert queries.failures(store) == before


def test_a_process_that_lives_is_left_alone(path: Path) -> None:
    with child(COMPILING + "ready()", path), Store.open(path, write=True) as store:
        assert settle(store) == 0
        assert queries.recordings(store)[0].status == "running"
        assert queries.failures(store) == []


def test_two_that_settle_at_once_write_it_once(path: Path) -> None:
    run_child(COMPILING + "os.kill(os.getpid(), signal.SIGKILL)", path)
    with Store.open(path, write=True) as store:
        threads = [threading.Thread(target=settle, args=(store,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(queries.failures(store)) == 1


def test_a_compile_that_entered_no_stage_died_in_dynamo(store: Store) -> None:
    with store.writer() as w:
        add_compile(w, add_recording(w, status="running", pid=2**31 - 1), status="running")
    assert settle(store) == 1
    (failure,) = queries.failures(store)
    assert failure.signature == crash_signature("dynamo", "", None)


@pytest.mark.parametrize(
    ("exit_signal", "stages"), [(11, ["run"]), ("SIGABRT", ["run"]), (15, []), (9, []), (None, [])]
)
def test_a_fault_while_nothing_was_compiled_is_one_of_the_compiled_code(
    store: Store, exit_signal: object, stages: list[str]
) -> None:
    with store.writer() as w:
        recording = add_recording(w, status="running", pid=2**31 - 1, exit_signal=exit_signal)
        add_compile(w, recording, "0/0")
        last = add_compile(w, recording, "1/0")
    assert settle(store) == 1
    failures = queries.failures(store)
    assert [row.stage for row in failures] == stages
    assert all(row.compile_id == last for row in failures)
    assert {row.status for row in queries.compiles(store, recording)} == {"ok"}


def test_a_fault_before_anything_was_compiled_is_none_of_ours(store: Store) -> None:
    with store.writer() as w:
        add_recording(w, status="running", pid=2**31 - 1, exit_signal=11)
    assert settle(store) == 1
    assert queries.failures(store) == []


def test_graphs_of_a_dead_process_stay_readable(store: Store) -> None:
    with store.writer() as w:
        compile_ = add_compile(w, add_recording(w, status="running", pid=2**31 - 1))
        add_graph(w, compile_)
        add_stage(w, compile_, "joint", status="open")
    settle(store)
    row = queries.compile_by_id(store, compile_)
    assert len(queries.graphs(store, row)) == 1
    assert queries.open_stage(store, row) is not None
