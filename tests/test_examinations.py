"""The long examinations of `benchmarks` still run: each on the smallest share of its work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import corpus, hostile_cases, hostile_documents, provenance
from benchmarks.exam import __main__ as exam

_ROOT = Path(corpus.__file__).parents[1]


@pytest.mark.slow
def test_the_corpus_replays_every_entry_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus.main(["chain-52"]) == 0
    table = capsys.readouterr().out
    assert all(entry in table for entry in ("frame", "graph", "shapes"))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings that leave a checkpoint of each kind."""
    folder = tmp_path_factory.mktemp("checkpoints")
    hostile_documents.record(folder)
    found = hostile_documents.checkpoints_of(folder)
    assert {document["entry"] for document in found} == {"graph", "aot", "export"}
    return folder


@pytest.mark.slow
def test_changed_checkpoints_reach_nothing(checkpoints: Path) -> None:
    """A sample of `make hostile`: some are replayed, most are refused, nothing is touched."""
    tally = hostile_documents.attack(checkpoints, 60)
    assert tally.canaries == []
    assert tally.counts["graphs"] == 60
    assert tally.counts["whole"] > 5  # a tenth; which they are, changes with each new field
    assert len(tally.reasons) > 5


@pytest.mark.slow
def test_a_hole_is_found_by_changed_checkpoints(checkpoints: Path) -> None:
    tally = hostile_documents.attack(checkpoints, 40, planted=True)
    assert any(hostile_documents.MARK in text for text in tally.canaries)


@pytest.mark.slow
def test_changed_checkpoints_are_reduced_or_refused(checkpoints: Path) -> None:
    """A sample of `make hostile`, in the process that reads a store."""
    found = hostile_documents.checkpoints_of(checkpoints)
    counts, tracebacks = hostile_cases.reduce_all(found, range(200))
    assert tracebacks == []
    assert counts["read"] > 100
    assert counts["refused"] > 10
    assert counts["reduced"] > 20


_FAILING = """
import collections, torch

def f(x):
    queue = collections.deque([x, x + 1])
    queue.rotate(1)
    return queue[0]

try:
    torch.compile(f, fullgraph=True, backend="eager")(torch.ones(3))
except torch._dynamo.exc.Unsupported:
    pass
"""


@pytest.mark.slow
def test_a_failure_of_dynamo_is_replayed_from_its_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no graph, and is counted in a column of its own."""
    program = tmp_path / "program.py"
    program.write_text(_FAILING)
    row = exam.examine("program", [sys.executable, str(program)], exam.How("eager"))
    found = [(compile.entry, compile.status, compile.verdict) for compile in row.compiles]
    assert found == [(exam.FAILED, "failed", "identical")]
    exam.report([row])
    table = capsys.readouterr().out
    assert f"from {exam.FAILED}" in table
    assert "1 compiles: {'identical': 1}" in table


@pytest.mark.slow
def test_programs_under_faults_are_recorded() -> None:
    """Of its own: it forks, and this process may have threads."""
    command = [sys.executable, "-m", "benchmarks.faults", "0", "2"]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].split() == ["all", "2", "0"]


@pytest.mark.slow
def test_variants_of_two_bugs_are_two_groups(tmp_path: Path) -> None:
    """Of its own: it forks, and this process may have threads."""
    names = ["cummin_of_empty", "stack_frame", "--variants", "2", "--minify", "0"]
    command = [sys.executable, "-m", "benchmarks.triage", *names, "--work", str(tmp_path)]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    table = ended.stdout[ended.stdout.index("-- all: 4 programs") :]
    assert "4 failures of 2 bugs; 0 were minified" in table
    row = next(line for line in table.splitlines() if line.startswith("triage  "))
    assert row.split() == ["triage", "2", "2", "1.000", "1.000"]


def test_no_examination_hides_a_module_of_python() -> None:
    """Some run a file of `benchmarks/` as a program, whose imports begin there."""
    names = {path.stem for path in Path(corpus.__file__).parent.iterdir()}
    assert not names & sys.stdlib_module_names


@pytest.mark.slow
def test_kernels_lead_to_lines_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert provenance.main(["lstm"]) == 0
    told = capsys.readouterr().out
    assert "lstm" in told
    assert "100.0%" in told
