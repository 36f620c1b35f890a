"""Programs with the transforms of torch.func replay from their graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacrev, vmap

import torchreel
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store


@pytest.mark.sampled
@pytest.mark.parametrize(
    "transform",
    [
        grad(lambda x: x.sin().sum()),
        vmap(grad(lambda x: x.sin().sum())),
        vmap(jacrev(torch.tanh)),
        hessian(lambda x: (x**3).sum()),
    ],
    ids=["grad", "vmap of grad", "vmap of jacrev", "hessian"],
)
def test_transforms(tmp_path: Path, transform: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    path = tmp_path / "run.db"
    with torchreel.record(path):
        torch.compile(lambda x: transform(x), backend="aot_eager")(torch.ones(3, 3))
    torch._dynamo.reset()
    with Store.open(path) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        verdict = replay(store, row)
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
