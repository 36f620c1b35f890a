"""The recipes of CONTRIBUTING.md, each carried out in a copy of the repository and linted there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (Add [^\n]*)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r'^ *```(\w+)(?: title="([^\n]*)")?\n(.*?)^ *```$', re.MULTILINE | re.DOTALL)
COPIED = (
    "torchreel", "tests", "docs", ".gitignore", "mkdocs.yml", "pyproject.toml", "CHANGELOG.md",
)  # fmt: skip
LINT = (
    "ruff check .",
    "ruff format --check .",
    "mypy --cache-dir {cache}",
    "lint-imports",
    "python -m pytest -q tests/docs/test_words.py tests/docs/test_events.py",
)
CHANGE = re.compile(r"([^\s,]+)(?:, (before|instead of|below the first|at its end)(?:: (.*))?)?")


def _carry_out(recipe: str, folder: Path) -> None:
    for language, how, text in BLOCK.findall(recipe):
        code = textwrap.dedent(text)
        if language == "console":
            for line in re.findall(r"^\$ (.*)$", code, re.MULTILINE):
                _run(line, folder)
        else:
            _change(folder, how, textwrap.indent(code, _indent(text)))


def _indent(text: str) -> str:
    """What the text is indented by, beyond the four columns of its list."""
    return " " * (min(len(line) - len(line.lstrip()) for line in text.splitlines() if line) - 4)


def _change(folder: Path, how: str, code: str) -> None:
    found = CHANGE.fullmatch(how)
    assert found is not None, how
    path, place, anchor = folder / found[1], found[2], found[3]
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if place else []
    if anchor is None:
        lines.append(f"\n{code}" if place else code)
    elif place == "below the first":
        at = next(number for number, line in enumerate(lines) if line.startswith(anchor)) + 1
        at += lines[at] == "\n"  # behind the heading of a list
        lines.insert(at, code)
    else:
        (at,) = (number for number, line in enumerate(lines) if line.lstrip().startswith(anchor))
        lines[at : at + (place == "instead of")] = [code]
    path.write_text("".join(lines), encoding="utf-8")


def _run(line: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("torchreel ", "python -m torchreel.cli ", 1)],
        cwd=folder, env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"$ {line}\n{done.stdout}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which mypy keeps what it knows from one recipe to the next."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works_as_it_is_written(name: str, tmp_path: Path, cache: Path) -> None:
    for part in COPIED:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    _run("git init -q", tmp_path)  # what git ignores is not linted
    _carry_out(RECIPES[name], tmp_path)
    for line in LINT:
        _run(line.format(cache=cache), tmp_path)


def test_there_are_seven_recipes() -> None:
    assert len(RECIPES) == 7


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_a_test_and_ends_with_a_line_in_the_changelog(name: str) -> None:
    titles = [title for _, title, _ in BLOCK.findall(RECIPES[name])]
    assert titles[-1] == "CHANGELOG.md, below the first: ### Added"
    assert "$ python -m pytest -q tests/" in RECIPES[name]


def test_a_line_goes_below_the_first_of_several_headings(tmp_path: Path) -> None:
    page = tmp_path / "CHANGELOG.md"
    page.write_text("## [Unreleased]\n\n### Added\n\n- old\n\n## [0.2.0]\n\n### Added\n\n- older\n")
    _change(tmp_path, "CHANGELOG.md, below the first: ### Added", "- new\n")
    assert page.read_text().startswith("## [Unreleased]\n\n### Added\n\n- new\n- old\n\n")
