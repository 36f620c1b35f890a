"""Which recorded graphs are the furthest from eager mode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.minifier.accuracy.ranking import GraphAccuracy, in_order, rank
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.store import Store
from torchreel.store.failures.signature import wrong_result_signature


def one(state: str, error: float | None, address: str = "") -> GraphAccuracy:
    return GraphAccuracy(address, "f", 1, 1, state, error, "")  # type: ignore[arg-type]


def test_what_differs_most_comes_first() -> None:
    given = [
        one("agrees", None), one("differs", 0.1), one("not compared", None),
        one("differs", None), one("differs", 3.0),
    ]  # fmt: skip
    assert [(found.state, found.error) for found in in_order(given)] == [
        ("differs", None), ("differs", 3.0), ("differs", 0.1),
        ("not compared", None), ("agrees", None),
    ]  # fmt: skip


def unfolded(x: torch.Tensor) -> torch.Tensor:
    """Return windows with gaps, changed in place: wrong on torch 2.13."""
    y = x.clone()
    y.unfold(0, 2, 3).add_(1)
    return y


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@pytest.mark.slow
def test_each_distinct_graph_is_run_once(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with torchreel.record(path):
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(sine, backend="aot_eager")(torch.ones(8))
        torch.compile(unfolded, backend="inductor")(torch.ones(64))
    said: list[str] = []
    with Store.open(path) as store, WorkerOracle(wrong_result_signature("values")) as oracle:
        found = rank([store], (), oracle, said.append)
    assert [each.frame for each in found if each.state == "agrees"][-1:] == ["sine"]
    (twice,) = [each for each in found if each.frame == "sine"]
    assert (twice.compiles, twice.call_nodes, twice.error) == (2, 2, None)
    assert len(said) == len(found) == 2
