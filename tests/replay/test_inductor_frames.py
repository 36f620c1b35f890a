"""Frames that Inductor compiled, with the caches of torch as any program has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.replay.compare.lanes import cache_hits
from torchreel.replay.compare.verdict import IDENTICAL, REFUSED
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

PLAIN = """
import torch

def f(w, x):
    return (x @ w).sin()

torch.compile(f)(torch.randn(4, 4, requires_grad=True), torch.randn(2, 4))
"""
BACKWARD_THAT_FAILS = """
import torch
torch._dynamo.config.capture_scalar_outputs = True

def f(w, x, lens):
    n = lens.max().item()
    return torch.nn.functional.pad((x @ w)[:, :n], (0, 8 - n)).sin()

w = torch.randn(8, 8, requires_grad=True)
torch.compile(f, fullgraph=True)(w, torch.randn(2, 8), torch.tensor([3, 5]))
"""
TWO = """
import torch

def first(x):
    return x.sin() + 1

def second(w, x):
    return torch.nn.functional.dropout(x @ w, 0.5).cos()

def breaks(x):
    torch._dynamo.graph_break()
    return x.cos()

torch.compile(first)(torch.randn(4))
torch.compile(breaks)(torch.randn(4))
torch.compile(second)(torch.randn(4, 4, requires_grad=True), torch.randn(2, 4)).sum().backward()
"""
FROZEN = """
import torch, torch._inductor.config
torch._inductor.config.freezing = True
model = torch.compile(torch.nn.Linear(4, 4).eval())
with torch.no_grad():
    model(torch.randn(2, 4))
"""
HIT_THEN_MISS = """
import os, sys, torch

def f(w, x):
    return (x @ w).sin().sum()

def run(dtype):
    compiled(torch.randn(4, 4, dtype=dtype, requires_grad=True), torch.randn(2, 4, dtype=dtype))

compiled = torch.compile(f)
run(torch.float32)
if os.environ.get("TORCHREEL"):
    run(torch.float64)
"""
PUT_OFF = "eager_compile_backwards_failure"


def record(folder: Path, program: str) -> Path:
    """Record a program in a process of its own, whose caches are empty and used."""
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--frames", "all"]
    left = {name: text for name, text in os.environ.items() if "DISABLE_CACHES" not in name}
    left["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "caches")
    subprocess.run([*command, "--", sys.executable, "program.py"], cwd=folder, env=left, check=True)
    return folder / "run.db"


@pytest.mark.slow
@pytest.mark.parametrize("program", [PLAIN, BACKWARD_THAT_FAILS])
def test_a_compile_of_inductor_replays_from_its_frame_and_its_graph(
    tmp_path: Path, program: str
) -> None:
    with Store.open(record(tmp_path, program)) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        events = queries.events(store, row)
        (metrics,) = (event for event in events if event.kind == "compilation_metrics")
        assert "'inductor_fx_local_cache_miss_count': 0" not in str(metrics.data)
        assert any(event.name == PUT_OFF for event in events) == (program is BACKWARD_THAT_FAILS)
        for entry in ("graph", "frame"):
            verdict = replay(store, row, entry, trust=entry == "frame")
            assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"


@pytest.mark.slow
def test_a_frame_replays_alone_that_was_not_the_first_of_its_process(tmp_path: Path) -> None:
    """Inductor traces its libraries of patterns once in a process: the second finds them traced.

    Its metrics count the graph breaks of the process.
    """
    with Store.open(record(tmp_path, TWO)) as store:
        for row in queries.compiles(store, queries.recordings(store)[0].id):
            verdict = replay(store, row, "frame", trust=True)
            assert verdict.verdict == IDENTICAL, f"{row.place} {verdict}\n{verdict.difference}"


@pytest.mark.slow
def test_frames_replay_whose_code_came_from_a_cache(tmp_path: Path) -> None:
    """Bytecode and guards are compared; a later compile traces the patterns a hit does without."""
    environment = {
        **{name: text for name, text in os.environ.items() if "DISABLE_CACHES" not in name},
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "caches"),
    }
    (tmp_path / "program.py").write_text(HIT_THEN_MISS)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True)
    with Store.open(record(tmp_path, HIT_THEN_MISS)) as store:
        hit, miss = queries.compiles(store, queries.recordings(store)[0].id)
        assert [bool(cache_hits(store, row)) for row in (hit, miss)] == [True, False]
        for row in (hit, miss):
            verdict = replay(store, row, "frame", trust=True)
            assert verdict.verdict == IDENTICAL, f"{row.place} {verdict}\n{verdict.difference}"
            compared = {one.kind: one.identical for one in verdict.compared}
            assert compared["guards.guard"] > 5
            assert compared["output_graph.bytecode"] == 2
            assert compared["guards.ambient"] == 1


@pytest.mark.slow
def test_a_frame_of_a_frozen_model_lacks_the_weights_that_are_constants(tmp_path: Path) -> None:
    """A bias of four elements stands in the code: it is there from the graph, not the frame."""
    with Store.open(record(tmp_path, FROZEN), write=True) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        graph, frame = replay(store, row, "graph"), replay(store, row, "frame", trust=True)
    assert (graph.verdict, graph.detail) == (IDENTICAL, "")
    assert frame.verdict == REFUSED
    assert frame.detail.startswith("the model is frozen")
