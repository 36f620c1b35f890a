"""The words that `torchreel replay` ends with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PROGRAM = """
import torch

@torch.compiler.allow_in_graph
def own(x):
    return x.sin() + 1

torch.compile(lambda x: own(x) * 2, backend="aot_eager")(torch.ones(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("frames", ["all", "none"])
def test_a_graph_that_is_refused_leads_to_its_frame_where_that_was_kept(
    tmp_path: Path, run: Run, frames: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TORCHREEL": "full:run.db", "TORCHREEL_FRAMES": frames}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True)
    address = f"{tmp_path / 'run.db'}#1/0/0"
    refused = run("replay", address)
    assert refused.status == 3
    assert refused.out.startswith("refused: ")
    wanted = f"next: torchreel replay {address} --entry frame --trust"
    assert (refused.err.splitlines()[-1] == wanted) is (frames == "all")
    if frames == "all":
        replayed = run("replay", address, "--entry", "frame", "--trust")
        assert (replayed.status, replayed.out.splitlines()[-1]) == (0, "identical")


@pytest.mark.slow
def test_a_table_of_replays_has_each_reason_once_below_it(tmp_path: Path, run: Run) -> None:
    other = "torch.compile(lambda x: x.sin(), backend='aot_eager')(torch.ones(3))"
    (tmp_path / "program.py").write_text(f"{PROGRAM}{PROGRAM}{other}\n")
    environment = {**os.environ, "TORCHREEL": "full:run.db"}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True)
    lines = run("replay", tmp_path / "run.db", "--all").out.splitlines()
    assert lines[0].split()[-1] == "recording"
    reasons = [line for line in lines if "no portable form" in line]
    assert [line.partition(": ")[0] for line in reasons] == ["1/0/0 graph, 1/1/0 graph"]
    assert lines[-1] == "1 identical, 2 refused"


@pytest.mark.slow
def test_the_process_that_compares_imports_no_torch(tmp_path: Path) -> None:
    """Its child has to; here it would be a second or more of every replay."""
    path = tmp_path / "run.db"
    code = f"""
import torch, torchreel
with torchreel.record({str(path)!r}):
    torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.ones(3))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    code = f"""
import sys
from torchreel.cli import app
try: app(["replay", {str(path)!r}])
except SystemExit as ended: assert not ended.code
assert "torch" not in sys.modules
"""
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "identical"
