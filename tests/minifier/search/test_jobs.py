"""The result does not depend on how many cases are run at a time, on kills, or on an order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.minifier.cases.test_order import cases
from tests.minifier.hand_made import BUG, Predicate, call, case_of, chain, functions_of, ref, tensor
from tests.minifier.real import PLANTED, case_from, chain_of, planted, shared_worker
from tests.minifier.search.test_search import journal_of, long_chain, sin_reaches_cos
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.interface import Ahead, ParallelOracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.store.database import Store


@dataclass
class Foreseeing(Predicate):
    """Looks ahead as far as it can, and remembers what it saw coming."""

    foreseen: set[str] = field(default_factory=set)
    asked: int = 0
    hits: int = 0
    most: int = 3
    wasted: int = 0

    def expect(self, ahead: Ahead) -> None:
        """See `ParallelOracle`."""
        for _, found in zip(range(self.most), ahead(), strict=False):
            self.foreseen.add(found.digest)

    def arrived(self, case: AnyCase) -> OracleReport | None:
        """See `ParallelOracle`."""

    def judge(self, case: Case) -> OracleReport:
        """Count what was seen coming."""
        self.asked += 1
        self.hits += case.digest in self.foreseen
        return super().judge(case)


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from(["sin", "cos", "relu"]), st.integers(0, 9))
def test_looking_ahead_changes_nothing(case: Case, culprit: str, most: int) -> None:
    """Not the result, and not one step on the way to it."""

    def fails(candidate: Case) -> bool:
        return culprit in functions_of(candidate)

    if fails(case):
        alone, looking = Predicate(fails), Foreseeing(fails, most=most)
        assert isinstance(looking, ParallelOracle)
        one, other = Search(alone, BUG).run(case), Search(looking, BUG).run(case)
        assert one.case.to_bytes() == other.case.to_bytes()
        assert alone.seen == looking.seen
        assert one.oracle_runs == other.oracle_runs


def test_most_of_what_is_asked_was_foreseen() -> None:
    """Three workers that guess are of use."""
    oracle = Foreseeing(sin_reaches_cos)
    Search(oracle, BUG).run(long_chain())
    assert oracle.asked > 25
    assert oracle.hits > 0.6 * oracle.asked


@pytest.mark.slow
def test_three_workers_find_what_one_finds() -> None:
    """With the real oracle, whose other workers are given up and taken on again."""
    functions = ["relu"] * 10
    functions[2], functions[6] = "sin", "cos"
    case = case_from(chain_of(functions), torch.randn(4), backend="planted_path")
    bug = planted("planted: a sine reaches a cosine")
    worker = shared_worker()
    worker.look_for(bug)
    one = Search(worker, bug).run(case)
    with WorkerOracle(bug, imports=(PLANTED,), jobs=3) as workers:
        three = Search(workers, bug).run(case)
    assert one.case.to_bytes() == three.case.to_bytes()
    assert one.oracle_runs == three.oracle_runs
    assert [replace(p, seconds=0.0) for p in one.passes] == [
        replace(p, seconds=0.0) for p in three.passes
    ]


@pytest.mark.parametrize("runs", [1, 9, 23])
def test_a_kill_in_the_middle_changes_nothing(tmp_path: Path, runs: int) -> None:
    """The process dies in the middle of a run; another one goes on from the store."""

    @dataclass
    class Killed(Predicate):
        fails: Callable[[Case], bool] = sin_reaches_cos

        def judge(self, case: Case) -> OracleReport:
            if len(self.seen) == runs:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().judge(case)

    whole = Predicate(sin_reaches_cos)
    wanted = Search(whole, BUG).run(long_chain())
    path = tmp_path / "run.db"
    Store.open(path, write=True, create=True).close()
    pid = os.fork()
    if pid == 0:
        with Store.open(path, write=True) as store:
            Search(Killed(), BUG, journal=journal_of(store)).run(long_chain())
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with Store.open(path, write=True) as store:
        rest = Predicate(sin_reaches_cos)
        found = Search(rest, BUG, journal=journal_of(store)).run(long_chain())
    assert found.case.to_bytes() == wanted.case.to_bytes()
    # What was found out before the kill is not asked again, but for the start's two runs.
    assert len(rest.seen) <= len(whole.seen) - runs + 2


@given(st.permutations(["a", "b", "c", "d", "e"]))
@settings(max_examples=20, deadline=None)
def test_the_order_of_equal_candidates_does_not_matter(order: list[str]) -> None:
    """Branches that differ in nothing but where they stand: the one that matters is found."""
    functions = {"a": "relu", "b": "neg", "c": "sin", "d": "exp", "e": "cos"}
    calls = [call(name, functions[name], ref("x")) for name in order]
    calls += [call("sum", "cat", [ref(name) for name in order])]
    case = case_of(calls, ["sum"], x=tensor(4, 8))
    found = Search(Predicate(lambda c: "sin" in functions_of(c)), BUG).run(case).case
    wanted = Search(Predicate(sin_alone), BUG).run(chain(["sin"])).case
    assert found.digest == wanted.digest


def sin_alone(case: Case) -> bool:
    """The bug of the test above."""
    return "sin" in functions_of(case)
