"""Parts of a graph that a backend compiles apart: each is a compile of its own in its parent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import split_backends
from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import Store, queries


def _parts(log: RecordedLog) -> dict[str, str]:
    return {row.compile_id: row.frame_name for row in log.compiles}


def _ranges(symbol: str, *names: str) -> list[str]:
    return [f"{name} [{symbol}={size}]" for name in names for size in ("2..", split_backends.SIZE)]


@pytest.mark.parametrize("lazy", [False, True], ids=["at once", "when it runs"])
def test_a_part_is_a_compile_for_each_range(record: Record, lazy: bool) -> None:
    log = record(lambda: split_backends.run(2, lazy=lazy))
    assert log.lost() == []
    (symbol,) = {row.split("[")[1].split("=")[0] for row in _parts(log).values() if "[" in row}
    found = _parts(log)
    assert found.pop("0/0") == "forward"
    assert sorted(found) == ["0/0/0", "0/0/1", "0/0/2", "0/0/3"]
    assert sorted(found.values()) == sorted(_ranges(symbol, "submod_0", "submod_1"))
    parent, *parts = log.compiles
    assert [stage for stage, *_ in log.stages(parent)] == ["dynamo", "pre_grad", "guards"]
    assert len(log.graphs(parent)) == 1
    for part in parts:
        assert {c.entry for c in queries.checkpoints(log.store, part)} >= {"graph"}
        assert ("dynamo", "") in log.graphs(part)


@pytest.mark.parametrize("entry", ["compile_fx", "aot", "aot_backend"])
def test_each_entry_makes_a_part(record: Record, entry: str) -> None:
    log = record(lambda: split_backends.run(2, entry))
    assert log.lost() == []
    assert [row.compile_id for row in log.compiles] == ["0/0", "0/0/0", "0/0/1"]
    for part in log.compiles[1:]:
        (start,) = queries.events(log.store, part, "piece.start")
        assert isinstance(start.data, dict)
        assert start.data["call"] == entry.removesuffix("_backend").replace("aot", "aot_autograd")
        assert start.data["submodule"] == f"submod_{part.compile_id[-1]}"


def test_what_can_be_kept_is_noted_with_its_keys(record: Record) -> None:
    log = record(lambda: split_backends.run(1))
    for part in log.compiles[1:]:
        (kept,) = queries.events(log.store, part, "piece.artifact")
        assert isinstance(kept.data, dict)
        assert kept.data["aot_autograd"][0].startswith("a")
        assert kept.data["bytes"] > 0


def test_a_late_backward_belongs_to_its_part(record: Record) -> None:
    def program() -> None:
        model = split_backends.Layers(2)
        x = torch.randn(6, 4)
        torch.compile(model, backend=split_backends.splitting("aot"))(x).sum().backward()

    log = record(program)
    assert [row.compile_id for row in log.compiles] == ["0/0", "0/0/0", "0/0/1"]
    for part in log.compiles[1:]:
        assert ("backward", "backward", "ok") in log.stages(part)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_a_backend_that_compiles_its_graph_has_no_part(record: Record, backend: str) -> None:
    log = record(lambda: torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3)))
    assert [row.compile_id for row in log.compiles] == ["0/0"]


def test_a_graph_that_takes_lists_has_no_part(record: Record) -> None:
    # That of compiled autograd does: torch wraps it in a module of its own.
    from torch._dynamo import compiled_autograd

    def run() -> None:
        x = torch.ones(3, requires_grad=True)
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            x.sin().sum().backward()

    log = record(run)
    assert log.lost() == []
    assert sorted(row.frame_name for row in log.compiles) == ["backward", "forward"]


def test_a_module_without_a_graph_is_a_part_without_a_checkpoint(record: Record) -> None:
    from torch._functorch import aot_autograd

    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x.sin(),)

    def backend(gm: object, inputs: list[torch.Tensor]) -> object:
        def compiler(graph: torch.fx.GraphModule, _: object) -> object:
            return graph.forward

        return aot_autograd.aot_module_simplified(Sine(), inputs, fw_compiler=compiler)

    log = record(lambda: torch.compile(torch.sin, backend=backend)(torch.ones(3)))
    assert log.lost() == []
    assert _parts(log)["0/0/0"] == "Sine"


def test_a_failing_part_has_the_failure(record: Record) -> None:
    def program() -> None:
        def fails(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, torch.eye(4)).relu()

        model = torch.compile(fails, backend=split_backends.splitting("fails"))
        model(torch.ones(3, 4))

    split_backends.ENTRIES["fails"] = split_backends.by_failing
    try:
        log = record(program)
    finally:
        del split_backends.ENTRIES["fails"]
    parent, part = log.compiles
    assert (parent.status, part.status) == ("failed", "failed")
    assert queries.failure_of(log.store, parent) is None
    failure = queries.failure_of(log.store, part)
    assert failure is not None
    assert failure.stage == "lowering"


CRASH = """
import os, signal, torch
from torch._inductor.lowering import lowerings
from tests import split_backends

def dies(*args):
    os.kill(os.getpid(), signal.SIGSEGV)

lowerings[torch.ops.aten.relu.default] = dies
model = split_backends.Layers(2).requires_grad_(False)
torch.compile(model, backend=split_backends.splitting("compile_fx"))(torch.ones(3, 4))
"""


@pytest.mark.slow
def test_a_death_in_a_part_is_one_failure(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(CRASH)
    root = Path(split_backends.__file__).parents[1]
    command = ["record", "-o", str(tmp_path / "run.db"), "--", sys.executable, str(program)]
    subprocess.run(
        [sys.executable, "-m", "torchreel.cli", *command],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        check=False,
    )
    with Store.open(tmp_path / "run.db") as store:
        (failure,) = queries.failures(store)
        assert queries.compile_by_id(store, failure.compile_id).compile_id == "0/0/0"
