"""Two ranks of a gloo job: each replays alone, and where they part is named."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.store.rows import add_compile, add_recording
from torchreel.analysis.diff import diff_ranks
from torchreel.analysis.diff.ranks import RanksReport
from torchreel.errors import UsageError
from torchreel.recorder.launch import run_recorded
from torchreel.replay import replay
from torchreel.store import Store, parse, queries
from torchreel.store.records import Recording

if not torch.distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

PROGRAM = """
    import contextlib, os, sys, torch
    import torch.distributed as dist
    from torch._dynamo.device_interface import CpuInterface

    rank, sync = int(os.environ["RANK"]), sys.argv[1]
    # As on a machine with two accelerators; see tests/recorder/test_collectives.py.
    torch.accelerator.device_count = lambda: 2
    CpuInterface.device = contextlib.nullcontext
    dist.init_process_group("cpu:gloo", init_method=f"file://{sync}", rank=rank, world_size=2)
    torch._dynamo.config.enable_compiler_collectives = True
    torch._dynamo.config.automatic_dynamic_shapes = True

    def scale(x, y):
        return (x * 2 + y.sum()).relu()

    compiled = torch.compile(scale, backend="aot_eager")
    compiled(torch.ones(4 + rank, 3), torch.ones(2))
    dist.barrier()

    torch._dynamo.config.enable_compiler_collectives = False

    def part(x, limit):
        y = x.sin()
        if x.shape[0] > limit:
            y = y + 1
        return y

    torch.compile(part, backend="aot_eager", dynamic=True)(torch.ones(6, 3), 4 + 4 * rank)
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    path = folder / "run.db"

    def run(rank: int) -> int:
        words = ["env", f"RANK={rank}", sys.executable, "-c", textwrap.dedent(PROGRAM)]
        return run_recorded([*words, str(folder / "sync")], path)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (0, 1))) == [0, 0]
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, write=True) as store:
        yield store


def ranks(store: Store) -> list[Recording]:
    found = [row for row in queries.recordings(store) if row.rank is not None]
    programs = [row for row in found if row.kind == "program" and queries.compiles(store, row.id)]
    return sorted(programs, key=lambda row: row.rank or 0)


@pytest.mark.slow
def test_the_first_decision_in_which_they_part_is_named(store: Store) -> None:
    report = diff_ranks([(store, parse(store.target))])
    parting = report.parting
    assert report.exit_status == 1
    assert [rank.rank for rank in report.ranks] == [0, 1]
    # Both attempts at `scale` are alike, although the ranks saw other sizes.
    assert report.compiles == 2
    assert report.decisions > 20
    assert parting is not None
    assert parting.what == "guard"
    assert [view.text.partition(" ")[0] for view in parting.views] == ["guard:", "guard:"]
    assert parting.views[0].text != parting.views[1].text
    for view, recording in zip(parting.views, ranks(store), strict=True):
        address = parse(view.address)
        assert (address.recording, address.compile) == (recording.id, "1/0")
        assert queries.event_at(store, address).kind == "shape_env.guard"


def test_ranks_that_agree_are_told_how_much_was_compared(store: Store, tmp_path: Path) -> None:
    """The same job without the compile in which the ranks part."""
    copy = tmp_path / "run.db"
    copy.write_bytes(Path(store.target).read_bytes())
    with Store.open(copy, write=True) as other:
        parted = [queries.compiles(other, row.id)[-1].id for row in ranks(other)]
        with other.writer() as w:
            for row in parted:
                w.delete("compiles", row)
        report = diff_ranks([(other, parse(str(copy)))])
    assert report.parting is None
    assert (report.exit_status, report.compiles) == (0, 2)
    assert report.decisions > 20


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_replays_alone(store: Store, rank: int) -> None:
    recording = ranks(store)[rank]
    agreed = queries.compiles(store, recording.id)[1]
    assert (agreed.compile_id, agreed.attempt, agreed.status) == ("0/0", 1, "ok")
    verdict = replay(store, agreed)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert {row.kind for row in verdict.compared if row.identical} >= {"graph"}


def test_one_rank_is_not_enough(store: Store) -> None:
    with pytest.raises(UsageError, match="one rank of a job"):
        diff_ranks([(store, parse(f"{store.target}#{ranks(store)[0].id}"))])


def _job(store: Store, *processes: tuple[str, int, int, int, str]) -> None:
    """Add processes of jobs: run, rank, when they began and ended, and what they compiled."""
    with store.writer() as w:
        for run, rank, began, ended, frames in processes:
            times = {"started_ns": began, "ended_ns": ended}
            row = add_recording(w, run=run, rank=rank, pid=began + rank + 1, **times)
            for number, frame in enumerate(frames):
                add_compile(w, row, f"{number}/0", frame_name=frame)


def _compared(tmp_path: Path, *processes: tuple[str, int, int, int, str]) -> RanksReport:
    with Store.open(tmp_path / "jobs.db", create=True) as store:
        _job(store, *processes)
        return diff_ranks([(store, parse(str(tmp_path / "jobs.db")))])


def test_the_nodes_of_a_job_are_one_job(tmp_path: Path) -> None:
    nodes = [("a", 0, 1, 9, "f"), ("a", 1, 1, 9, "f"), ("b", 2, 2, 8, "g"), ("b", 3, 2, 8, "g")]
    found = _compared(tmp_path, ("old", 4, 0, 0, "h"), *nodes)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 3]
    assert found.parting is not None


def test_processes_with_runs_of_their_own_are_one_job_if_they_were_there_at_once(
    tmp_path: Path,
) -> None:
    found = _compared(
        tmp_path, ("1", 0, 1, 5, "f"), ("2", 1, 1, 5, "f"), ("3", 2, 1, 5, "f"),
        ("4", 0, 6, 9, "g"), ("5", 1, 6, 9, "g"),
    )  # fmt: skip
    assert [rank.recording.run for rank in found.ranks] == ["4", "5"]
    assert found.parting is None


def test_ranks_that_one_process_plays_after_one_another_are_compared(tmp_path: Path) -> None:
    found = _compared(tmp_path, ("1", 0, 1, 5, "f"), ("2", 1, 6, 9, "g"))
    assert [rank.recording.run for rank in found.ranks] == ["1", "2"]
    assert found.parting is not None


def test_a_child_of_a_rank_is_not_the_rank(tmp_path: Path) -> None:
    found = _compared(tmp_path, ("r", 0, 1, 9, "fg"), ("r", 1, 1, 9, "fg"), ("r", 0, 2, 3, "h"))
    assert (found.parting, found.compiles) == (None, 2)
