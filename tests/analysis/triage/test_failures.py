"""What counts as a failure, and what is read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchreel
from tests.store.rows import add_compile, add_failure, add_graph, add_recording, add_stage
from tests.store.statements import statements
from torchreel.analysis.triage.failures import SeenFailure, failures_of
from torchreel.analysis.triage.summaries import triage
from torchreel.errors import StoreError
from torchreel.store import Json, Signature, Store, Writer, canonical_json
from torchreel.store.failures.signature import predicate_signature

FAILED = Signature(
    "exception", "lowering", "forward", ("KeyError",), ("torch._inductor.lowering:scatter",), "no"
)
LATER = Signature("exception", "run", "forward", ("ValueError",), (), "a consequence")
DOCUMENT: Json = {
    "backend": "inductor",
    "harness": "compile",
    "checkpoint": {
        "config": [],
        "graph": {
            "nodes": [
                {"name": "x", "op": "placeholder", "target": "x"},
                {"name": "y", "op": "call_method", "target": "scatter_", "args": [{"n": "x"}]},
            ]
        },
    },
}


def written(path: Path, **recording: object) -> Path:
    """A store with one failing compile, and much that is no failure of its own."""
    with Store.open(path, create=True) as store, store.writer() as w:
        number = add_recording(w, rank=3, **recording)
        w.add_many("environment", [{"recording_id": number, "key": "torch", "value": "2.13.0"}])
        row = add_compile(w, number, status="failed", started_ns=2)
        for stage, times in (("dynamo", 1), ("joint", 3), ("forward", 2)):
            graph = add_graph(w, row, stage=stage, call_nodes=7 * times)
            target = {"graph_id": graph, "depth": 0, "target": "op:aten.scatter.src"}
            w.add_many("graph_targets", [{**target, "count": times}])
        add_failure(w, number, row, FAILED, time_ns=5, message="no such key")
        add_failure(w, number, row, LATER, time_ns=6)
        add_failure(w, number, None, predicate_signature("recompiles > 3"), time_ns=7)
        replay = add_recording(w, kind="replay")
        add_failure(w, replay, add_compile(w, replay, status="failed"), FAILED)
    return path


def add_reduction(w: Writer, failure: int, document: Json, size: int, status: str) -> None:
    blob = w.blob(canonical_json(document))
    name = f"{size} {status}"
    w.add_many(
        "cases",
        [{"digest": name, "failure_id": failure, "call_nodes": size, "document": blob}],
    )
    w.add(
        "reductions", failure_id=failure, start_case=name, best_case=name, status=status,
        oracle_runs=1, cache_hits=0, seconds=1.0, started_ns=1,
    )  # fmt: skip


def read(path: Path) -> list[SeenFailure]:
    with Store.open(path) as store:
        return list(failures_of(store))


def test_the_first_failure_of_a_compile_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "run.db")
    (found,) = read(path)
    assert (found.address, found.signature) == (f"{path}#1/0/0", FAILED)
    assert (found.rank, found.torch, found.time_ns) == (3, "2.13.0", 5)
    assert (found.graph_size, found.smallest) == (7, None)
    assert found.calls == {"scatter": 3}


def test_the_smallest_case_that_can_be_read_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "run.db")
    with Store.open(path, write=True) as store, store.writer() as w:
        add_reduction(w, 1, DOCUMENT, 5, "fixpoint")
        add_reduction(w, 1, DOCUMENT, 4, "budget")
    (found,) = read(path)
    assert found.smallest is not None
    assert (found.smallest.size, found.smallest.is_minimal) == (4, False)
    assert found.smallest.form.calls == {"scatter": 1}


def test_a_crash_that_nobody_wrote_down_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.open(path, create=True) as store, store.writer() as w:
        number = add_recording(w, status="died", exit_signal="SIGSEGV")
        row = add_compile(w, number, status="crashed")
        add_stage(w, row, "codegen", partition="forward", status="open")
    (found,) = read(path)
    assert found.signature == Signature("crash", "codegen", "forward", signal="SIGSEGV")


def test_a_store_that_can_t_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "run.db")
    broken = tmp_path / "broken.db"
    broken.write_text("no store")
    found = triage([str(broken), str(path), str(tmp_path / "missing.db")])
    assert [group.addresses for group in found.groups] == [(f"{path}#1/0/0",)]
    assert [str(tmp_path) in text for text in found.unreadable] == [True, True]
    assert found.stores == 1


def test_without_a_store_or_the_baseline_there_is_no_answer(tmp_path: Path) -> None:
    path, missing = written(tmp_path / "run.db"), str(tmp_path / "missing.db")
    with pytest.raises(StoreError):
        triage([missing])
    with pytest.raises(StoreError):
        triage([str(path)], [missing])


def test_a_damaged_case_leaves_its_failure(tmp_path: Path) -> None:
    path = written(tmp_path / "run.db")
    with Store.open(path, write=True) as store, store.writer() as w:
        add_reduction(w, 1, ["no case"], 1, "fixpoint")
    found = triage([str(path)])
    assert [group.is_reduced for group in found.groups] == [False]
    assert "no case" in found.unreadable[0]


def test_a_group_says_who_saw_it_and_what_to_do(tmp_path: Path) -> None:
    old = written(tmp_path / "old.db", pid=1, run="a")
    new = written(tmp_path / "new.db", pid=2, run="b")
    with Store.open(new, write=True) as store, store.writer() as w:
        add_reduction(w, 1, DOCUMENT, 1, "fixpoint")
    (found,) = triage([str(old), str(new)]).groups
    assert (found.failures, found.processes, found.runs, found.ranks) == (2, 2, 2, (3,))
    assert (found.first_seen_ns, found.last_seen_ns, found.torch) == (5, 5, ("2.13.0",))
    assert (found.what, found.stage, found.message) == ("KeyError", "lowering", "no")
    assert (found.smallest, found.smallest_size) == (f"{new}#1/0/0", 1)
    assert found.next == ("torchreel", "export", f"{new}#1/0/0")
    assert found.is_new is False
    (alone,) = triage([str(old)]).groups
    assert alone.next == ("torchreel", "minify", f"{old}#1/0/0")


def test_many_recordings_take_no_more_statements_than_two(tmp_path: Path) -> None:
    numbers = []
    for many in (2, 40):
        path = tmp_path / f"{many}.db"
        for run in range(many):
            written(path, run=f"run {run}", pid=run + 1)
        with Store.open(path) as store, statements(store) as executed:
            assert len(list(failures_of(store))) == many
        numbers.append(len(executed))
    assert numbers[0] == numbers[1]


def test_only_what_the_baseline_lacks_is_new(tmp_path: Path) -> None:
    old = written(tmp_path / "old.db", pid=1)
    new = written(tmp_path / "new.db", pid=2)
    with Store.open(new, write=True) as store, store.writer() as w:
        add_failure(w, 1, add_compile(w, 1, "0/1", status="failed"), LATER)
    found = triage([str(new)], [str(old)])
    assert [(group.what, group.is_new) for group in found.groups] == [
        ("ValueError", True), ("KeyError", False),
    ]  # fmt: skip
    assert [group.failures for group in found.groups] == [1, 1]
    again = triage([str(old)], [str(old), str(new)])  # a store of the baseline is counted too
    assert [(group.what, group.is_new) for group in again.groups] == [("KeyError", False)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs that meet one real failure of the lowering, and one that meets another."""

    def scatter(x: torch.Tensor) -> torch.Tensor:
        pooled = torch.nn.functional.adaptive_max_pool1d(x, 0)
        return torch.scatter(pooled, -1, pooled, pooled)

    def around(x: torch.Tensor) -> object:
        return x.sin() @ x.mT.cos(), scatter(x.exp())

    def minimum(x: torch.Tensor) -> torch.Tensor:
        return torch.cummin(x[:0, 0], -5)[0]

    path = tmp_path_factory.mktemp("triage") / "run.db"
    with torchreel.record(path):
        for program, size in ((scatter, 4), (around, 6), (minimum, 4)):
            torch._dynamo.reset()
            with pytest.raises(Exception, match="AssertionError"):
                torch.compile(program)(torch.rand(size, 8))
    return path


def test_failures_of_a_recording_are_grouped_by_bug(recorded: Path) -> None:
    found = triage([str(recorded)])
    assert [(group.failures, group.level) for group in found.groups] == [
        (2, "signature"), (1, "signature"),
    ]  # fmt: skip
    both, other = found.groups
    assert both.place == "torch._inductor.lowering:scatter_reduce_"
    assert other.place == "torch._inductor.lowering:_validate_dim"
    assert both.smallest == both.addresses[0]


def fails_while_tracing(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(2, 3) @ x


def test_a_failure_of_dynamo_is_reduced_from_its_frame_on_trust(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    torch._dynamo.reset()  # frames are numbered from zero, whatever ran before
    with torchreel.record(path), pytest.raises(RuntimeError):
        torch.compile(fails_while_tracing, backend="eager")(torch.ones(2))
    (group,) = triage([str(path)]).groups
    assert group.next == ("torchreel", "minify", f"{path}#1/0/0", "--trust")


def test_a_copy_under_another_number_counts_once(tmp_path: Path) -> None:
    one = written(tmp_path / "one.db", run="a", pid=1)
    other = tmp_path / "other.db"
    with Store.open(other, create=True) as store, store.writer() as w:
        add_recording(w, run="b", pid=9)
    with Store.open(other, write=True) as store, store.writer() as w:
        number = add_recording(w, rank=3, run="a", pid=1)
        assert number == 2
        add_failure(w, number, add_compile(w, number, status="failed"), FAILED, time_ns=5)
    (group,) = triage([str(one), str(other)]).groups
    assert (group.failures, group.processes) == (1, 1)
