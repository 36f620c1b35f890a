"""What Dynamo compiles of a captured backward replays from data."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo import compiled_autograd

import torchreel
from tests import backward_programs
from torchreel.errors import UnsupportedError
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import Store, queries
from torchreel.store.records import Compile


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    torch._dynamo.reset()
    compiled_autograd.reset()
    yield
    compiled_autograd.reset()
    torch._dynamo.reset()


def _record(path: Path, program: Callable[[], None]) -> list[Compile]:
    with torchreel.record(path), torch._inductor.utils.fresh_cache():
        program()
    with Store.open(path) as store:
        return queries.compiles(store, queries.recordings(store)[-1].id)


@pytest.mark.slow
@pytest.mark.parametrize("program", backward_programs.ALL, ids=lambda one: one.__name__)
def test_a_captured_backward_replays_identically(
    tmp_path: Path, program: Callable[[], None]
) -> None:
    compiles = _record(tmp_path / "run.db", program)
    captured = [one for one in compiles if "/" in one.compile_id and "!" in one.compile_id]
    assert captured
    with Store.open(tmp_path / "run.db", write=True) as store:
        for one in captured:
            verdict = replay(store, one)
            assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
            assert {row.stage for row in verdict.compared} >= {"joint", "forward", "codegen"}
            static = [row for row in verdict.compared if row.kind == "aot.metadata"]
            assert [(row.recorded, row.identical) for row in static] == [(1, 1)]


def test_a_capture_names_what_is_replayed_of_it(tmp_path: Path) -> None:
    capture, inner = _record(tmp_path / "run.db", backward_programs.of_eager)
    with (
        Store.open(tmp_path / "run.db", write=True) as store,
        pytest.raises(UnsupportedError, match="autograd nodes of the program") as refusal,
    ):
        replay(store, capture)
    assert inner.place in str(refusal.value)


@pytest.mark.slow
def test_the_tensors_of_a_list_have_the_sizes_that_were_symbols(tmp_path: Path) -> None:
    """All tensors of a backward come in one list: that of the real ones, in Dynamo's graph."""
    torch._dynamo.reset()
    path = tmp_path / "run.db"
    compiler = torch.compile(backend="aot_eager", dynamic=True, fullgraph=True)
    with torchreel.record(path), compiled_autograd._enable(compiler):
        for n in (3, 5):
            x = torch.ones(n, 4, requires_grad=True)
            y = torch.nn.functional.linear(x.relu(), torch.ones(4, 4, requires_grad=True))
            (y.view(-1)[:n].sum() + y.mean()).backward()
    torch._dynamo.reset()
    with Store.open(path) as store:
        found = queries.compiles(store, queries.recordings(store)[0].id)
        (inner,) = (row for row in found if queries.checkpoints(store, row))
        verdict = replay(store, inner)
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
