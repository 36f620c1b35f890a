"""`torchreel releases` with an environment that is named, from a recording to the issue."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Run

# torch 2.14 fixed it: see 'until' in examples/demo.py.
PROGRAM = """
import torch

def fn(x):
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1

torch.compile(fn)(torch.randn(2, 3))
"""
HERE = version("torch").partition("+")[0]


@pytest.mark.slow
@pytest.mark.skipif(HERE >= "2.14", reason="this torch does not have the bug")
def test_a_release_with_the_failure_is_named_in_the_issue(run: Run, tmp_path: Path) -> None:
    program, store = tmp_path / "fails.py", tmp_path / "run.db"
    program.write_text(PROGRAM)
    assert run("record", "-o", store, "--", sys.executable, program).status == 1

    named = ("--python", sys.executable, "--runs", 2)
    found = run("releases", store, *named, "--release", "2.99")
    assert found.status == 0, found.err
    assert f"{HERE}  the same failure     2" in found.out
    assert "2.99    can't be judged      0  there is no environment with it" in found.out
    assert f"first bad: {HERE} or earlier" in found.out
    assert f"not fixed up to {HERE} (not known of 2.99)" in found.out
    assert "--release 2.99 --yes" in found.err.splitlines()[-1]

    told = json.loads(run("releases", store, *named, "--json").out)
    assert [one["state"] for one in told["releases"]] == ["same"]
    assert told["ranges"][0]["bad"] == [HERE]

    assert run("export", store, "-o", tmp_path / "repro", "--checks", 1).status == 0
    issue = (tmp_path / "repro" / "issue.md").read_text()
    assert f"- `{HERE}`: `the same failure`" in issue
    assert f"`not fixed up to {HERE}`" in issue


@pytest.mark.slow
def test_a_compile_that_did_not_fail_is_refused(run: Run, tmp_path: Path) -> None:
    program, store = tmp_path / "works.py", tmp_path / "run.db"
    program.write_text("import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))\n")
    assert run("record", "-o", store, "--", sys.executable, program).status == 0
    found = run("releases", store, "--python", sys.executable)
    assert found.status == 2
    assert "nothing" in found.err


def test_a_version_that_is_none_is_refused_before_anything_else(run: Run) -> None:
    found = run("releases", "missing.db", "--release", "newest")
    assert (found.status, "reads like 2.14" in found.err) == (2, True)
