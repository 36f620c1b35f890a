"""Programs that set the data of a tensor replay: Dynamo calls functions that have no name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchreel
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store


def same_size(x: Tensor, y: Tensor) -> Tensor:
    x.data = y
    return x * 2 + y


def other_size(x: Tensor, y: Tensor) -> Tensor:
    x.data = y[:2]
    return x.sin() * x


def other_layout(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.t()
    return x.sin() * x


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("program", "options"),
    [
        (same_size, {"backend": "aot_eager"}),
        (same_size, {"backend": "inductor"}),
        (other_size, {"backend": "aot_eager"}),
        (other_size, {"backend": "aot_eager", "dynamic": True}),
        (other_layout, {"backend": "aot_eager", "dynamic": True}),
    ],
)
def test_the_data_of_a_tensor_is_set_again(
    tmp_path: Path, program: Callable[[Tensor, Tensor], Tensor], options: dict[str, Any]
) -> None:
    torch._dynamo.reset()
    path = tmp_path / "run.db"
    with torchreel.record(path):
        torch.compile(program, fullgraph=True, **options)(torch.ones(3, 4), torch.ones(3, 4))
    torch._dynamo.reset()
    with Store.open(path) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        verdict = replay(store, row)
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
