"""Exact results with real compiles: Dynamo's graphs, the worker, torch's own compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tests.minifier.planted  # registers the backends here, as it does in the worker
from tests.minifier.hand_made import functions_of
from tests.minifier.real import PLANTED, chain_of, shared_worker
from tests.minifier.recorded import record
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.store.database import Store

assert tests.minifier.planted, "imported for its side effect"

pytestmark = [pytest.mark.quality, pytest.mark.slow]


def test_a_chain_of_500(tmp_path: Path) -> None:
    """One sine reaches one cosine: 2 call nodes, no verdict computed twice."""
    functions = ["relu"] * 500
    functions[170], functions[330] = "sin", "cos"
    path = record(
        tmp_path / "run.db", chain_of(functions), torch.ones(4, 8), backend="planted_path"
    )
    with Store.open(path, write=True) as store:
        found = minify(store, options=MinifyOptions(imports=(PLANTED,)), oracle=shared_worker())
        with store.connect() as connection:
            verdicts = connection.exec_driver_sql("SELECT count(*) FROM verdicts").scalar_one()
    assert (found.before_call_nodes, found.after_call_nodes) == (500, 2)
    assert functions_of(found.case) == ["sin", "cos"]
    assert found.oracle_runs == verdicts + 1 + 3  # the start is looked at twice, the result again
    assert found.oracle_runs <= 100


def test_a_lowering_that_fails(tmp_path: Path) -> None:
    """A scatter along an empty dimension (pytorch issue 188213) in the middle of other things."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.relu(x) + y
        b = torch.nn.functional.adaptive_max_pool1d(a.sigmoid(), (0,))
        c = torch.scatter(b, -1, b, b)
        return torch.nn.functional.hardswish(c), a.tanh()

    path = record(tmp_path / "run.db", fn, torch.ones(4, 8), torch.ones(4, 8))
    with Store.open(path, write=True) as store:
        found = minify(store, oracle=shared_worker())
    assert functions_of(found.case) == ["scatter"]
    assert len(found.case.checkpoint.inputs) == 1
    assert not found.case.checkpoint.config
    assert not found.case.checkpoint.ambient
