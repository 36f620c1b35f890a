"""The demonstration has a real bug for each release of torch."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchreel.torch_compat.versions import releases

demo = importlib.import_module("examples.demo")
ROOT = Path(__file__).parents[2]
FIXED, OPEN = (f"examples/{name}.py" for name in ("keep_best", "gated_blocks"))


@pytest.mark.parametrize(
    ("version", "program"),
    [
        ("2.12.1", FIXED),
        ("2.13.0", FIXED),
        ("2.14.0", OPEN),
        ("2.15.0", OPEN),
        ("2.16.0", OPEN),
    ],
)
def test_the_program_is_one_that_this_torch_fails_on(version: str, program: str) -> None:
    assert demo.bug_of(releases.of_version(version)).program == program
    assert (ROOT / program).is_file()


def test_the_readme_shows_the_program_of_its_torch() -> None:
    text = (ROOT / "README.md").read_text()
    assert f"-- python {demo.bug_of(releases.of_version('2.13.0')).program}" in text
    assert "torch 2.13.0" in text


def _plain(text: str) -> str:
    """A line without what differs from one run, or machine, to the next: numbers and colours."""
    return re.sub(r"\d+(?:\.\d+)*", "N", re.sub(r"\x1b\[[\d;]*m", "", text)).strip()


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the README shows torch 2.13")
def test_the_demonstration_succeeds_and_the_readme_shows_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "all as it should be" in done.stdout
    readme = (ROOT / "README.md").read_text()
    (session,) = _blocks(readme, "console")
    said = {_plain(line) for line in (done.stdout + done.stderr).splitlines()}
    shown = [line for line in session.splitlines() if line.strip() not in ("", "...")]
    # Progress is told as time passes.
    missing = [line for line in shown if _plain(line) not in said and ", pass " not in line]
    assert missing == []
    (repro,) = _blocks(readme, "python")
    written = (tmp_path / "demo-output/repro/repro.py").read_text()
    assert [*map(_plain, repro.splitlines())] == [*map(_plain, written.splitlines())]
