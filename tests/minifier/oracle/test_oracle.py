"""The oracle on real torch: what it says of each way in which a case can end."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from tests.minifier.hand_made import functions_of
from tests.minifier.real import NOTHING, case_from, chain_of, planted, shared_worker
from torchreel.errors import BudgetSpent, FlakyFailure, NotReproduced, UsageError
from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.options import Budget, RunLimits
from torchreel.minifier.oracle.protocol import ChildReport, TaskResult
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.passes.outputs import Suffix
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.search.failure_search import lowered_part
from torchreel.minifier.search.partitions import is_worth
from torchreel.minifier.search.search import Search
from torchreel.minifier.storage.journal import MemoryJournal
from torchreel.store.database import Store
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    hang_signature,
    wrong_result_signature,
)

PATH = planted("planted: a sine reaches a cosine")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> WorkerOracle:
    """The warm worker, with fixed limits."""
    oracle = shared_worker()
    monkeypatch.setattr(oracle, "_bounds", RunLimits(60.0, 8 << 30))
    return oracle


def judged(worker: WorkerOracle, case: Case, signature: Signature) -> OracleReport:
    """One run of a case, for one signature."""
    worker.look_for(signature)
    return worker.judge(case)


def test_the_same_failure(worker: WorkerOracle) -> None:
    """And what the call nodes computed, for the edits that follow."""
    case = case_from(chain_of(["sin", "cos"]), torch.ones(3), backend="planted_path")
    report = judged(worker, case, PATH)
    assert report.verdict == "same", report
    assert report.stage == "pre_grad"
    assert [value["size"] for value in report.values.values()] == [[3], [3]]  # type: ignore[index,call-overload]


def test_another_failure(worker: WorkerOracle) -> None:
    """With its signature."""
    case = case_from(chain_of(["tan"]), torch.ones(3), backend="planted_two")
    report = judged(worker, case, PATH)
    assert report.verdict == "other", report
    assert report.observed is not None
    assert report.observed.exception_types == ("KeyError",)


def test_no_failure(worker: WorkerOracle) -> None:
    """The backend has nothing against it."""
    case = case_from(chain_of(["cos", "sin"]), torch.ones(3), backend="planted_path")
    assert judged(worker, case, PATH).verdict == "none"


def test_what_is_slow_the_first_time_is_done_before_the_fork(worker: WorkerOracle) -> None:
    """Or every child would do it again."""
    case = case_from(chain_of(["sin"]), torch.ones(3), backend="planted_cold")
    report = judged(worker, case, PATH)
    assert report.verdict == "none", report


def test_a_case_may_use_threads(worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has started none before it forks, or the case would wait for them."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(20.0))
    case = case_from(chain_of(["sin"]), torch.ones(300, 300), harness="run", backend="eager")
    assert judged(worker, case, PATH).verdict == "none"


def test_what_eager_rejects_is_invalid(worker: WorkerOracle) -> None:
    """A matmul of sizes that do not fit."""
    case = case_from(lambda x, y: torch.sin(x @ y), torch.ones(2, 3), torch.ones(3, 2))
    x = case.checkpoint.inputs[0]
    broken = replace(case, checkpoint=replace(case.checkpoint, inputs=(x, x)))
    report = judged(worker, broken, PATH)
    assert report.verdict == "invalid", report
    assert report.stage == "fake"


def test_what_may_not_be_resolved_is_invalid(worker: WorkerOracle) -> None:
    """The allow-list holds in the worker."""
    case = case_from(chain_of(["sin"]), torch.ones(3))
    nodes = list(case.graph.nodes)
    nodes[1] = NodeDoc(nodes[1].name, "call_function", "fn:os.system", ["true"])
    report = judged(worker, case.with_graph(replace(case.graph, nodes=tuple(nodes))), PATH)
    assert report.verdict == "invalid"
    assert report.stage == "decode"
    assert "os.system" in report.detail


def test_a_backend_nobody_named_is_refused(worker: WorkerOracle) -> None:
    """A recorded name is not imported."""
    case = case_from(chain_of(["sin"]), torch.ones(3), backend="antigravity:backend")
    report = judged(worker, case, PATH)
    assert report.verdict != "same"
    assert "--import" in report.detail


def test_a_crash(worker: WorkerOracle) -> None:
    """By signal and stage; another signal is another failure."""
    case = case_from(chain_of(["sin"]), torch.ones(3), backend="planted_ends")
    assert judged(worker, case, crash_signature("pre_grad", "", "SIGSEGV")).verdict == "same"
    report = judged(worker, case, crash_signature("pre_grad", "", "SIGABRT"))
    assert report.verdict == "other"
    assert report.observed == crash_signature("pre_grad", "", "SIGSEGV")


@pytest.mark.slow
def test_a_hang(worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same stage it is what is looked for, else nobody knows what it would have been."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(3.0))
    case = case_from(chain_of(["cos"]), torch.ones(3), backend="planted_ends")
    assert judged(worker, case, hang_signature("pre_grad")).verdict == "same"
    assert judged(worker, case, hang_signature("lowering")).verdict == "unjudged"
    report = judged(worker, case, PATH)
    assert report.verdict == "unjudged"
    assert report.lasting


def test_too_much_memory(worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is killed, and unjudged."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(60.0, 2 << 30))
    case = case_from(chain_of(["exp"]), torch.ones(3), backend="planted_ends")
    report = judged(worker, case, PATH)
    assert report.verdict == "unjudged"
    assert "memory" in report.detail


def test_an_exit_without_a_verdict(worker: WorkerOracle) -> None:
    """Proves nothing, whatever the exit status: it is not kept either."""
    case = case_from(chain_of(["tan"]), torch.ones(3), backend="planted_ends")
    report = judged(worker, case, PATH)
    assert report.verdict == "unjudged"
    assert "exited 3" in report.detail
    assert not report.lasting


def test_a_wrong_result(worker: WorkerOracle) -> None:
    """Eager against compiled, on the same invented inputs."""
    case = case_from(
        chain_of(["sin", "cos"]), torch.ones(3), backend="planted_wrong", harness="accuracy"
    )
    report = judged(worker, case, wrong_result_signature("values"))
    assert report.verdict == "same", report
    assert report.observed is not None
    assert (report.observed.output, report.observed.magnitude) == (0, 0)
    right = case_from(chain_of(["cos"]), torch.ones(3), backend="planted_wrong", harness="accuracy")
    assert judged(worker, right, wrong_result_signature("values")).verdict == "none"


def test_a_run_ends_where_the_failure_would_have_been(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No code is generated once it is known that the failure comes before."""
    case = case_from(chain_of(["sin"]), torch.ones(3))
    worker.look_for(NOTHING)
    monkeypatch.setattr(worker, "_ceiling", "lowering")
    task = worker._task(case)
    assert worker.judge(case).verdict == "none"
    assert worker._ask(task).finding.step == "codegen"


@pytest.mark.parametrize(
    ("stage", "partition", "last"),
    [("lowering", "", "lowering"), ("post_grad", "backward", "backward post_grad"),
     ("pre_grad", "", None), ("codegen", "", None)],
)  # fmt: skip
def test_a_process_that_ended_shows_how_far_to_go(
    worker: WorkerOracle, stage: str, partition: str, last: str | None
) -> None:
    """Where its stage is one step, of which nothing comes after others."""
    worker.look_for(crash_signature(stage, partition, "SIGSEGV"))
    worker._learn(TaskResult(ChildReport("same"), 1.0, 0))
    assert worker._task(case_from(chain_of(["sin"]), torch.ones(3))).ceiling == last


def test_the_graph_that_inductor_gets(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Is a case that runs, with the config and the ambient state of the whole; asked for once."""
    case = case_from(lambda x: torch.softmax(x, 0), torch.ones(3))
    worker.look_for(NOTHING)
    monkeypatch.setattr(worker, "_ceiling", "lowering")
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        judge = CachedOracle(worker, MemoryJournal(), Budget(runs=1))
        part, again = (lowered_part(store, worker, case, judge) for _ in range(2))
        assert judge.runs == 1
        with pytest.raises(BudgetSpent):
            lowered_part(store, worker, replace(case, seed=1), judge)
    assert part is not None
    assert part == again
    assert is_worth(part, case)
    assert not is_worth(part, part)
    backward = replace(part, checkpoint=replace(part.checkpoint, partition="backward"))
    assert is_worth(backward, part)  # of which there may be as many calls by accident
    assert "op:aten.exp.default" in [node.target for node in part.graph.nodes]
    assert part.checkpoint.ambient == case.checkpoint.ambient
    report = worker.judge(part)
    assert (report.verdict, report.detail) == ("none", "")
    assert worker.part_of(replace(case, backend="aot_eager")) is None


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_compiles_a_case(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch, dynamic: bool
) -> None:
    """Static and dynamic sizes, up to the generated code."""
    case = case_from(lambda x: torch.relu(x) @ x.t(), torch.ones(3, 4), dynamic=dynamic)
    assert bool(case.checkpoint.hints) == dynamic
    worker.look_for(NOTHING)
    monkeypatch.setattr(worker, "_ceiling", "codegen")
    report = worker.judge(case)
    assert report.verdict == "none", report


def test_a_module_that_is_not_there() -> None:
    """Is an error of usage."""
    with pytest.raises(UsageError, match="could not be imported"):
        WorkerOracle(PATH, imports=("no_such_module_anywhere",))


class Told:
    """A listener that keeps what is said in words."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_step(self, event: ProgressEvent) -> None:
        """One step."""
        self.messages.append(event.message)


def test_a_failure_in_three_runs_of_ten(worker: WorkerOracle) -> None:
    """Is measured, reduced with repetitions, and reported with its rate."""
    case = case_from(chain_of(["sin", "cos", "neg"]), torch.ones(3), backend="planted_flaky")
    worker.look_for(PATH)
    told, found = Told(), None
    # One in 35 does not fail in its first ten runs; one step in ten or twenty is overlooked.
    for _ in range(4):
        with contextlib.suppress(NotReproduced, FlakyFailure):
            found = Search(worker, PATH, listener=told, phases_of=lambda case: [[(Suffix(),)]]).run(
                case
            )
            if found.flaky is not None and found.after_call_nodes < found.before_call_nodes:
                break
    assert found is not None
    assert functions_of(cast(Case, found.case)) == ["sin", "cos"]
    assert found.flaky is not None
    failures, tries = found.flaky
    assert 3 <= failures <= 0.8 * tries
    assert any(f"flaky: failed in {failures} of {tries} runs" in text for text in told.messages)
    assert found.case.repeats > 1
