"""What two ranks tell each other before they compile: both recordings hold all of it."""

import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tests.recorder.conftest import Record
from torchreel.recorder.launch import run_recorded
from torchreel.store import Store, queries
from torchreel.store.records import Event, Recording

if not torch.distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

PROGRAM = """
    import contextlib, os, sys, torch
    import torch.distributed as dist
    from torch._dynamo.device_interface import CpuInterface

    rank, sync = int(os.environ["RANK"]), sys.argv[1]
    # As a machine with two GPUs has it: torch 2.13 makes the device of that number, modulo the
    # count of accelerators, the current one.  It also wants a group for one type of device.
    torch.accelerator.device_count = lambda: 2
    CpuInterface.device = contextlib.nullcontext
    dist.init_process_group("cpu:gloo", init_method=f"file://{sync}", rank=rank, world_size=2)
    torch._dynamo.config.enable_compiler_collectives = True

    def scale(x, y):
        return x * 2 + y.sum()

    compiled = torch.compile(scale, backend="eager")
    compiled(torch.ones(4 + rank, 3), torch.ones(2))
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The store of two ranks that compile one function, with inputs of different sizes."""
    folder = tmp_path_factory.mktemp("ranks")
    path = folder / "run.db"

    def run(rank: int) -> int:
        text = textwrap.dedent(PROGRAM)
        words = ["env", f"RANK={rank}", sys.executable, "-c", text, str(folder / "sync")]
        return run_recorded(words, path)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (0, 1))) == [0, 0]
    with Store.open(path) as store:
        yield store


def recordings(store: Store) -> list[Recording]:
    """One per rank, in their order."""
    found = [row for row in queries.recordings(store) if row.rank is not None]
    return sorted((row for row in found if queries.compiles(store, row.id)), key=_rank)


def _rank(row: Recording) -> int:
    assert row.rank is not None
    return row.rank


def events(store: Store, recording: Recording, kind: str) -> list[Event]:
    return queries.events(store, recording, kind)


def data(event: Event) -> Any:
    return event.data


def state(rank: int) -> dict[str, Any]:
    """What a rank sees of its inputs."""
    # fmt: off
    return {
        "L['x']": {
            "scalar": "dynamic", "size": [4 + rank, 3], "stride": ["size * stride of 1", 1],
        },
        "L['y']": {"scalar": "dynamic", "size": [2], "stride": [1]},
    }


def test_each_rank_has_its_own_recording(ranks: Store) -> None:
    assert [row.rank for row in recordings(ranks)] == [0, 1]
    for row in recordings(ranks):
        assert queries.lost(ranks, row.id) == []
        assert queries.failures(ranks, row.id) == []


def test_each_rank_says_what_it_saw(ranks: Store) -> None:
    for row in recordings(ranks):
        (local,) = events(ranks, row, "collective.local")
        rank = _rank(row)
        assert data(local) == {"rank": rank, "size": 2, "state": state(rank)}


def test_each_rank_holds_the_states_of_all(ranks: Store) -> None:
    for row in recordings(ranks):
        (local,) = events(ranks, row, "collective.local")
        gathered = events(ranks, row, "collective.gathered")
        assert [data(event) for event in gathered] == [
            {"rank": rank, "state": state(rank)} for rank in (0, 1)
        ]
        assert {event.cause for event in gathered} == {local.seq}


def test_the_exchange_ends_in_the_same_restart(ranks: Store) -> None:
    for row in recordings(ranks):
        (local,) = events(ranks, row, "collective.local")
        (outcome,) = events(ranks, row, "collective.outcome")
        (restart,) = events(ranks, row, "frame.restart")
        assert data(outcome) == {"outcome": "restart", "error": None, "differing": ["L['x']"]}
        assert local.seq < outcome.seq < restart.seq
        assert data(restart)["type"] == "CompileCollectiveRestartAnalysis"
        attempts = [(c.place.partition("/")[2], c.status) for c in queries.compiles(ranks, row.id)]
        assert attempts == [("0/0", "restarted"), ("0/0_1", "ok")]
        assert restart.compile_id == queries.compiles(ranks, row.id)[0].id


def test_the_ranks_agree_on_what_varies(ranks: Store) -> None:
    for row in recordings(ranks):
        merged = {event.name: data(event) for event in events(ranks, row, "collective.merged")}
        assert merged["L['x']"]["own"] == state(_rank(row))["L['x']"]
        assert merged["L['x']"]["merged"]["size"] == ["dynamic", 3]
        assert merged["L['y']"]["merged"] == state(0)["L['y']"]


def test_the_ranks_compile_one_graph(ranks: Store) -> None:
    digests = []
    for row in recordings(ranks):
        last = queries.compiles(ranks, row.id)[-1]
        (graph,) = queries.graphs(ranks, last)
        assert graph.inputs == 3
        digests.append([(t.target, t.count) for t in queries.graph_targets(ranks, graph)])
    assert digests[0] == digests[1] != []


def test_without_other_ranks_nothing_is_told(record: Record) -> None:
    log = record(lambda: torch.compile(torch.sin, backend="eager")(torch.ones(3)))
    kinds = set(queries.event_counts(log.store, log.recording))
    assert not {kind for kind in kinds if kind.startswith("collective.")}
    assert "frame.start" in kinds
