"""The suite of the command line and of frames, with dependencies that `constraints.txt` has not.

python -m tests.compat.dependencies [oldest] [newest]

With the oldest versions that `pyproject.toml` allows, which an environment may have had before
torchreel came, and with the newest that pip finds, which a fresh one gets.  torch is that of
`constraints.txt` in both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.compat.environments import ROOT, EnvironmentFailed
from torchreel.releases import environments

SUITE = (
    "tests/cli", "tests/report", "tests/store", "tests/recorder/test_bundles.py",
    "tests/replay/test_frames.py", "tests/recorder/test_redaction.py", "tests/minifier/source",
)  # fmt: skip
TOOLS = ("pytest", "pytest-xdist", "pytest-timeout", "hypothesis")


def main(words: Sequence[str]) -> int:
    """Run the suite with each; returns 1 if it fails with one of them."""
    wanted = list(words) or ["oldest", "newest"]
    if unknown := {*wanted} - {"oldest", "newest"}:
        print(f"dependencies: no {', '.join(sorted(unknown))}: there are oldest and newest.")
        return 2
    results = {name: _run(oldest=name == "oldest") for name in wanted}
    for name, result in results.items():
        print(f"{name} dependencies: {result or 'passed'}")
    return 1 if any(results.values()) else 0


def lowest(requirements: Sequence[str]) -> list[str]:
    """Return requirements for the lowest version that each of these allows, torch apart."""
    return [line.replace(">=", "==") for line in requirements if not line.startswith("torch>")]


def _run(*, oldest: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="torchreel-dependencies-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        try:
            environments.install(python, *_wanted(oldest=oldest), *TOOLS)
            environments.install(python, "--no-deps", "--editable", str(ROOT))
        except EnvironmentFailed as error:
            return str(error)
        command = [str(python), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *SUITE]
        done = subprocess.run(command, cwd=ROOT)
    return "" if done.returncode == 0 else f"the suite failed (status {done.returncode})"


def _wanted(*, oldest: bool) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    (torch,) = (line for line in pinned if line.startswith("torch=="))
    requirements: list[str] = project["dependencies"]
    return [torch, *(lowest(requirements) if oldest else requirements)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
