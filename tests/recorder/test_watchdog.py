"""Compiles that take longer than they may."""

import time
from pathlib import Path

import torch

import torchreel
from torchreel.store import Store, queries


def test_a_compile_that_hangs_is_written_down_and_goes_on(path: Path) -> None:
    def slow_backend(gm: torch.fx.GraphModule, inputs: object) -> object:
        deadline = time.monotonic() + 30
        while not seen() and time.monotonic() < deadline:
            time.sleep(0.1)
        return gm.forward

    def seen() -> bool:
        with Store.open(path) as store:
            return queries.compiles(store, 1)[-1].status == "hung"

    with torchreel.record(path, compile_timeout=2):
        # A process's first compile is slow, on a busy machine it may count as hung itself.
        torch.compile(lambda x: x.cos(), backend="eager")(torch.zeros(2))
        out = torch.compile(lambda x: x.sin(), backend=slow_backend)(torch.zeros(2))
    assert out.tolist() == [0.0, 0.0]
    with Store.open(path) as store:
        compile = queries.compiles(store, 1)[-1]
        failure = queries.failures(store)[-1]
        (checkpoint,) = queries.checkpoints(store, compile)
        (event,) = [e for e in queries.events(store, compile) if e.kind == "hang"]
        assert event.payload is not None
        stacks = store.read_blob(event.payload)
    assert (failure.failure_class, failure.stage) == ("hang", "pre_grad")
    assert failure.checkpoint_id == checkpoint.id
    assert compile.status == "hung"
    assert compile.ended_ns is not None
    assert b"slow_backend" in stacks


def test_a_quick_compile_is_no_hang(path: Path) -> None:
    with torchreel.record(path, compile_timeout=60):
        torch.compile(lambda x: x.sin(), backend="eager")(torch.zeros(2))
    with Store.open(path) as store:
        assert queries.failures(store) == []
