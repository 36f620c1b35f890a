"""Frames that Inductor compiled, with the caches of torch as any program has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.replay.compare.verdict import IDENTICAL
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
