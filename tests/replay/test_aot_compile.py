"""Functions that are compiled ahead of time (`torch.compile(F).aot_compile`) replay as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

PROGRAM = """
import torch

def scaled(x, by):
    return (x.sin() * by).sum(0)

given = ((torch.rand(3, 4), 2.5), {})
compiled = torch.compile(scaled, fullgraph=True, backend="inductor").aot_compile(given)
assert compiled(torch.rand(3, 4), 2.5).shape == (4,)

def called(x):
    return OWN(x) + 1

OWN = lambda x: x.cos()
options = {"guard_filter_fn": lambda guards: [True for _ in guards]}
try:
    torch.compile(called, fullgraph=True, options=options).aot_compile(((torch.rand(3),), {}))
except torch._dynamo.exc.PackageError as error:
    print(error)
"""


@pytest.mark.slow
def test_its_guards_and_their_failure_are_recorded_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--frames", "all"]
    subprocess.run([*command, "--", sys.executable, "program.py"], cwd=tmp_path, check=True)
    with Store.open(tmp_path / "run.db") as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        whole = [row for row in rows if row.backend == "aot_compile"]
        assert [(row.frame_name, row.status) for row in whole] == [
            ("scaled", "ok"), ("called", "failed"),
        ]  # fmt: skip
        assert queries.events(store, whole[0], "guards.guard")
        failure = queries.failure_of(store, whole[1])
        assert failure is not None
        assert (failure.stage, failure.exception_type) == (
            "guards", "torch._dynamo.exc.PackageError",
        )  # fmt: skip
        for row in whole:
            verdict = replay(store, row, "frame", trust=True)
            assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
            assert "guards.guard" in {found.kind for found in verdict.compared} or row is whole[1]
        (piece,) = (row for row in rows if queries.checkpoints(store, row) and row.id == rows[2].id)
        assert replay(store, piece).verdict == IDENTICAL
