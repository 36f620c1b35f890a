"""The steps of a bisection: a ladder of backends, parts of the guilty one, their applications.

After `do_bisect` of torch._inductor.compiler_bisector, with three differences: a run counts as
failing only with the recorded signature; a part is guilty only if the case *passes* without it, not
if it then fails in another way; and nothing is written to Inductor's cache directory.

Lives here: `bisect`, `take_step` and the order of the steps. Not here: what a step is (`steps`),
how torch is held back
(`oracle.child.bisector`), which config entries might cure (`workaround`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchreel.errors import NotReproduced, UnsupportedError, UsageError
from torchreel.escaping.shell import command
from torchreel.minifier.bisect.results import Bisection, StepResult
from torchreel.minifier.bisect.steps import LADDER, NONE, PARTS, BisectStep, applied, part_step
from torchreel.minifier.bisect.workaround import find_workaround
from torchreel.minifier.cases.case import Case
from torchreel.minifier.initial_cases.failures import graphs_beside_program, starting_cases
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle, open_oracle
from torchreel.minifier.results.verdicts import OracleReport, raise_forbidden, raise_refusal
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.search.similar import below_dynamo, is_alike
from torchreel.minifier.storage.best_cases import best_case
from torchreel.minifier.storage.findings import keep_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import NEEDS_FRAME
from torchreel.store.records import Compile, Failure

OnStep = Callable[[StepResult], None]
_DEFAULTS = MinifyOptions()
_MOST_APPLICATIONS = 1 << 20


def bisect(
    store: Store,
    compile: Compile,
    *,
    options: MinifyOptions = _DEFAULTS,
    on_step: OnStep = lambda tried: None,
    oracle: WorkerOracle | None = None,
) -> Bisection:
    """Find the part of the compiler that a compile's failure comes from.

    Runs the simplest case that the store knows of it, a reduced one if there is any; verdicts are
    kept in the store. `on_step` is called after every step.

    Raises UsageError for a compile that did not fail, `NotReproduced` when the case does not fail
    here, `BudgetSpent`, and `UnsupportedError` for a failure without a graph.
    """
    failure, cases = _cases(store, compile, options)
    with open_oracle(oracle, failure.signature, options) as worker:
        ladder = _Ladder(store, worker, failure, cases, options.limits, on_step)
        found = ladder.climb()
        keep_finding(
            store, "bisection", ladder.case, ladder.wanted, worker.environment, found.to_json()
        )
        return found


def take_step(
    store: Store,
    compile: Compile,
    step: BisectStep,
    *,
    options: MinifyOptions = _DEFAULTS,
    oracle: WorkerOracle | None = None,
) -> StepResult:
    """Run the case of a failure in the way of one step, again: nothing known is believed."""
    failure, cases = _cases(store, compile, options)
    with open_oracle(oracle, failure.signature, options) as worker:
        ladder = _Ladder(store, worker, failure, cases, options.limits, lambda tried: None)
        ladder.find_failing()
        return ladder.again(step)


def _cases(store: Store, compile: Compile, options: MinifyOptions) -> tuple[Failure, list[Case]]:
    failure = queries.failure_of(store, compile)
    if failure is None:
        raise UsageError(
            f"{queries.without_failure(store, compile)}, so no part of the compiler is guilty. If "
            "it computes something wrong, run 'torchreel minify --accuracy' first."
        )
    if failure.stage in NEEDS_FRAME:
        minify = command("torchreel", "minify", f"{store.target}#{compile.place}", "--trust")
        raise UnsupportedError(
            f"The failure happened in stage {failure.stage or 'dynamo'!r}, before any backend was "
            "asked: it comes from Dynamo itself, whatever the backend and the config of Inductor. "
            f"'{minify}' shortens the program."
        )
    best = best_case(store, failure, options.imports)
    found = [best.case] if best else starting_cases(store, compile, failure, options)
    cases = [case for case in found if isinstance(case, Case)]
    cases = cases or graphs_beside_program(store, compile, failure, options.imports)
    if not cases:
        raise UnsupportedError(
            f"The simplest case of the failure of {compile.place} is a Python program, and only a "
            "graph can be run in these ways: 'torchreel minify --trust' shortens programs."
        )
    return failure, cases


class _Ladder:
    """One bisection: the case, the signature that counts, and what was tried."""

    def __init__(
        self,
        store: Store,
        oracle: WorkerOracle,
        failure: Failure,
        cases: Sequence[Case],
        limits: Budget,
        on_step: OnStep,
    ) -> None:
        self._store, self._oracle, self._failure = store, oracle, failure
        self._cases, self._limits, self._on_step = cases, limits, on_step
        self.wanted = below_dynamo(failure.signature)
        self.case = cases[0]
        self._judge = self._new_judge()
        self._tried: list[StepResult] = []

    def _new_judge(self) -> CachedOracle:
        self._oracle.look_for(self.wanted)
        journal = StoreJournal(self._store, self.wanted, self._oracle.environment, self._failure.id)
        return CachedOracle(self._oracle, journal, self._limits)

    def climb(self) -> Bisection:
        """Run the whole bisection."""
        self.find_failing()
        self._oracle.look_for(self.wanted)  # a simpler backend may fail later than this one did
        backend = self._guilty_backend()
        part, number, application = self._guilty_part(backend)
        base = applied(BisectStep(backend), self.case) if backend in LADDER else self.case
        cure = find_workaround(self._judge, self._oracle, base)
        return Bisection(
            backend,
            part,
            number,
            application,
            cure.line if cure is not None else "",
            tuple(self._tried),
            self.case.call_nodes,
            bool(queries.reductions(self._store, self._failure)),
            self._judge.runs,
        )

    def find_failing(self) -> None:
        """Find the first case that fails, and the signature that it fails with."""
        seen: list[str] = []
        reports: list[OracleReport] = []
        for case in self._cases:
            report = self._judge.verdict(case)
            raise_forbidden(report)
            reports.append(report)
            if report.verdict == "same" or self._is_alike(report):
                accepted = self._judge.accepted(case)
                self.case = accepted if isinstance(accepted, Case) else case
                if report.verdict != "same" and report.observed is not None:
                    self.wanted = report.observed
                    self._judge = self._new_judge()
                self._add_result(BisectStep(), report)
                return
            seen.append(f"  {report.verdict}: {report.detail}")
        raise_refusal(reports)
        raise NotReproduced(
            "The recorded failure does not happen here, so there is nothing to bisect. What "
            "happened instead:\n" + "\n".join(seen)
        )

    def _is_alike(self, report: OracleReport) -> bool:
        seen = report.observed
        return seen is not None and is_alike(seen, self.wanted)

    def again(self, step: BisectStep) -> StepResult:
        """Run one step, whatever is known of it."""
        return self._add_result(step, self._judge.run(self._made(step)))

    def _try(self, step: BisectStep) -> tuple[StepResult, OracleReport]:
        report = self._judge.verdict(self._made(step))
        return self._add_result(step, report), report

    def _made(self, step: BisectStep) -> Case:
        if step.backend and self.case.checkpoint.entry == "aot" and step.backend != "inductor":
            raise UnsupportedError(
                "The case is a graph that Inductor got from AOTAutograd: no other backend takes it."
            )
        return applied(step, self.case)

    def _add_result(self, step: BisectStep, report: OracleReport) -> StepResult:
        fails = report.verdict == "same" or self._is_alike(report)
        tried = StepResult(step, fails, report.verdict, report.detail)
        self._tried.append(tried)
        self._on_step(tried)
        return tried

    def _guilty_backend(self) -> str:
        """Return the first backend of the ladder that fails, at most the one of the case."""
        own = self.case.backend
        if self.case.checkpoint.entry == "aot":
            return "inductor"
        rungs = LADDER[: LADDER.index(own)] if own in LADDER else LADDER
        # The case was run in eager mode before it was compiled: it passed, or it would be invalid.
        for rung in rungs[1:] if self.case.eager and own in LADDER else rungs:
            if self._try(BisectStep(rung))[0].fails:
                return rung
        return own

    def _guilty_part(self, backend: str) -> tuple[str, int | None, str]:
        """Return the first part without which the case passes, and the application that matters."""
        for part in PARTS.get(backend, ()):
            tried, report = self._try(part_step(backend, part))
            if tried.fails or report.verdict != "none":
                continue
            if "=" in part:
                return part, None, ""
            number, application = self._guilty_application(backend, part, report.note)
            return part, number, application
        return "", None, ""

    def _guilty_application(self, backend: str, part: str, first: str) -> tuple[int, str]:
        """Return the application with which the failure comes: 0, 1, 3, 7, ... fails, then
        bisection.

        The run without it names it: it is the first that is left out there.
        """
        passing, names = NONE, {NONE: first}
        failing = 0
        while failing < _MOST_APPLICATIONS:
            tried, report = self._try(BisectStep(backend, part, failing))
            names[failing] = report.note
            if tried.fails:
                break
            passing, failing = failing, 2 * failing + 1
        while passing + 1 < failing:
            middle = (passing + failing) // 2
            tried, report = self._try(BisectStep(backend, part, middle))
            names[middle] = report.note
            passing, failing = (passing, middle) if tried.fails else (middle, failing)
        return failing, names[failing - 1]
