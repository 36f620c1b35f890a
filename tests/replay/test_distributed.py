"""Frames of distributed programs replay in one process, over a group that sends nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from tests import forks
from torchreel.replay import replay
from torchreel.replay.sequence import replay_sequence
from torchreel.store import queries
from torchreel.store.database import Store

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="a torch without torch.distributed"
)

PROGRAM = """
import tempfile
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

store = dist.FileStore(tempfile.mktemp(), 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))

def sharded(x, w):
    return (x @ w).redistribute(placements=[Replicate()]).to_local().sum()

def collective(x):
    reduced = collectives.all_reduce(x, "sum", dist.group.WORLD)
    return collectives.all_gather_tensor(reduced, 0, dist.group.WORLD) * 2

x = distribute_tensor(torch.randn(4, 8), mesh, [Shard(0)])
w = distribute_tensor(torch.randn(8, 8), mesh, [Replicate()])
torch.compile(sharded, backend="aot_eager")(x, w)
torch.compile(collective, backend="aot_eager")(torch.randn(4))

layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
parallel = torch.nn.parallel.DistributedDataParallel(layers)
torch.compile(parallel, backend="aot_eager")(torch.randn(4, 64)).sum().backward()

sharded = torch.nn.Sequential(torch.nn.Linear(8, 8))
fully_shard(sharded[0], mesh=mesh)
fully_shard(sharded, mesh=mesh)
torch.compile(sharded, backend="aot_eager")(torch.randn(3, 8)).sum().backward()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distributed")
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TORCHREEL": "full:run.db", "TORCHREEL_FRAMES": "all"}
    forks.run([sys.executable, "program.py"], cwd=folder, env=environment, check=True)
    return folder / "run.db"


@pytest.mark.slow
def test_every_frame_replays(path: Path) -> None:
    with Store.open(path, write=True) as store:
        (program,) = queries.recordings(store)
        assert queries.lost(store, program.id) == []
        told = {
            (row.compile.frame_name, row.compile.place): row.verdict
            for row in replay_sequence(store, program, trust=True)
        }
        names = {row.frame_name for row in queries.compiles(store, program.id)}
    assert {"sharded", "collective", "FSDPSequential.forward"} <= names
    assert "DistributedDataParallel.forward" in names
    assert {"sharded", "collective", "inner"} <= {name for name, _ in told}
    differences = {key: found.detail for key, found in told.items() if found.verdict != "identical"}
    assert differences == {}


@pytest.mark.slow
def test_a_graph_with_collectives_replays_without_the_program(path: Path) -> None:
    with Store.open(path, write=True) as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        (row,) = (row for row in rows if row.frame_name == "collective")
        verdict = replay(store, row)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
