"""`torchreel releases` with an environment that is named, from a recording to the issue."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Run as Command
from torchreel.commands.views import releases as view
from torchreel.releases.results import NO_ENVIRONMENT, Run, Survey, Tried

# torch 2.14 fixed it: see 'until' in examples/demo.py.
PROGRAM = """
import torch

def fn(x):
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1

torch.compile(fn)(torch.randn(2, 3))
"""
WORDS = ("run.db#1/0/0", "--trust", "--since=2.14", "--release", "2.14", "--runs", "2")
HERE = version("torch").partition("+")[0]


@pytest.mark.slow
@pytest.mark.skipif(HERE >= "2.14", reason="this torch does not have the bug")
def test_a_release_with_the_failure_is_named_in_the_issue(run: Command, tmp_path: Path) -> None:
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
    again = shlex.join(["releases", "--yes", str(store), *map(str, named), "--release", "2.99"])
    assert found.err.splitlines()[-1] == f"next: torchreel {again}"

    told = json.loads(run("releases", store, *named, "--json").out)
    assert [one["state"] for one in told["releases"]] == ["same"]
    assert told["ranges"][0]["bad"] == [HERE]

    assert run("export", store, "-o", tmp_path / "repro", "--checks", 1).status == 0
    issue = (tmp_path / "repro" / "issue.md").read_text()
    assert f"- `{HERE}`: `the same failure`" in issue
    assert f"`not fixed up to {HERE}`" in issue


@pytest.mark.parametrize(
    ("tried", "next_words"),
    [
        ((Tried("2.99", reason=NO_ENVIRONMENT),), f"releases --yes {' '.join(WORDS)}"),
        ((Tried("2.99", reason="pip: No matching distribution"),), "export run.db#1/0/0"),
        (
            (Tried("2.14.1", (Run("same", ""),)), Tried("2.99", reason="pip: none")),
            "releases --since 2.9 run.db#1/0/0 --trust --release 2.14 --runs 2",
        ),
    ],
)
def test_the_next_command_keeps_the_options(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tried: tuple[Tried, ...],
    next_words: str,
) -> None:
    """Of two surveys the last one counts, so it tries all that the first one did."""
    monkeypatch.setattr(sys, "argv", ["torchreel", "releases", *WORDS])
    view.report("run.db#1/0/0", Survey("2.14.1", tried), json=False, kept=True)
    assert capsys.readouterr().err.splitlines()[-1] == f"next: torchreel {next_words}"


@pytest.mark.slow
def test_a_compile_that_did_not_fail_is_refused(run: Command, tmp_path: Path) -> None:
    program, store = tmp_path / "works.py", tmp_path / "run.db"
    program.write_text("import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))\n")
    assert run("record", "-o", store, "--", sys.executable, program).status == 0
    found = run("releases", store, "--python", sys.executable)
    assert found.status == 2
    assert "nothing" in found.err


def test_a_version_that_is_none_is_refused_before_anything_else(run: Command) -> None:
    found = run("releases", "missing.db", "--release", "newest")
    assert (found.status, "reads like 2.14" in found.err) == (2, True)
