"""An oracle with a cache and a budget, which also collects other failures that it meets.

`CachedOracle.verdict` looks into the journal first, so that no verdict is computed twice. It counts
the runs, and stops the search when the budget is spent: one `Spending` for all that is done for one
reduction, which may search for one signature, then for one like it, and begin anew with the program
itself. Called by `reproduction`, `search` and `minify`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchreel.errors import BudgetSpent
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase, Key
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.interface import Ahead, Oracle, ParallelOracle
from torchreel.minifier.results.reductions import OtherFailure
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.storage.journal import Journal
from torchreel.store.failures.signature import Signature

# How many of the cases that failed last are at hand without reading them from the journal.
_LAST_FAILED = 8
# How many of those that were run ahead are kept as they are after their run.
_MOST_FRESH = 64


def _nothing() -> Iterator[AnyCase]:
    return iter(())


class Spending:
    """A budget, and what has been spent of it; its time begins now."""

    def __init__(self, limits: Budget) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self.runs = 0

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds that are left, not below 0; None where time is not limited."""
        if self._limits.seconds is None:
            return None
        return max(0.0, self._began + self._limits.seconds - time.monotonic())

    def count(self) -> None:
        """Count a run that is about to be made.  Raises `BudgetSpent`."""
        runs, seconds = self._limits.runs, self._limits.seconds
        if runs is not None and self.runs >= runs:
            raise BudgetSpent(f"The limit of {runs} oracle runs is reached.")
        if seconds is not None and self.seconds_left == 0:
            raise BudgetSpent(f"The limit of {seconds:g} s is reached.")
        self.runs += 1


class LimitedOracle:
    """An oracle whose runs are counted before they are made."""

    def __init__(self, oracle: Oracle, spending: Spending) -> None:
        self._oracle, self._spending = oracle, spending

    def judge(self, case: AnyCase) -> OracleReport:
        """See `Oracle`.  Raises `BudgetSpent`."""
        self._spending.count()
        return self._oracle.judge(case)


class CachedOracle:
    """Verdicts on cases, each computed once."""

    def __init__(self, oracle: Oracle, journal: Journal, limits: Budget | Spending) -> None:
        self._oracle, self.journal = oracle, journal
        self._spending = limits if isinstance(limits, Spending) else Spending(limits)
        self._began = time.monotonic()
        self._seen: dict[str, OracleReport] = {}
        self._failed: dict[str, AnyCase] = {}  # the last ones, with fresh descriptions
        self._stored: dict[str, OracleReport] = {}  # what the journal knew, when asked ahead
        self._fresh: dict[str, AnyCase] = {}
        self._unknown: set[str] = set()  # to the journal, when a look ahead asked
        self._caught: dict[str, tuple[Key, OtherFailure]] = {}
        self.runs = self.hits = 0
        self._wasted_before = self._wasted()

    @property
    def seconds(self) -> float:
        """Return the seconds since the search began."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds that the budget leaves; None where time is not limited."""
        return self._spending.seconds_left

    def verdict(self, case: AnyCase, ahead: Ahead = _nothing) -> OracleReport:
        """Return the report on a case, known or new.  Raises `BudgetSpent`.

        Where there are workers to spare, cases that may follow are run at the same time.  They are
        not counted and not kept before they are needed: results and budgets do not depend on them.
        """
        known = self.known(case)
        if known is not None and not self._is_lost(case, known):
            self.hits += 1
            report = known
        else:
            if case.repeats == 1 and isinstance(self._oracle, ParallelOracle):
                self._oracle.expect(ahead)
            report = self._repeated(case)
            self.keep(case, report)
        # What eager did not check may fail through its own fault.
        if report.verdict == "other" and report.observed is not None and case.eager:
            self._catch(case, report.observed)
        return report

    def known(self, case: AnyCase) -> OracleReport | None:
        """Return the report on a case that is known already."""
        return self._seen.get(case.digest) or self.journal.verdict(case)

    @property
    def wasted(self) -> int:
        """Return the number of runs ahead of the search whose results were not used."""
        return self._wasted() - self._wasted_before

    def _wasted(self) -> int:
        return self._oracle.wasted if isinstance(self._oracle, ParallelOracle) else 0

    def foreseen(self, case: AnyCase) -> AnyCase | bool | None:
        """Return the case with fresh values if it failed with the signature, False if it did not.

        None if neither is known yet. Nothing is counted or kept.
        """
        report = self._seen.get(case.digest) or self._stored.get(case.digest)
        if report is None and isinstance(self._oracle, ParallelOracle):
            report = self._oracle.arrived(case)
        if report is None and case.digest not in self._unknown:
            report = self.journal.verdict(case)
            if report is None:
                self._unknown.add(case.digest)
            else:
                self._stored[case.digest] = report
        if report is None:
            return None
        return self._refreshed(case, report) if report.verdict == "same" else False

    def _refreshed(self, case: AnyCase, report: OracleReport) -> AnyCase:
        """Return the case with the values that its run computed: the same object each time."""
        found = self._fresh.get(case.digest)
        if found is None:
            found = self._with_values(case) or case.refreshed(report.values)
            self._fresh[case.digest] = found
            while len(self._fresh) > _MOST_FRESH:
                del self._fresh[next(iter(self._fresh))]
        return found

    def _is_lost(self, case: AnyCase, known: OracleReport) -> bool:
        """Return True if a case failed, but its document, from which to go on, was dropped."""
        return known.verdict == "same" and self._with_values(case) is None

    def _repeated(self, case: AnyCase) -> OracleReport:
        """Run a case as often as it takes to see it fail, or to believe that it does not."""
        report = self.run(case)
        for _ in range(case.repeats - 1):
            if report.verdict in ("same", "invalid"):
                break
            report = self.run(case)
        return report

    def run(self, case: AnyCase, more: int = 0) -> OracleReport:
        """Run a case once, known or not; `more` runs of it follow.  Raises `BudgetSpent`."""
        self.count()
        if more and isinstance(self._oracle, ParallelOracle):
            self._oracle.expect(lambda: iter([case] * more))
        return self._oracle.judge(case)

    def count(self) -> None:
        """Count a run that is about to be made.  Raises `BudgetSpent`."""
        self._spending.count()
        self.runs += 1

    def keep(self, case: AnyCase, report: OracleReport) -> None:
        """Remember a verdict: in the journal if it would be the same tomorrow."""
        # Thousands of verdicts are remembered, but not what every node of each case computed.
        self._seen[case.digest] = replace(report, values={})
        case = case.refreshed(report.values)
        if report.verdict == "same":
            self._failed[case.digest] = case
            while len(self._failed) > _LAST_FAILED:
                del self._failed[next(iter(self._failed))]
        if report.lasting:
            self.journal.keep(case, report)

    def forget_presumed(self) -> None:
        """Forget the hangs that were presumed: one of them was none."""
        for digest in [found for found, report in self._seen.items() if report.presumed]:
            del self._seen[digest]

    def accepted(self, case: AnyCase) -> AnyCase:
        """Return a case that failed with the signature, with fresh descriptions of its values."""
        found = self._with_values(case)
        return case if found is None else found

    def _with_values(self, case: AnyCase) -> AnyCase | None:
        """Return the same case as it failed; None where a store keeps another under its digest."""
        found = self._failed.get(case.digest) or self.journal.accepted(case.digest)
        if found is None:
            return None
        found = found.with_imports(case.imports)
        return found if found.digest == case.digest else None

    def observed(self, cases: Sequence[AnyCase]) -> list[Signature]:
        """Return the other signatures with which cases that were judged have failed."""
        reports = [self.known(case) for case in cases]
        return [r.observed for r in reports if r is not None and r.observed is not None]

    def _catch(self, case: AnyCase, signature: Signature) -> None:
        if not signature.stage:  # a program that is wrong itself, and compiled nothing
            return
        key = sort_key(case)
        known = self._caught.get(signature.digest)
        if known is None or key < known[0]:
            found = OtherFailure(signature, case.digest, case.call_nodes)
            self._caught[signature.digest] = (key, found)
            self.journal.other_failure(signature, case)

    @property
    def other_failures(self) -> tuple[OtherFailure, ...]:
        """Return the other failures that were met, in the order in which they were met."""
        return tuple(found for _, found in self._caught.values())
