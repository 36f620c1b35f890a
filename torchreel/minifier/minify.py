"""`minify`: from a failure in a store to the simplest case of it.

Lives here: the steps of a reduction, one after the other. Not here: what is looked for and where
the reduction starts (`initial_cases.problems`), the search (`search`), what is found out afterwards
(`explain`). Called by the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from torchreel.errors import (
    BudgetSpent,
    FlakyFailure,
    MinifyError,
    TrivialResult,
    UnsupportedError,
    UntrustedError,
)
from torchreel.minifier.cases.case import Case
from torchreel.minifier.explain.asking import MOST_RUNS, explain
from torchreel.minifier.initial_cases.problems import Problem, Starts, problem_of
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.oracle.command_oracle import CommandOracle
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle, open_oracle
from torchreel.minifier.results.reductions import (
    Listener,
    MinifyResult,
    beginning,
    looking,
)
from torchreel.minifier.scripts.script import candidate_script
from torchreel.minifier.search.cached_oracle import LimitedOracle, Spending
from torchreel.minifier.search.failure_search import reduce_failure
from torchreel.store.database import Store
from torchreel.store.records import Compile

_DEFAULTS = MinifyOptions()


def minify(
    store: Store,
    compile: Compile | None = None,
    *,
    accuracy: bool = False,
    options: MinifyOptions = _DEFAULTS,
    listener: Listener | None = None,
    oracle: WorkerOracle | None = None,
) -> MinifyResult:
    """Reduce the failure of a compile (left out: of the latest failing one).

    `store` has to be open for writing: verdicts and the best case so far are kept in it, so that
    the same call goes on where it stopped. With `accuracy`, no failure is needed: each recorded
    graph is run in eager mode and compiled, and the first that differs is reduced. An `oracle` that
    is given stays open: one warm worker then serves several reductions.

    Raises `UnsupportedError` for a failure without a graph, `NotReproduced`, `FlakyFailure` and
    `TrivialResult` as `Search.run` does, and `BudgetSpent` where the budget ran out before the
    failure was seen. One that ran out later and an interrupt are no exceptions here: see
    `MinifyResult.status`. With a predicate or a command in the options no failure is
    needed either: the compile (the latest, if none is given) is reduced as long as that holds.
    """
    problem = problem_of(store, compile, options, listener, accuracy=accuracy)
    if listener is not None:
        then = "looking for a wrong result" if accuracy else "running the failing case twice"
        listener.on_step(beginning(f"starting a worker and {then}"))
    with open_oracle(oracle, problem.signature, problem.options, problem.accelerator) as worker:
        spending = Spending(problem.options.limits)
        try:
            found = _reduced(
                store,
                problem,
                worker,
                spending,
                listener,
                problem.find_starts,
                is_last_way=not problem.has_another_way,
            )
        except (MinifyError, UnsupportedError, UntrustedError) as error:
            if isinstance(error, (BudgetSpent, FlakyFailure, TrivialResult)):
                raise
            otherwise = problem.starts_otherwise(error)
            if listener is not None:
                why = str(error).partition("\n")[0].partition(" What happened")[0]
                listener.on_step(looking(f"starting with {problem.other_way}, for: {why}"))
            found = _reduced(
                store, problem, worker, spending, listener, otherwise, is_last_way=True
            )
        return _with_explanation(store, worker, problem, spending, found)


def _reduced(
    store: Store,
    problem: Problem,
    worker: WorkerOracle,
    spending: Spending,
    listener: Listener | None,
    find_starts: Callable[[Oracle], Starts],
    *,
    is_last_way: bool,
) -> MinifyResult:
    try:
        starts, failure = find_starts(LimitedOracle(worker, spending))
        with _judge_for(problem, worker) as judge:
            return reduce_failure(
                store, judge, starts, failure, spending, listener, insist=is_last_way
            )
    except BudgetSpent as error:
        raise BudgetSpent(
            f"{error} The failure was not seen twice before that (oracle runs: "
            f"{spending.runs}), so nothing was reduced: set a higher limit."
        ) from error


def _judge_for(
    problem: Problem, worker: WorkerOracle
) -> AbstractContextManager[WorkerOracle | CommandOracle]:
    """Return the oracle that judges: the worker, or the command of the user's."""
    if not problem.is_for_command:
        return nullcontext(worker)
    command, limits = problem.options.command, problem.options.bounds
    script_of = partial(candidate_script, trust=problem.options.trust)
    return CommandOracle(worker, command, problem.signature, script_of, limits)


def _with_explanation(
    store: Store,
    worker: WorkerOracle,
    problem: Problem,
    spending: Spending,
    found: MinifyResult,
) -> MinifyResult:
    """Add an explanation of the smallest case, if one is wanted; an interrupt leaves it out.

    It has runs of its own, and the time that the reduction left.
    """
    wanted = problem.options.explain and not problem.is_for_command
    if not wanted or found.status != "fixpoint" or not isinstance(found.case, Case):
        return found
    if spending.seconds_left == 0:
        return found
    with suppress(KeyboardInterrupt):
        limits = Budget(spending.seconds_left, MOST_RUNS)
        explanation = explain(store, worker, found.case, found.signature, limits)
        return replace(found, explanation=explanation)
    return found
