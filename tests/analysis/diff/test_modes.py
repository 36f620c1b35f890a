"""A recording of flight mode beside a full one: compared in what both have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.replay.programs import UNCACHED
from torchreel.analysis.diff import CompileDiff, DiffReport, diff
from torchreel.store import Store
from torchreel.store.addressing import parse

PROGRAM = """
import sys
import torch


@torch.compile(backend=sys.argv[1])
def trains(x, w):
    y = torch.{op}(x @ w)
    torch._dynamo.graph_break()
    return y.sum(0)


trains(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).sum().backward()
"""


def _record(folder: Path, mode: str, name: str, op: str = "tanh", slow: str = "0") -> Path:
    program, path = folder / "job.py", folder / f"{name}.db"
    program.write_text(PROGRAM.format(op=op))
    variables = {"TORCHREEL": f"{mode}:{path}", "TORCHREEL_SLOW_COMPILE": slow, **UNCACHED}
    command = [sys.executable, str(program), "inductor"]
    done = forks.run(command, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The program in flight mode, twice in full, and in full with another operator."""
    folder = tmp_path_factory.mktemp("modes")
    return {
        "flight": _record(folder, "flight", "flight"),
        "summaries": _record(folder, "flight", "summaries", slow="3600"),
        "full": _record(folder, "full", "full"),
        "again": _record(folder, "full", "again"),
        "other": _record(folder, "full", "other", op="sigmoid"),
    }


def _diff(left: Path, right: Path) -> DiffReport:
    with Store.open(left) as ours, Store.open(right) as theirs:
        return diff((ours, parse(str(left))), (theirs, parse(str(right))))


def _layers(pair: CompileDiff) -> dict[str, tuple[int, int, int]]:
    return {row.layer: (row.left, row.right, len(row.differences)) for row in pair.layers}


@pytest.mark.slow
def test_two_full_recordings_of_one_program_are_the_same(recordings: dict[str, Path]) -> None:
    """Also where caches note the moment and how long each compile took."""
    found = _diff(recordings["full"], recordings["again"])
    assert [pair.differing for pair in found.recordings[0].compiles] == [(), (), ()]
    assert found.same


@pytest.mark.slow
def test_a_flight_recording_is_compared_in_what_it_keeps(recordings: dict[str, Path]) -> None:
    found = _diff(recordings["flight"], recordings["full"])
    compiles = found.recordings[0].compiles
    assert [pair.differing for pair in compiles] == [(), (), ()]
    environment = found.recordings[0].environment
    assert environment is not None
    assert [row.what for row in environment.differences] == ["mode"]
    restarted, made = _layers(compiles[0]), _layers(compiles[1])
    assert (restarted["events"], made["code"]) == ((0, 0, 0), (0, 0, 0))
    assert made["graphs"] == (3, 3, 0)  # Dynamo's, and those of the forward and the backward
    assert made["events"][0] == made["events"][1] > 50
    notes = {row.layer: row.note for row in compiles[1].layers if row.note}
    assert set(notes) == {"graphs", "code"}


@pytest.mark.slow
def test_of_a_summary_the_frame_and_the_end_are_compared(recordings: dict[str, Path]) -> None:
    """Flight mode lets go of the events, graphs and guards of a compile that was fast."""
    compiles = _diff(recordings["summaries"], recordings["full"]).recordings[0].compiles
    assert len(compiles) == 3
    for pair in compiles:
        assert pair.differing == ()
        compared = {name for name, counts in _layers(pair).items() if any(counts)}
        assert compared == {"frame"}
        assert all(row.note for row in pair.layers if row.layer not in ("frame", "failure"))


@pytest.mark.slow
def test_another_operator_is_found_in_every_layer_that_is_kept(
    recordings: dict[str, Path],
) -> None:
    pair = _diff(recordings["flight"], recordings["other"]).recordings[0].compiles[1]
    differing = {row.layer: row for row in pair.differing}
    assert {"graphs", "events"} <= set(differing)
    stages = {row.what.partition(":")[0] for row in differing["graphs"].differences}
    assert stages == {"dynamo", "aot checkpoint forward", "aot checkpoint backward"}
