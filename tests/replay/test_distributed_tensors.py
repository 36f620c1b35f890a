"""Graphs of distributed tensors replay from data, and a failure of one rank becomes a script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests import forks
from tests.formats.compiles import compile_and_see
from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments
from torchreel.formats.graphs.check import check_graph
from torchreel.formats.tensors import meshes
from torchreel.formats.tensors.fields import no_leaf
from torchreel.replay import replay
from torchreel.replay.child.restore import restore
from torchreel.replay.sequence import replay_sequence
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import distributed

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="a torch without torch.distributed"
)

# Rank 1 of four, of which the others are nowhere: torch compiles the same for each.
WORLD = """
import os
import torch
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
)
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
"""

PROGRAM = (
    WORLD
    + """
backend = os.environ["BACKEND"]

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        return self.down(torch.relu(self.up(x)))

block = parallelize_module(Block(), mesh["tp"], {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
})
torch.compile(block, backend=backend)(torch.randint(0, 32, (2, 8))).sum().backward()

flat = mesh["dp", "tp"]._flatten("all")
group = mesh["dp"].get_group()

@torch.compile(backend=backend)
def across(whole, rows):
    product = (whole @ whole).redistribute(placements=[Replicate(), Shard(0)])
    return product.full_tensor(), rows.redistribute(placements=[Replicate()]).to_local()

@torch.compile(backend=backend)
def collective(x):
    return all_reduce(x, "sum", group) + all_gather_tensor(x, 0, (mesh, 1)).sum()

@torch.compile(backend=backend)
def made(x):
    part = DTensor.from_local(x, mesh["tp"], [Partial()], run_check=False)
    return part.redistribute(placements=[Shard(0)]).to_local(), part.placements

across(distribute_tensor(torch.randn(8, 8), mesh, [Shard(0), Replicate()]),
       distribute_tensor(torch.randn(8, 8), flat, [Shard(1)]))
collective(torch.randn(4))
made(torch.randn(4, 4))
"""
)

NAMES = {"forward", "across", "collective", "made"}


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one, for the length of a test."""
    distributed.impose_world(0, 1)
    yield
    torch.distributed.destroy_process_group()


def _record(folder: Path, program: str, backend: str = "aot_eager", status: int = 0) -> Path:
    (folder / "program.py").write_text(program)
    environment = {
        **os.environ,
        "TORCHREEL": "full:run.db",
        "TORCHREEL_FRAMES": "all",
        "BACKEND": backend,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    done = forks.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
    )
    assert done.returncode == status, done.stderr
    return folder / "run.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "entries"), [("aot_eager", ["graph"]), ("inductor", ["graph", "aot"])]
)
def test_every_graph_and_frame_replays(backend: str, entries: list[str], tmp_path: Path) -> None:
    told: dict[str, tuple[str, str]] = {}
    with Store.open(_record(tmp_path, PROGRAM, backend), write=True) as store:
        (program,) = queries.recordings(store)
        assert queries.lost(store, program.id) == []
        compiles = queries.compiles(store, program.id)
        for entry in entries:
            for row in compiles:
                verdict = replay(store, row, entry=entry)
                told[f"{row.frame_name} {entry}"] = verdict.verdict, verdict.detail
        for found in replay_sequence(store, program, trust=True):
            told[f"{found.compile.frame_name} frame"] = found.verdict.verdict, found.verdict.detail
    assert set(told) == {f"{name} {entry}" for name in NAMES for entry in [*entries, "frame"]}
    assert set(told.values()) == {("identical", "")}


# torch 2.13 forces the sizes of a dynamic distributed tensor without an end.
FAILS = (
    WORLD
    + """
def shards(x, weight):
    whole = DTensor.from_local(x, mesh["tp"], [Replicate()], run_check=False)
    linear = torch.nn.functional.linear(whole + 1, weight).relu()
    return linear.redistribute(placements=[Shard(-1)]).to_local() * 2

weight = torch.nn.Parameter(distribute_tensor(torch.randn(16, 16), mesh["tp"], [Shard(0)]))
compiled = torch.compile(shards, backend="aot_eager")
for length in (8, 12):  # the second time dynamic
    compiled(torch.randn(2, length, 16), weight)
"""
)


@pytest.mark.slow
def test_a_failure_of_one_rank_ends_in_a_script_of_one_process(tmp_path: Path) -> None:
    _record(tmp_path, FAILS, status=1)
    done = subprocess.run(
        [sys.executable, "-m", "torchreel.cli", "minify", "run.db", "-o", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "repro.py").read_text()
    assert "from torch.distributed.tensor import DTensor, " in text
    assert 'init_process_group("fake", store=FakeStore(), rank=1, world_size=4)' in text
    assert "verified in a fresh process, with torch alone, in 3 of 3 runs: RecursionError" in (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    "world",
    [[4, 4, []], [-1, 4, []], [0, 1 << 40, []], [0, 1, [["1", [0, 7]]]], ["0", 1, []], {}, [0]],
)
def test_a_world_that_can_not_be_is_refused(world: Json) -> None:
    (doc,) = compile_and_see(lambda x: x + 1, torch.ones(2)).checkpoints
    with pytest.raises(UnsupportedError, match="process groups"):
        restore(replace(doc, extra={**doc.extra, "world": world}))
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": "0"}, {"ranks": [[0, 1], [2]]}, {"ranks": {}}, {"device": 7, "ranks": None},
        {"names": ["a", "a", "a"]}, {"groups": []},
        {"root": {"k": meshes.KIND, "ranks": "x"}},
    ],
)  # fmt: skip
def test_a_mesh_that_can_not_be_is_refused(change: dict[str, Json], alone: None) -> None:
    good: dict[str, Json] = {"device": "cpu", "ranks": [0], "names": ["a"], "groups": ["0"]}
    assert meshes.describe(meshes.make(good))["ranks"] == [0]
    with pytest.raises(UnsupportedError, match="no mesh of devices"):
        meshes.make({**good, **change})


WRITES = "open('canary', 'w')"
BREAKS_OUT = [
    ["Partial", f"1)}})\r{WRITES}\rdef g(y=1):\n0#"],
    ["_MaskPartial", f"1,offset_dim=1))\r{WRITES}\rdef g(y=1):\n0#", None, 0],
    ["_MaskPartial", "sum", None, f"x\r{WRITES}"],
    ["TensorMeta", {"t": [WRITES]}, {"t": [1]}, {"dtype": "float32"}],
    ["exec", WRITES],
    ["getattr", {"n": "x"}, "__class__"],
    ["Shard", {"n": "x"}],
]


@pytest.mark.parametrize("parts", BREAKS_OUT)
@pytest.mark.parametrize("around", [lambda tree: tree, lambda tree: {"d": [[1, tree]]}])
def test_no_text_of_a_placement_gets_into_code(
    parts: list[Json],
    around: Callable[[Json], Json],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch prints placements as they are, and FX executes what it prints of an argument."""
    monkeypatch.chdir(tmp_path)
    doc = compile_and_see(lambda x: x.relu(), torch.ones(2)).checkpoints[0].graph
    tree = around({"dtensor": parts})
    nodes = [
        replace(node, target="redistribute", op="call_method", args=[node.args[0], tree])  # type: ignore[index]
        if node.is_call
        else node
        for node in doc.nodes
    ]
    changed = replace(doc, nodes=tuple(nodes))
    with pytest.raises(UnsupportedError):
        check_graph(changed)
    with pytest.raises(UnsupportedError):
        node_arguments.decode_value(tree, no_leaf)
    assert "exec(" not in spelling.argument(tree, str)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ['g"); system("touch canary"); ("', "a b", "", "\ud800", "é"])
def test_a_group_has_no_name_that_breaks_out_of_generated_code(name: str, alone: None) -> None:
    (doc,) = compile_and_see(lambda x: x + 1, torch.ones(2)).checkpoints
    with pytest.raises(UnsupportedError, match=r"no name|comment"):
        restore(replace(doc, extra={**doc.extra, "world": [0, 1, [[name, [0]]]]}))
    for key in ("names", "groups"):
        with pytest.raises(UnsupportedError, match="no name"):
            meshes.make({"device": "cpu", "ranks": [0], "names": ["a"], key: [name]})


def test_groups_that_came_later_are_added(alone: None) -> None:
    distributed.impose_world(0, 1, [("late", [0])])
    assert distributed.world() == [0, 1, [["late", [0]]]]
    with pytest.raises(ValueError, match="rank 0 of 1"):
        distributed.impose_world(0, 2)


def test_the_modes_of_a_program_do_not_see_a_mesh_described(alone: None) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seeing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        seen: ClassVar[list[object]] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    mesh = meshes.make({"device": "cpu", "ranks": [0], "names": None, "groups": ["0"]})
    with Seeing():  # type: ignore[no-untyped-call]
        assert meshes.describe(mesh)["ranks"] == [0]
    assert Seeing.seen == []


@pytest.mark.parametrize(
    "parts", [["Shard"], ["Shard", "x"], ["Shard", 0, 1], ["os.system", "true"], [[]], [None]]
)
def test_what_is_no_placement_is_refused(parts: list[Json]) -> None:
    with pytest.raises(UnsupportedError):
        node_arguments.decode_value({"dtensor": parts}, no_leaf)


def test_placements_and_specs_are_data() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import ShardOrderEntry, TensorMeta

    spec = TensorMeta(torch.Size([2]), (1,), torch.float32)
    for value in ((Replicate(), Shard(-1), Partial("avg")), spec, ShardOrderEntry(0, (1, 0))):
        assert node_arguments.decode_value(node_arguments.encode_value(value), no_leaf) == value
