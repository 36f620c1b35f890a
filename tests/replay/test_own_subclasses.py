"""Inputs of a tensor subclass that the program itself defines replay, with trust."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import forks
from torchreel.replay.compare.verdict import IDENTICAL, REFUSED
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

PROGRAM = """
import torch
from torch.utils import _pytree as pytree

class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=held.device, strides=held.stride())

    def __init__(self, held):
        self.held = held

    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Wrapper(inner["held"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        given = pytree.tree_map_only(Wrapper, lambda x: x.held, (args, kwargs or {}))
        made = func(*given[0], **given[1])
        return pytree.tree_map_only(torch.Tensor, Wrapper, made)

f = torch.compile(lambda x, y: x.sin() * y, backend="aot_eager")
f(Wrapper(torch.ones(3)), Wrapper(torch.ones(3)))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("trust", [True, False])
def test_a_class_of_the_program_is_code_and_wants_trust(tmp_path: Path, trust: bool) -> None:
    path, program = tmp_path / "run.db", tmp_path / "program.py"
    program.write_text(PROGRAM)
    forks.run(
        [sys.executable, program], env={**os.environ, "TORCHREEL": f"full:{path}"}, check=True
    )
    with Store.open(path) as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        verdict = replay(store, row, trust=trust)
    assert verdict.verdict == (IDENTICAL if trust else REFUSED), f"{verdict}\n{verdict.difference}"
    if not trust:
        assert "--trust" in verdict.detail
