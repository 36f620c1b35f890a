"""Replay what torch's own backends for debugging compiled: they are in no registry, but torch's."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchreel
from tests import forks
from tests.replay.programs import UNCACHED
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile
from torchreel.torch_compat.dynamo import backends

PROGRAM = """
import torch
from torch._dynamo import testing
from torch._dynamo.backends import debugging
from torch.utils._device import DeviceContext

for backend in (
    testing.AotEagerAndRecordGraphs(),
    testing.InductorAndRecordGraphs(),
    testing.CompileCounterWithBackend("aot_eager"),
    debugging.ExplainWithBackend("aot_eager"),
    testing.CompileCounter(),
    testing.EagerAndRecordGraphs(),
    debugging.make_eager_backend_with_torch_function_mode(DeviceContext("cpu")),
):
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3))
"""
COMPILING = range(4)
"""Those that AOTAutograd has a part in; the others return the graph as it is."""
NAMES = (
    "torch._dynamo.testing:AotEagerAndRecordGraphs",
    "torch._dynamo.testing:InductorAndRecordGraphs",
    "torch._dynamo.testing:CompileCounterWithBackend(aot_eager)",
    "torch._dynamo.backends.debugging:ExplainWithBackend(aot_eager)",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("debugging")
    (folder / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        **UNCACHED,
        "TORCHREEL": f"full:{folder / 'run.db'}",
        "TORCHREEL_FRAMES": "all",
    }
    forks.run([sys.executable, folder / "program.py"], env=environment, check=True)
    with Store.open(folder / "run.db", write=True) as store:
        yield store


def compiles(store: Store) -> list[Compile]:
    (program, *_) = queries.recordings(store)
    return list(queries.compiles(store, program.id))


@pytest.mark.slow
@pytest.mark.parametrize("number", COMPILING)
def test_what_one_compiles_is_replayed_from_its_graph(store: Store, number: int) -> None:
    verdict = replay(store, compiles(store)[number], "graph")
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert "joint" in {row.stage for row in verdict.compared if row.identical}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))
def test_its_frame_is_replayed_with_the_very_backend(store: Store, number: int) -> None:
    verdict = replay(store, compiles(store)[number], "frame", trust=True)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert not [note for note in verdict.notes if "not one of torch's own" in note]


def test_one_that_compiles_nothing_names_the_entry_that_replays_dynamo(store: Store) -> None:
    verdict = replay(store, compiles(store)[5], "graph")
    assert verdict.verdict == "refused"
    assert "--entry frame --trust" in verdict.detail


def test_a_graph_that_dynamo_only_captures_names_that_entry_as_well(tmp_path: Path) -> None:
    """`aot_compile` compiles after Dynamo has ended."""
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        compiled = torch.compile(lambda x: x.sin() + 1, fullgraph=True, backend="eager")
        compiled.aot_compile(((torch.ones(3),), {}))
    with Store.open(tmp_path / "run.db", write=True) as store:
        found = compiles(store)
        reasons = []
        for compile in found:
            with pytest.raises(UnsupportedError, match="--entry frame --trust") as raised:
                replay(store, compile, "graph")
            reasons.append(str(raised.value))
    assert {compile.status for compile in found} == {"ok"}
    assert "is a call of aot_compile" in reasons[0]
    assert not any("not one of torch's own" in reason for reason in reasons)


def test_the_name_of_the_backend_that_it_calls_is_recorded(store: Store) -> None:
    found = [
        store.read_blob(queries.checkpoints(store, compile)[0].digest).decode()
        for compile in compiles(store)
    ]
    for number, name in enumerate(NAMES):
        assert f'"{name}"' in found[number]


@pytest.mark.parametrize(
    "name",
    [
        "torch._dynamo.testing:CompileCounterWithBackend(os:system)",
        "torch._dynamo.testing:CompileCounter(aot_eager)",
        "torch._dynamo.testing:CompileCounterWithBackend",
        "torch.hub:load",
    ],
)
def test_a_store_cannot_name_another_callable(name: str) -> None:
    with pytest.raises(UntrustedError, match="not one of torch's own"):
        backends.backend(name, {})
