"""The demonstration has a real bug for each release of torch."""

import importlib
from pathlib import Path

import pytest

from torchreel.torch_compat import releases

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
