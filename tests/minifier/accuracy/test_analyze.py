"""Which value is the first that is wrong, with backends that get one operator wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

import tests.minifier.planted_results  # registers the backends
from tests.minifier.recorded import record
from torchreel.cli import app
from torchreel.errors import NotReproduced, UsageError
from torchreel.minifier.accuracy import analyze as module
from torchreel.minifier.accuracy.analyze import Analysis, analyze
from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.child.graph_runner import run
from torchreel.minifier.oracle.protocol import Task, TaskResult
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature

assert tests.minifier.planted_results, "imported for its side effect"


class Here:
    """An oracle that runs cases in this process: nothing here crashes."""

    trust = False

    def __init__(self, signature: Signature, **kwargs: object) -> None:
        self.signature = signature

    def judge(self, case: Case) -> OracleReport:
        """One run."""
        return TaskResult(
            run(Task(case, self.signature, 0.0, 0, trust=self.trust), lambda _: None), 0.0, 0
        ).report()

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *args: object) -> None: ...


def analyzed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any], backend: str
) -> Analysis:
    """What is said of a program that was recorded with that backend."""
    monkeypatch.setattr(module, "WorkerOracle", Here)
    path = record(folder / "run.db", fn, torch.linspace(0.1, 1, 12).view(3, 4), backend=backend)
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        (row,) = queries.compiles(store, recording.id)
        return analyze(store, row)


def chain(x: torch.Tensor) -> torch.Tensor:
    """A cosine in the middle."""
    y = torch.sin(x) * 2
    z = torch.cos(y)
    return torch.relu(z + y).sum(0)


def writing(x: torch.Tensor) -> torch.Tensor:
    """A value that is right until something wrong is written into it."""
    kept = x.clone()
    kept.mul_(torch.cos(x))
    return kept + 1


@pytest.mark.parametrize("fn", [chain, writing])
def test_the_first_wrong_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any]
) -> None:
    """The cosine, and all that follows; what was right before it was written to is right."""
    found = analyzed(tmp_path, monkeypatch, fn, "planted_cosine")
    first = next(row for row in found.rows if row.name == found.first)
    assert "torch.cos(" in first.text
    assert "torch.cos(" in first.line
    assert (found.kind, found.alone) == ("values", True)
    at = found.rows.index(first)
    assert [row.wrong for row in found.rows] == [False] * at + [True] * (len(found.rows) - at)
    assert first.compiled == pytest.approx(0.25, rel=0.1)
    assert all(row.eager is not None and row.eager < 1e-6 for row in found.rows)
    assert all(row.compiled is not None and row.compiled < 1e-6 for row in found.rows[:at])


def test_an_error_that_hides_when_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is found by cutting the graph off."""
    found = analyzed(tmp_path, monkeypatch, chain, "planted_shy_cosine")
    assert not any(row.wrong for row in found.rows)
    first = next(row for row in found.rows if row.name == found.first)
    assert "torch.cos(" in first.text
    assert found.alone


def test_an_error_behind_a_logarithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of most invented inputs there is NaN and nothing else; of positive ones there is a number."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(torch.log(x).sum())

    found = analyzed(tmp_path, monkeypatch, fn, "planted_cosine")
    first = next(row for row in found.rows if row.name == found.first)
    assert "torch.cos(" in first.text


def test_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors are shown all the same."""
    found = analyzed(tmp_path, monkeypatch, chain, "aot_eager")
    assert (found.difference, found.first) == ("", "")
    assert len(found.rows) == 6
    assert not any(row.wrong for row in found.rows)


def test_what_fails_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for `minify`."""
    import tests.minifier.planted

    assert tests.minifier.planted, "imported for its side effect"
    with pytest.raises(NotReproduced, match="planted: tangent"):
        analyzed(tmp_path, monkeypatch, torch.tan, "planted_two")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, a picture, JSON; the exit status says whether there is a difference."""
    analyzed(tmp_path, monkeypatch, chain, "planted_cosine")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["analyze", "run.db", "--svg", "error.svg"])
    assert result.exit_code == 1, result.output
    assert "first wrong" in result.output
    assert "The first node that is wrong is z, from the line: z = torch.cos(y)." in result.output
    assert "next: torchreel minify run.db#1/0/0 --accuracy" in result.output
    drawn = ElementTree.parse(tmp_path / "error.svg").getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 2 * 6
    result = CliRunner().invoke(app, ["analyze", "run.db", "--svg", "error.svg"])
    assert "wrote error.svg, over the file that was there" in result.output
    result = CliRunner().invoke(app, ["analyze", "run.db", "--svg", "/dev/full"])
    assert "first wrong" in result.output, "the answer is not lost with the picture"
    assert isinstance(result.exception, UsageError)
    result = CliRunner().invoke(app, ["analyze", "run.db", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["first"] == "z"
    result = CliRunner().invoke(app, ["analyze", "run.db", "--compare", "nearly"])
    assert isinstance(result.exception, UsageError)


def test_a_picture_without_a_place_is_refused_before_the_run(tmp_path: Path) -> None:
    for place in (tmp_path / "missing" / "error.svg", tmp_path):
        result = CliRunner().invoke(app, ["analyze", "missing.db", "--svg", str(place)])
        assert isinstance(result.exception, UsageError), result.exception
        assert "directory" in str(result.exception)
