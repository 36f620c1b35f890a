"""A release that can't be installed is no failure where it is not insisted upon, and says why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("words", "status"), [(["--if-available"], 0), ([], 1)])
def test_a_release_without_a_wheel(
    words: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # a constraint there is told otherwise
    command = [sys.executable, "-m", "tests.compat", *words, "newest"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert "No matching distribution" in done.stdout
    assert ("NOT RUN, for it can't be installed here" in done.stdout) == (status == 0)
