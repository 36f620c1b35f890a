"""However many workers run ahead, and however long each run takes: the same steps."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.minifier.hand_made import BUG, call, case_of, chain, functions_of, ref, tensor
from tests.minifier.search.test_search import long_chain, sin_reaches_cos
from tests.minifier.simulated import Fails, PoolOracle, SimulatedPool, SleepingPool
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.protocol import Task
from torchreel.minifier.oracle.runs_ahead import RunResult, RunsAhead
from torchreel.minifier.passes.bypass import BypassByEqual
from torchreel.minifier.passes.outputs import Suffix
from torchreel.minifier.results.reductions import MinifyResult
from torchreel.minifier.search.course import Course, Lessons
from torchreel.minifier.search.likelihood import Likelihood
from torchreel.minifier.search.samples import Samples
from torchreel.minifier.search.search import Search

WORKERS = [1, 2, 8, 64]
FUNCTIONS = ["relu", "neg", "exp", "tan", "abs", "sin", "cos"]


def subsequence(*wanted: str) -> Fails:
    """A bug that shows where these functions are called in this order."""

    def fails(case: Case) -> bool:
        rest = iter(functions_of(case))
        return all(name in rest for name in wanted)

    return fails


def mixed(seed: int, calls: int, needed: int) -> tuple[Case, Fails]:
    """A chain of functions at random, and a bug that needs some of them."""
    chance = random.Random(seed)
    names = chance.choices(FUNCTIONS, k=calls)
    places = sorted(chance.sample(range(calls), needed))
    return chain(names), subsequence(*(names[at] for at in places))


def branches() -> Case:
    """Five branches, of which the sum of two matters."""
    names = ["a", "b", "c", "d", "e"]
    calls = [call(name, FUNCTIONS[at], ref("x")) for at, name in enumerate(names)]
    calls += [call("all", "cat", [ref(name) for name in names])]
    return case_of(calls, ["all"], x=tensor(4, 8))


REDUCTIONS = {
    "two of twenty": (long_chain(), sin_reaches_cos),
    "four of forty": mixed(1, 40, 4),
    "twelve of sixty": mixed(2, 60, 12),
    "nearly all": (chain(FUNCTIONS * 2), subsequence(*FUNCTIONS, *FUNCTIONS[:6])),
    "of branches": (branches(), lambda case: {"exp", "abs"} <= set(functions_of(case))),
}


def uneven(case: AnyCase) -> float:
    """Between one second and three, by the case."""
    return 1 + 2 * random.Random(case.digest).random()


def reduced(case: Case, oracle: PoolOracle) -> tuple[MinifyResult, list[str]]:
    """The result, and the cases that were judged on the way."""
    found = Search(oracle, BUG).run(case)
    passes = tuple(replace(item, seconds=0.0) for item in found.passes)
    return replace(found, seconds=0.0, passes=passes, wasted_runs=0), oracle.seen


@pytest.mark.sampled
@pytest.mark.parametrize("name", REDUCTIONS)
def test_any_number_of_workers_takes_the_same_steps(name: str) -> None:
    case, fails = REDUCTIONS[name]
    alone = reduced(case, PoolOracle(SimulatedPool(1, fails, uneven), 1))
    for workers in WORKERS[1:]:
        assert reduced(case, PoolOracle(SimulatedPool(workers, fails, uneven), workers)) == alone


def test_workers_that_sleep_take_them_too() -> None:
    """In the order of a real clock, which is another one each time."""
    case, fails = REDUCTIONS["two of twenty"]
    alone = reduced(case, PoolOracle(SimulatedPool(1, fails, uneven), 1))
    pool = SleepingPool(8, fails, lambda case: uneven(case) / 300)
    try:
        assert reduced(case, PoolOracle(pool, 8)) == alone
    finally:
        pool.close()


def test_more_workers_are_faster_and_none_runs_in_vain() -> None:
    """Counted, not timed: one worker wastes nothing, and eight take less than a third as long."""
    case, fails = REDUCTIONS["twelve of sixty"]
    ends, wasted = [], []
    for workers in WORKERS:
        pool = SimulatedPool(workers, fails, lambda case: 1.0)
        wasted.append(Search(PoolOracle(pool, workers), BUG).run(case).wasted_runs)
        ends.append(pool.now)
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > 3 * ends[2]
    assert wasted[0] == 0
    assert 0 < wasted[1] < wasted[2] < wasted[3]


def test_no_round_is_for_the_trivial_case_alone() -> None:
    """Only before the case itself has been run nothing else is: limits are learned from it."""
    case, fails = REDUCTIONS["of branches"]
    pool = SimulatedPool(64, fails, lambda case: 1.0)
    oracle = PoolOracle(pool, 64)
    begun: list[int] = []
    wait = pool.wait

    def waited(seconds: float) -> None:
        begun.append(len(pool.busy))
        wait(seconds)

    pool.wait = waited  # type: ignore[method-assign]
    Search(oracle, BUG).run(case)
    assert begun[0] == 2
    assert begun[1] > 20
    assert pool.now <= 4.0


def test_idle_workers_find_out_which_calls_are_needed() -> None:
    """What would be found out in twelve steps, one after the other, in few rounds."""
    case, fails = REDUCTIONS["twelve of sixty"]
    pool = SimulatedPool(64, fails, lambda case: 1.0)
    Search(PoolOracle(pool, 64), BUG).run(case)
    assert pool.now <= 9.0  # 10 where only what the search may ask about is run


def test_a_sample_tells_of_candidates_of_other_passes() -> None:
    """A call that can't be bypassed alone makes it unlikely that more can be cut off with it."""
    case = long_chain()
    likelihood = Likelihood()
    samples = Samples(likelihood)
    course = Course.to_fixpoint([((Suffix(), BypassByEqual()),)], case, BUG, Lessons())
    before = likelihood.of(course)
    found = list(samples.of(course, lambda candidate: None))
    assert len({candidate.digest for candidate in found}) > 10
    samples.learn(case, lambda candidate: candidate if sin_reaches_cos(candidate) else False)
    assert likelihood.of(course) < before


def test_an_answer_for_other_names_is_not_used() -> None:
    """What nodes computed is told by their names, which are not part of the digest."""
    case = chain(["sin", "cos"])
    calls = [call("p", "sin", ref("x")), call("q", "cos", ref("p"))]
    renamed = case_of(calls, ["q"], x=tensor(4, 8))
    assert renamed.digest == case.digest
    pool = SimulatedPool(2, sin_reaches_cos, lambda case: 1.0)
    runs = RunsAhead(2, lambda found: Task(found, BUG, 1.0, 1))
    first = Task(chain(["relu"]), BUG, 1.0, 1)
    runs.expect(lambda: iter([renamed]))
    runs.answer(pool, first, 1e9)
    assert runs.arrived(pool, renamed) is not None
    assert runs.arrived(pool, case) is None
    task = Task(case, BUG, 1.0, 1)
    assert runs.answer(pool, task, 1e9).finding.verdict == "same"
    assert (pool.now, runs.count.wasted) == (2.0, 1)


def test_what_happened_ahead_counts_only_if_it_happens_again() -> None:
    """A run that was killed before anybody asked for it."""
    case = chain(["sin", "cos"])
    pool = SimulatedPool(2, sin_reaches_cos, lambda case: 1.0)
    runs = RunsAhead(2, lambda found: Task(found, BUG, 1.0, 1))
    runs.expect(lambda: iter([case]))
    runs.answer(pool, Task(chain(["relu"]), BUG, 1.0, 1), 1e9)
    ((key, answer),) = pool.answers.items()
    killed = replace(answer.result, lasting=False, killed=True)
    pool.answers[key] = RunResult(answer.task, killed)
    found = runs.answer(pool, Task(case, BUG, 1.0, 1), 1e9)
    assert (found.lasting, found.killed) == (True, False)
