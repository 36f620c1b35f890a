"""No all-clear without what the recorded compile had: the program's own passes above all."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor_config

from tests.minifier.recorded import record
from tests.minifier.test_analyze import Here
from torchreel.errors import UntrustedError
from torchreel.minifier import analyze as analyzing
from torchreel.minifier.accuracy import find_difference
from torchreel.minifier.analyze import analyze
from torchreel.minifier.events import Report, raise_missing
from torchreel.replay.replay import replay
from torchreel.replay.verdict import REFUSED
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile
from torchreel.store.signature import wrong_result_signature

PASS = "inductor.post_grad_custom_post_pass"


def wrong(graph: torch.fx.Graph) -> None:
    """A pass of the program that makes a sum of each product."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor:
            node.target = torch.ops.aten.add.Tensor


def product(x: torch.Tensor) -> torch.Tensor:
    return operator.mul(x, 3.0).relu()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a program whose own pass makes the result wrong."""
    with inductor_config.patch(post_grad_custom_post_pass=wrong):
        return record(tmp_path_factory.mktemp("missing") / "run.db", product, torch.ones(4))


def the_compile(store: Store) -> Compile:
    (recording,) = queries.recordings(store)
    (row,) = queries.compiles(store, recording.id)
    return row


def test_an_analysis_without_the_pass_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to say that eager and compiled agree."""
    monkeypatch.setattr(analyzing, "WorkerOracle", Here)
    with Store.open(path) as store, pytest.raises(UntrustedError, match=PASS):
        analyze(store, the_compile(store))


def test_a_search_for_wrong_results_without_the_pass_is_refused(path: Path) -> None:
    """It used to say that no recorded graph computes anything else."""
    worker = Here(wrong_result_signature("values"))
    with Store.open(path) as store, pytest.raises(UntrustedError) as raised:
        find_difference(store, None, (), worker)
    assert PASS in str(raised.value)
    assert "same results" in str(raised.value)


def test_a_replay_without_the_pass_that_diverges_is_refused(path: Path) -> None:
    """The divergence says nothing of this torch."""
    with Store.open(path) as store:
        verdict = replay(store, the_compile(store))
    assert verdict.verdict == REFUSED
    assert PASS in verdict.detail
    assert verdict.missing == (PASS,)


def test_what_failed_as_recorded_needs_nothing_more() -> None:
    raise_missing([Report("same", missing=(PASS,)), Report("none")])
    with pytest.raises(UntrustedError, match=PASS):
        raise_missing([Report("none", missing=(PASS,))])
