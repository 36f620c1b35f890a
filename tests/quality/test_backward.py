"""A failure in the backward graph: the forward that leads to it is reduced as well."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

import torchreel
from tests.minifier import planted_lowering
from tests.minifier.hand_made import functions_of
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.store import queries
from torchreel.store.database import Store

pytestmark = [pytest.mark.quality, pytest.mark.slow]
planted_lowering.repair()  # all tests of this process have imported it


@pytest.mark.slow
def test_a_failure_in_the_backward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a sine is a cosine, which has no lowering here: `sin`, trained."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ w) * 2
        return (torch.sin(y).exp() @ w).sum(-1)

    path = tmp_path / "run.db"
    torch._dynamo.reset()
    planted_lowering.break_again()
    inputs = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
    with torchreel.record(path), contextlib.suppress(Exception):
        torch.compile(fn)(*inputs).sum().backward()
    planted_lowering.repair()
    torch._dynamo.reset()
    monkeypatch.chdir(Path(__file__).parents[2])
    with Store.open(path, write=True) as store:
        (failure,) = queries.failures(store)
        assert (failure.stage, failure.partition) == ("lowering", "backward")
        found = minify(store, options=MinifyOptions(imports=("tests.minifier.planted_lowering",)))
    assert functions_of(found.case) == ["sin"]
    assert found.case.harness == "train"
