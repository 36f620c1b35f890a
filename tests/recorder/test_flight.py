"""`flight` mode: what failed is kept whole, of the rest a summary."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import torchreel
from tests.recorder.conftest import RecordedLog
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.recorder.event_log import flight
from torchreel.recorder.event_log.flight import in_sample
from torchreel.recorder.settings import Settings
from torchreel.store import Store, queries
from torchreel.store.records import Compile

Fly = Callable[..., RecordedLog]


@pytest.fixture
def fly(path: Path) -> Iterator[Fly]:
    """Record what a function compiles in flight mode; it may fail."""
    opened: list[Store] = []

    def run(program: Callable[[], object], mode: str = "flight", **settings: object) -> RecordedLog:
        with (
            torchreel.record(path, mode, settings=Settings(**settings)),  # type: ignore[arg-type]
            contextlib.suppress(Exception),
        ):
            program()
        opened.append(Store.open(path))
        return RecordedLog(opened[-1])

    yield run
    for store in opened:
        store.close()


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def material(log: RecordedLog, compile: Compile) -> dict[str, int]:
    """How much of each sort a compile left, besides its row and its stages."""
    return {
        "graphs": len(queries.graphs(log.store, compile)),
        "checkpoints": len(queries.checkpoints(log.store, compile)),
        "events": sum(queries.event_counts(log.store, compile).values()),
    }


NOTHING = {"graphs": 0, "checkpoints": 0, "events": 0}


def test_a_compile_that_goes_well_leaves_its_summary(fly: Fly, path: Path) -> None:
    log = fly(lambda: torch.compile(sine, backend="aot_eager")(torch.ones(3)))
    compile = log.compile
    assert (compile.status, compile.frame_name, compile.backend) == ("ok", "sine", "aot_eager")
    assert compile.ended_ns is not None
    assert compile.ended_ns > compile.started_ns
    stages = log.stages()
    assert {status for _, _, status in stages} == {"ok"}
    assert {"dynamo", "pre_grad", "forward", "guards"} <= {stage for stage, _, _ in stages}
    assert material(log, compile) == NOTHING
    assert log.lost() == []
    with log.store.connect() as connection:
        from sqlalchemy import text

        sizes = connection.execute(text("SELECT sum(size) FROM blobs")).scalar()
    assert sizes is not None
    assert sizes < 500  # the source of the frame


def refuse(gm: torch.fx.GraphModule, inputs: object) -> object:
    raise ValueError("no")


def test_a_compile_that_fails_is_kept_whole(fly: Fly) -> None:
    def program() -> None:
        torch.compile(sine, backend="eager")(torch.ones(3))
        torch.compile(lambda x: x.cos() * 2, backend=refuse)(torch.ones(3))

    log = fly(program)
    good, bad = log.compiles
    assert material(log, good) == NOTHING
    kept = material(log, bad)
    assert kept["graphs"] == kept["checkpoints"] == 1
    assert kept["events"] > 0
    (failure,) = queries.failures(log.store)
    (checkpoint,) = queries.checkpoints(log.store, bad)
    (graph,) = queries.graphs(log.store, bad)
    assert (failure.compile_id, failure.checkpoint_id) == (bad.id, checkpoint.id)
    assert checkpoint.graph_id == graph.id
    doc = CheckpointDoc.from_bytes(log.store.read_blob(checkpoint.digest))
    assert [node.name for node in doc.graph.nodes] == ["l_x_", "cos", "mul", "output"]
    assert log.lost() == []


def test_a_failing_backward_of_a_compile_that_went_well_is_kept(fly: Fly) -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad.cos()

    def no_backward(gm: torch.fx.GraphModule, inputs: object) -> object:
        raise RuntimeError("no backward")

    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=no_backward)

    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=False):
            torch.compile(Bad.apply, backend=backend)(x).sum().backward()

    log = fly(program)
    compile = log.compiles[-1]
    (failure,) = queries.failures(log.store)
    assert "no backward" in failure.message
    assert compile.status == "failed"
    assert [row.id for row in queries.checkpoints(log.store, compile)] == [failure.checkpoint_id]


def test_a_slow_compile_is_kept(fly: Fly) -> None:
    def slow(gm: torch.fx.GraphModule, inputs: object) -> object:
        time.sleep(2.0)
        return gm.forward

    def program() -> None:
        torch.compile(sine, backend="eager")(torch.ones(3))
        torch.compile(lambda x: x.cos(), backend=slow)(torch.ones(3))

    torch.compile(sine, backend="eager")(torch.ones(3))  # imports of Dynamo are not its fault
    torch._dynamo.reset()
    quick, kept = (log := fly(program, slow_compile=1.5)).compiles
    assert (quick.status, kept.status) == ("ok", "ok")
    assert material(log, quick) == NOTHING
    assert material(log, kept)["checkpoints"] == 1
    assert material(log, kept)["graphs"] == 1


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def test_a_usual_restart_is_nothing_odd(fly: Fly) -> None:
    log = fly(lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))
    statuses = [row.status for row in log.compiles]
    assert statuses.count("restarted") >= 1
    assert {"restarted", "ok"} == set(statuses)
    assert [material(log, row) for row in log.compiles] == [NOTHING] * len(statuses)


def test_an_odd_restart_is_kept(fly: Fly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchreel.recorder.event_log.failures.USUAL_RESTARTS", ())
    log = fly(lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))
    for row in log.compiles:
        assert (material(log, row)["events"] > 0) == (row.status == "restarted")


def test_the_last_checkpoints_stay_until_the_end(
    fly: Fly, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "_RECENT", 2)
    seen: list[list[int]] = []

    def program() -> None:
        for n in range(5):
            torch._dynamo.reset()
            torch.compile(lambda x, n=n: x * n, backend="eager")(torch.ones(3))
        time.sleep(0.5)
        with Store.open(path) as store:
            rows = queries.compiles(store, 1)
            seen.append([len(queries.checkpoints(store, row)) for row in rows])

    log = fly(program)
    assert seen == [[0, 0, 0, 1, 1]]
    assert [material(log, row) for row in log.compiles] == [NOTHING] * 5


def test_memory_is_bounded(fly: Fly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "_MOST_EVENTS", 3)
    log = fly(lambda: torch.compile(sine, backend=refuse)(torch.ones(3)))
    assert material(log, log.compile)["checkpoints"] == 1
    assert ("more events than flight mode holds", "flight") in log.lost()
    held = flight.Held()
    assert (len(held.events), held.payloads) == (0, 0)


def three() -> None:
    for function in (torch.sin, torch.cos, torch.tan):
        torch.compile(lambda x, f=function: f(x), backend="eager")(torch.ones(3))


def test_a_sample_is_the_same_one_every_time(fly: Fly) -> None:
    names = [f"{n}/0" for n in range(1000)]
    chosen = [name for name in names if in_sample(name, 0.1)]
    assert 60 < len(chosen) < 140
    assert chosen == [name for name in names if in_sample(name, 0.1)]
    assert set(chosen) <= {name for name in names if in_sample(name, 0.2)}
    assert all(in_sample(name, 1.0) for name in names)
    assert not any(in_sample(name, 0.0) for name in names)


def test_outside_of_the_sample_there_is_a_summary_only(fly: Fly) -> None:
    share = 0.5
    log = fly(three, mode="full", sample=share)
    rows = log.compiles
    assert len(rows) == 3
    inside = [in_sample(row.compile_id, share) for row in rows]
    assert set(inside) == {True, False}, "the test needs some of each"
    assert [material(log, row)["checkpoints"] == 1 for row in rows] == inside
    assert [material(log, row)["graphs"] > 0 for row in rows] == inside
    assert [row.status for row in rows] == ["ok"] * 3
    (lost,) = queries.lost(log.store, 1)
    assert (lost.reason, lost.place, lost.count) == (
        "not in the sample",
        "compile",
        inside.count(False),
    )


def test_every_column_that_names_a_blob_is_known_to_retention() -> None:
    from torchreel.recorder.event_log import retention
    from torchreel.store.schema import metadata

    names = {"digest", "text_digest", "payload", "frame_source", "traceback", "tensors"}
    # Rows with a digest of their own, which is no blob's.
    named_by_digest = ("blobs", "configs", "cases", "origins", "kinds")
    found = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if column.name in names and table.name not in named_by_digest
    }
    assert found == set(retention._DIGESTS)
