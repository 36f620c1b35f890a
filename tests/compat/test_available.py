"""A release that can't be installed is no failure where it is not insisted upon, and says why."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.compat.environments import VERSIONS
from torchreel.releases import environments

ROOT = Path(__file__).parents[2]


@pytest.mark.sampled
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


@pytest.mark.slow
def test_a_release_that_pip_was_told_not_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment is there, and installing torchreel into it would take its torch away."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "constraints.txt").write_text("torch<=2.14.1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    version = VERSIONS["2.15"]
    folder = environments.folder_of(version)
    venv.create(folder, with_pip=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / f"torch-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    (packages / f"torch-{version}.dist-info" / "METADATA").write_text(metadata)
    (folder / "stamp").write_text(environments._recipe(version))
    command = [sys.executable, "-m", "tests.compat", "--if-available", "2.15"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch {version}: NOT RUN" in done.stdout
    assert "conflicting dependencies" in done.stdout
