"""A search that runs out of budget: the best so far is exported, and the next run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PROGRAM = """
import torch

def fn(x):
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1

torch.compile(fn)(torch.randn(2, 3))
"""


@pytest.mark.slow
def test_a_spent_budget_loses_nothing(run: Run, tmp_path: Path) -> None:
    program, store, place = tmp_path / "fails.py", tmp_path / "run.db", tmp_path / "repro"
    program.write_text(PROGRAM)
    assert run("record", "-o", store, "--", sys.executable, program).status == 1

    cut_short = run("minify", store, "-o", place, "--limit-runs", 12, "--checks", 1)
    assert cut_short.status == 4, cut_short.err
    assert "The budget is spent" in cut_short.err
    assert (place / "repro.py").exists()
    again = f"next: torchreel minify --force {store} -o {place} --limit-runs 12 --checks 1"
    assert cut_short.err.splitlines()[-1] == again
    assert cut_short.err.count("next: ") == 1

    done = run("minify", store, "-o", place, "--force", "--checks", 1)
    assert done.status == 0, done.err
    assert "-> 1 call node" in done.out
    assert "verified in a fresh process" in done.err
    assert "torch.scatter(" in (place / "repro.py").read_text()
    assert "### Versions" in (place / "issue.md").read_text()
