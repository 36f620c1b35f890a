"""Regions of activation checkpointing with a policy of the program replay without the program."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import torchreel
from torchreel.events.aot import Partition
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

_MM, _SIN = torch.ops.aten.mm.default, torch.ops.aten.sin.default


def products(context: object, operator: object, *args: object, **kwargs: object) -> object:
    """Save products, and nothing else."""
    return CheckpointPolicy.MUST_SAVE if operator is _MM else CheckpointPolicy.PREFER_RECOMPUTE


def sines(context: object, operator: object, *args: object, **kwargs: object) -> bool:
    """Save sines, and nothing else."""
    return operator is _SIN


def every_other() -> object:
    """Save every other product, as the policies of large models do."""
    number = itertools.count()

    def policy(context: object, operator: object, *args: object, **kwargs: object) -> object:
        saved = operator is _MM and next(number) % 2 == 0
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def region(function: Callable[..., Tensor], *args: Tensor, context: object) -> Tensor:
    result: Tensor = checkpoint(function, *args, use_reentrant=False, context_fn=context)
    return result


def layers(x: Tensor, w: Tensor) -> Tensor:
    return torch.sigmoid(torch.sin(torch.sin(x @ w) @ w) @ w).cos()


def one(x: Tensor, w: Tensor, context: object) -> Tensor:
    return region(layers, x, w, context=context).sum()


def two_nested(x: Tensor, w: Tensor) -> Tensor:
    def outer(x: Tensor, w: Tensor) -> Tensor:
        inner = region(layers, x, w, context=partial(create_selective_checkpoint_contexts, sines))
        return torch.tanh(inner @ w)

    made = region(outer, x, w, context=partial(create_selective_checkpoint_contexts, [_MM]))
    return region(layers, made, w, context=every_other).sum()


PROGRAMS = {
    "function": partial(one, context=partial(create_selective_checkpoint_contexts, products)),
    "truth value": partial(one, context=partial(create_selective_checkpoint_contexts, sines)),
    "list": partial(one, context=partial(create_selective_checkpoint_contexts, [_SIN])),
    "state": partial(one, context=every_other),
    "nested": two_nested,
}


def record(path: Path, program: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Record one step of training."""
    torch._dynamo.reset()
    x, w = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    with torchreel.record(path):
        torch.compile(lambda x, w: program(x, w), backend="aot_eager", fullgraph=True)(x, w)
    torch._dynamo.reset()


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_policy_answers_is_saved_in_a_replay(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.db"
    record(path, PROGRAMS[name])
    with Store.open(path) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        assert queries.events(store, row, Partition.kind)  # it is compared, with what is saved
        verdict = replay(store, row)
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
