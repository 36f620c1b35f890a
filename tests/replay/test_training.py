"""Steps of training as programs write them: their compiles replay identically from the graph."""

from pathlib import Path

import pytest

from tests.replay.programs import record
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

_CHECKPOINT_WITH_RANDOM_NUMBERS = """
import torch
from torch.utils.checkpoint import checkpoint
layer = torch.nn.Linear(8, 8)
def f(x):
    region = lambda y: torch.nn.functional.dropout(layer(y).relu(), 0.1)
    return checkpoint(region, x, use_reentrant=False).sum()
compiled = torch.compile(f, backend="aot_eager")
batch = torch.ones(4, 8, requires_grad=True)
for size in (2, 3):  # the second time the layer has gradients, and the batch is a view of another
    compiled(batch[:size]).backward()
"""
_HOOK = """
import torch
def f(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y.sin()
torch.compile(f, backend="aot_eager")(torch.ones(3, requires_grad=True)).sum().backward()
"""
_BACKWARD_WITHIN = """
import torch
layer = torch.nn.Linear(4, 1)
@torch.compile(backend="aot_eager")
def step(x):
    loss = layer(x).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    return loss
step(torch.ones(3, 4))
"""
_NESTED = """
import torch
def f(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets).sin().values()
torch.compile(f, backend="aot_eager")(torch.ones(9, 4), torch.tensor([0, 2, 5, 9]))
"""
_PROGRAMS = {
    "checkpoint_with_random_numbers": _CHECKPOINT_WITH_RANDOM_NUMBERS,
    "hook": _HOOK,
    "backward_within": _BACKWARD_WITHIN,
    "nested": _NESTED,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _PROGRAMS)
def test_each_compile_replays_identically(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_PROGRAMS[name]) == 0
    with Store.open(path, write=True) as store:
        compiles = [
            row
            for row in queries.compiles(store, 1)
            if row.status != "restarted" and not queries.is_without_graph(store, row)
        ]
        assert compiles
        for compile in compiles:
            verdict = replay(store, compile)
            assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
