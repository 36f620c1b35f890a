"""The oracle under attack: what looks like the failure and is not, and what never comes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from tests.minifier.real import case_from, chain_of, planted, shared_worker
from torchreel.errors import UsageError
from torchreel.minifier.cases.case import Harness
from torchreel.minifier.options import RunLimits
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.similar import is_alike
from torchreel.sandbox.processes import _children as children
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    hang_signature,
    memory_signature,
)

WANTED = planted("planted: a sine reaches a cosine")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> WorkerOracle:
    """The warm worker, with limits that no honest case here comes near."""
    oracle = shared_worker()
    monkeypatch.setattr(oracle, "_bounds", RunLimits(60.0, 8 << 30))
    return oracle


def judged(
    worker: WorkerOracle,
    function: str,
    wanted: Signature = WANTED,
    *,
    harness: Harness = "compile",
    backend: str = "planted_attacks",
) -> OracleReport:
    """What is said of a graph that calls one function, which names the attack."""
    case = case_from(chain_of([function]), torch.ones(3), backend=backend, harness=harness)
    worker.look_for(wanted)
    return worker.judge(case)


def test_a_child_that_exits_with_success(worker: WorkerOracle) -> None:
    """Has said nothing: the exit status proves nothing, and it may be different tomorrow."""
    report = judged(worker, "sin")
    assert (report.verdict, report.lasting) == ("unjudged", False)
    assert "exited 0" in report.detail


def test_the_right_error_on_the_screen(worker: WorkerOracle) -> None:
    """Is text, even in the form of a verdict."""
    assert judged(worker, "cos").verdict == "none"


def test_the_right_message_of_another_error(worker: WorkerOracle) -> None:
    """The type counts, and so does the stage in which it is raised."""
    report = judged(worker, "tan")
    assert report.verdict == "other"
    assert report.observed is not None
    assert report.observed.exception_types == ("ValueError",)
    late = judged(worker, "ceil", harness="run")
    assert (late.verdict, late.stage) == ("other", "run")


def test_a_child_that_imports_badly(worker: WorkerOracle) -> None:
    """Fails with the error of that import, which is another."""
    report = judged(worker, "sqrt")
    assert report.verdict == "other"
    assert report.observed is not None
    assert report.observed.exception_types == ("ModuleNotFoundError",)


def test_a_module_that_raises_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is judged at all."""
    (tmp_path / "breaks_when_imported.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="RuntimeError: not today"):
        WorkerOracle(WANTED, imports=("breaks_when_imported",))


@pytest.mark.slow
def test_a_hang_in_c_with_the_interpreter_locked(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is ended from outside."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(2.0))
    assert judged(worker, "exp", hang_signature("pre_grad")).verdict == "same"
    assert judged(worker, "exp").verdict == "unjudged"


def test_a_fork_that_keeps_the_pipe_open(worker: WorkerOracle) -> None:
    """Does not delay the verdict, and is gone when that is told."""
    began = time.monotonic()
    assert judged(worker, "log").verdict == "none"
    assert time.monotonic() - began < 50  # the limit is 60 s, the fork would sleep for 600
    assert worker._process is not None
    (slot,) = children(worker._process.pid)
    assert children(slot) == []


def test_a_fork_of_which_both_halves_go_on(worker: WorkerOracle) -> None:
    """Only the child that was asked answers, once."""
    assert judged(worker, "neg").verdict == "none"
    report = judged(worker, "tan")
    assert report.verdict == "other", "the answer belongs to the case before"


def test_a_child_that_closes_the_pipe(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then sleeps: its time runs out as anybody's."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(2.0))
    assert judged(worker, "floor").verdict == "unjudged"


def test_a_child_that_never_stops_to_report(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time runs out as anybody's."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(2.0))
    assert judged(worker, "round", hang_signature("pre_grad")).verdict == "same"


def test_a_child_that_reports_nonsense(worker: WorkerOracle) -> None:
    """Is ended, and its worker goes on."""
    report = judged(worker, "trunc")
    assert (report.verdict, report.lasting) == ("unjudged", False)
    assert report.detail == "it reported what can't be read"
    assert judged(worker, "tan").verdict == "other"


@pytest.mark.slow
def test_a_worker_that_starts_anew_runs_nothing_that_children_left(worker: WorkerOracle) -> None:
    """It is not confined, and warms up from its folder."""
    left = worker._directory / "inductor" / "left.py"
    left.write_text("raise SystemExit")
    assert worker._process is not None
    worker._process.kill()
    assert judged(worker, "tan").verdict == "other"
    assert not left.exists()


def test_a_child_that_is_killed(worker: WorkerOracle) -> None:
    """Nobody knows why: the kernel, for the memory of other processes, perhaps."""
    report = judged(worker, "abs")
    assert (report.verdict, report.lasting) == ("unjudged", False)
    killed = judged(worker, "abs", crash_signature("pre_grad", "", "SIGKILL"))
    assert killed.verdict == "unjudged"


def test_too_much_memory_is_a_failure_where_one_is_looked_for(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same stage; a recorded kill is recognised in it."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(60.0, 2 << 30))
    wanted = memory_signature("pre_grad")
    assert judged(worker, "exp", wanted, backend="planted_ends").verdict == "same"
    kill = crash_signature("pre_grad", "", "SIGKILL")
    report = judged(worker, "exp", kill, backend="planted_ends")
    assert (report.verdict, report.observed) == ("other", wanted)
    assert report.observed is not None
    assert is_alike(report.observed, kill)
    assert not is_alike(report.observed, crash_signature("pre_grad", "", "SIGSEGV"))


@pytest.mark.slow
def test_a_worker_that_is_killed(worker: WorkerOracle) -> None:
    """Another takes its place, and says what the case does."""
    worker.look_for(WANTED)
    assert worker._process is not None
    worker._process.kill()
    report = judged(worker, "tan")
    assert (report.verdict, report.lasting) == ("other", True)
