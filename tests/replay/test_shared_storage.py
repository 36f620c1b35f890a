"""Inputs that share storage replay as views, and as tensors that autograd knows nothing of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import torchreel
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

Pair = tuple[Tensor, Tensor]


def views_of_one(n: int) -> Pair:
    y = torch.ones(n, n, requires_grad=True) * 2
    return y[:2], y[1:]


def one_detached(n: int) -> Pair:
    y = torch.ones(n, n, requires_grad=True) * 2
    return y, y.detach()


def turned(n: int) -> Pair:
    x = torch.ones(n, n)
    return x[1:, 1:], x.t()


def of_data(n: int) -> Pair:
    parameter = torch.nn.Parameter(torch.ones(n, n))
    return parameter.data, parameter.data[1:]


def written(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b * 2


def returned(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a[:1], b.t()


@pytest.mark.sampled
@pytest.mark.parametrize("function", [written, returned])
@pytest.mark.parametrize("pair", [views_of_one, one_detached, turned, of_data])
def test_inputs_that_share_storage(
    tmp_path: Path, pair: Callable[[int], Pair], function: Callable[..., object]
) -> None:
    """With numbers for sizes, and with symbols."""
    torch._dynamo.reset()
    path = tmp_path / "run.db"
    with torchreel.record(path), contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
        compiled = torch.compile(function, backend="aot_eager")
        for n in (4, 5):
            compiled(*pair(n))
    torch._dynamo.reset()
    with Store.open(path) as store:
        found = queries.compiles(store, queries.recordings(store)[0].id)
        assert found
        for compile in found:
            verdict = replay(store, compile)
            assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
