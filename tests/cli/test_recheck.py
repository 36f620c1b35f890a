"""`torchreel recheck`: a real failure, under a torch that has it and one that has not."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_releases import PROGRAM

HERE = version("torch").partition("+")[0]


@pytest.fixture
def failing(run: Run, tmp_path: Path) -> Path:
    """A recording of a real failure."""
    program, store = tmp_path / "fails.py", tmp_path / "run.db"
    program.write_text(PROGRAM)
    assert run("record", "-o", store, "--", sys.executable, program).status == 1
    return store


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A Python whose torch compiles nothing, as if the compiler had no bugs."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nTORCHDYNAMO_DISABLE=1 exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.skipif(HERE >= "2.14", reason="this torch does not have the bug")
def test_it_tells_what_is_fixed_and_what_is_still_there(
    run: Run, failing: Path, without: Path
) -> None:
    before = failing.read_bytes()
    there = run("recheck", failing, "--python", sys.executable)
    assert there.status == 1
    assert "0 of 1 group fixed" in there.out
    assert "still there" in there.out
    assert f"next: torchreel minify {failing}#1/0/0" in there.err

    fixed = run("recheck", failing, "--python", without, "--json")
    assert fixed.status == 0, fixed
    (group,) = json.loads(fixed.out)["groups"]
    assert (group["state"], group["failures"]) == ("fixed", 1)
    assert fixed.err.count("it ended without an error") == 3
    assert fixed.err.count("AssertionError: AssertionError") >= 3, "here it was not run again"
    assert failing.read_bytes() == before


def test_it_asks_for_three_runs_and_a_python(run: Run, empty: Path, tmp_path: Path) -> None:
    assert run("recheck", empty, "--python", sys.executable, "--runs", 2).status == 2
    assert run("recheck", empty).status == 2
    assert run("recheck", empty, "--python", tmp_path / "none").status == 2


def test_without_failures_there_is_nothing_to_fix(run: Run, empty: Path) -> None:
    result = run("recheck", empty, "--python", sys.executable)
    assert result.status == 0
    assert "0 of 0 groups fixed" in result.out
