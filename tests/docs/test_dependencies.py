"""docs/dependencies.md gives a reason for every dependency, and constraints.txt a version."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!; ]", requirement)[0].lower() for requirement in requirements}


DECLARED = _names(
    PROJECT["dependencies"]
    + [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
) - {"torchreel"}


def test_each_dependency_has_its_reason() -> None:
    page = ROOT.joinpath("docs", "dependencies.md").read_text()
    rows = re.findall(r"^\| (?:\w+ \| )?([\w-]+) \| [^|]{9,} \|$", page, re.MULTILINE)
    assert set(rows) == DECLARED


def test_each_dependency_has_its_version() -> None:
    lines = ROOT.joinpath("constraints.txt").read_text().splitlines()
    pinned = dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))
    assert pinned.keys() >= {name.replace("pre-commit", "pre_commit") for name in DECLARED}
    assert all("+" not in version for version in pinned.values())
