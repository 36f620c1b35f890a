"""Frames whose sizes an earlier process has seen (profile-guided optimisation) replay as frames."""

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

PROGRAM = """
import sys, torch

def f(x):
    return x.relu() * 2

compiled = torch.compile(f, backend="aot_eager")
for size in map(int, sys.argv[1:]):
    compiled(torch.randn(size))
"""


@pytest.mark.slow
def test_a_size_that_the_last_process_saw_change_is_dynamic_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    left = {name: text for name, text in os.environ.items() if "DISABLE_CACHES" not in name}
    job = {"TORCH_COMPILE_JOB_ID": "reel", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "caches")}
    program = [sys.executable, "program.py"]
    subprocess.run([*program, "3", "5"], cwd=tmp_path, env={**left, **job}, check=True)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--frames", "all"]
    subprocess.run([*command, "--", *program, "7"], cwd=tmp_path, env={**left, **job}, check=True)
    with Store.open(tmp_path / "run.db") as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        names = {event.name for event in queries.events(store, row, "artifact")}
        assert "get_local_code_state" in names
        assert queries.events(store, row, "create_symbol")
        verdict = replay(store, row, "frame", trust=True)
        assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
