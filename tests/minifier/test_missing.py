"""No all-clear without what the recorded compile had: the program's own passes above all."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._dynamo.backends.debugging import aot_eager

import torchreel
from tests.minifier.accuracy.test_analyze import Here
from tests.minifier.recorded import record
from torchreel.errors import NotReproduced, UntrustedError, UsageError
from torchreel.minifier.accuracy import analyze as analyzing
from torchreel.minifier.accuracy.analyze import analyze
from torchreel.minifier.accuracy.wrong_results import find_difference
from torchreel.minifier.cases.case import Case
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.export import ExportOptions, _checked
from torchreel.minifier.repro.failure_summary import FailureSummary
from torchreel.minifier.results.verdicts import OracleReport, raise_missing
from torchreel.minifier.scripts.script import Script
from torchreel.recorder.settings import Settings
from torchreel.replay.compare.verdict import IDENTICAL, REFUSED
from torchreel.replay.imposed.documents import document
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import wrong_result_signature
from torchreel.store.records import Compile

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
    recording = queries.recordings(store)[0]
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


@pytest.mark.slow
def test_a_replay_without_the_pass_that_diverges_is_refused(path: Path) -> None:
    """The divergence says nothing of this torch."""
    with Store.open(path) as store:
        verdict = replay(store, the_compile(store))
    assert verdict.verdict == REFUSED
    assert PASS in verdict.detail
    assert verdict.missing == (PASS,)


@pytest.mark.slow
def test_with_trust_the_pass_is_out_of_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of the program: the analysis finds the first wrong node, the replay agrees."""

    class Trusting(Here):
        trust = True

    monkeypatch.setattr(analyzing, "WorkerOracle", Trusting)
    with Store.open(path) as store:
        found = analyze(store, the_compile(store), trust=True)
        verdict = replay(store, the_compile(store), trust=True)
    assert found.difference
    assert found.first == "mul"
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
    assert not verdict.missing


def splitting(factor: int) -> Callable[..., Any]:
    """A backend that closes over a number, and breaks every addition."""

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        for node in graph.graph.nodes:
            if node.target is operator.add:
                raise NotImplementedError(f"no addition in {factor} parts")
        return aot_eager(graph, inputs)

    return backend


@pytest.mark.slow
def test_the_programs_own_backend(tmp_path: Path) -> None:
    """A closure: refused by its name without trust, and reduced with it."""
    path = record(
        tmp_path / "run.db", lambda x: (x.sin() + 1).cos(), torch.ones(4), backend=splitting(3)
    )
    with Store.open(path, write=True) as store:
        without = replay(store, the_compile(store))
        verdict = replay(store, the_compile(store), trust=True)
        with pytest.raises(UntrustedError, match=r"splitting\.<locals>\.backend"):
            minify(store)
        reduction = minify(store, options=MinifyOptions(trust=True))
    assert without.verdict == REFUSED
    assert "splitting.<locals>.backend" in without.detail
    assert "--trust" in without.detail
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
    assert reduction.case.call_nodes == 1
    assert reduction.signature.exception_types[-1] == "NotImplementedError"


@pytest.mark.slow
def test_the_pass_of_one_call(tmp_path: Path) -> None:
    """An option of `torch.compile` that holds a function."""
    path = record(
        tmp_path / "run.db",
        product,
        torch.ones(4),
        options={"post_grad_custom_post_pass": lambda graph: wrong(graph)},
    )
    with Store.open(path) as store:
        without = replay(store, the_compile(store))
        verdict = replay(store, the_compile(store), trust=True)
    assert without.verdict == REFUSED
    assert "post_grad_custom_post_pass" in without.detail
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"


def test_no_code_is_kept_where_no_frames_are(tmp_path: Path) -> None:
    torch._dynamo.reset()
    settings = Settings(frames="none")
    with torchreel.record(tmp_path / "run.db", settings=settings):
        torch.compile(product, backend=splitting(3))(torch.ones(4))
    with Store.open(tmp_path / "run.db") as store:
        (row,) = queries.checkpoints(store, the_compile(store))
        assert b'"objects"' not in store.read_blob(row.digest)


def test_what_failed_as_recorded_needs_nothing_more() -> None:
    raise_missing([OracleReport("same", missing=(PASS,)), OracleReport("none")])
    with pytest.raises(UntrustedError, match=PASS):
        raise_missing([OracleReport("none", missing=(PASS,))])


def test_a_remedy_is_one_that_helps() -> None:
    """No import brings what the program's main file defines: that file does, which is trusted."""
    with pytest.raises(UntrustedError) as entry:
        raise_missing([OracleReport("none", missing=(f"the config entry {PASS}",))])
    assert "--trust" in str(entry.value)
    assert "__main__" not in str(entry.value)
    operator = "the operator mine.twice.default (a stand-in returns zeros)"
    with pytest.raises(UntrustedError, match="moved into a module of its own") as raised:
        raise_missing([OracleReport("none", missing=(operator,))])
    assert "--import MODULE" in str(raised.value)
    assert "minify --trust', which goes on with that file" in str(raised.value)


def test_a_script_that_lacks_the_pass_says_so(path: Path, tmp_path: Path) -> None:
    """No script holds the pass, and the verdict on one names it."""
    with Store.open(path) as store:
        (row, *_) = queries.checkpoints(store, the_compile(store))
        case = Case.from_checkpoint(document(store, the_compile(store), row), "accuracy")
    story = FailureSummary(wrong_result_signature("values"))
    script = Script("compile", "import torch\n")
    found = _checked(case, story, script, ExportOptions(tmp_path))
    assert not found.holds
    assert f"without {PASS}" in found.detail


@pytest.mark.parametrize(
    "options", [MinifyOptions(command=("python", "x.py")), MinifyOptions(predicate="guards > 4")]
)
def test_a_wrong_result_is_looked_for_by_nothing_else(path: Path, options: MinifyOptions) -> None:
    """The command was ignored, as if it had been the oracle."""
    with Store.open(path, write=True) as store, pytest.raises(UsageError, match="--accuracy"):
        minify(store, accuracy=True, options=options)


def test_a_verdict_says_that_there_was_one_call(tmp_path: Path) -> None:
    """A missing guard shows in a later call only: nothing was found, for the first."""
    path = record(tmp_path / "run.db", torch.sin, torch.ones(4), backend="aot_eager")
    worker = Here(wrong_result_signature("values"))
    with Store.open(path) as store, pytest.raises(NotReproduced, match="later call"):
        find_difference(store, None, (), worker)


def test_what_could_not_be_compared_is_not_said_to_agree(tmp_path: Path) -> None:
    """Eager mode refuses what the compiler accepts (after pytorch#197095)."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=(4, 4), mode="bilinear")

    path = record(tmp_path / "run.db", fn, torch.randn(1, 2, 0, 3), backend="aot_eager")
    worker = Here(wrong_result_signature("values"))
    with Store.open(path) as store, pytest.raises(NotReproduced) as raised:
        find_difference(store, None, (), worker)
    said = str(raised.value)
    assert said.startswith("No recorded graph could be compared with eager mode:")
    assert "not compared: RuntimeError" in said
    assert "computes anything else" not in said
