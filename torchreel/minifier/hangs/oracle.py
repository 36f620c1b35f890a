"""An oracle for hangs, which presumes most of them after a fraction of the limit.

Lives here: how long a case is waited for, and what is known for certain. Not here: watching the
process (`oracle.worker`), going back where a presumption was wrong (`proof`).

A case is presumed to hang when, after a sixteenth of the limit, it is in the functions in which a
case that was seen to hang stayed all the time. Where the time grows with the calls, a case that may
end near the limit gets the whole of it, unless a case of the same calls has ended there.
"""

from __future__ import annotations

from typing import Protocol

from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.hangs.growth import Growth
from torchreel.minifier.hangs.presumed_to_end import EndedCases
from torchreel.minifier.hangs.stacks import shared
from torchreel.minifier.results.verdicts import OracleReport

# The part of the limit after which a hang is presumed.
_SHARE = 1 / 16
# A case that is expected to take less than so many limits has to show that it hangs.
_NEAR = 4.0
# A presumption that was wrong makes the next ones wait for longer than that case took.
_LONGER = 1.25


_PRESUMED = "presumed to end: a case of the same calls took long, and ended"


class PatientOracle(Protocol):
    """Runs a case for the whole limit, or for as long as it takes to presume that it hangs."""

    def judge_hang(self, case: AnyCase, seconds: float, stack: frozenset[str]) -> OracleReport:
        """Return the verdict; a hang is presumed after `seconds` within the functions `stack`."""


class HangOracle:
    """Judges cases for a hang."""

    def __init__(self, oracle: PatientOracle, limit: float) -> None:
        self._oracle, self._limit = oracle, limit
        self._brief = limit * _SHARE
        self._stack: frozenset[str] = frozenset()
        self._growth, self._ends = Growth(), EndedCases()
        self._sure: dict[str, int] = {}  # calls of the cases that used up the whole limit

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the verdict on a case, presumed where that is enough."""
        known = self.is_sure(case)
        if not known and self._is_near(case) and self._ends.covers(case):
            return OracleReport("none", detail=_PRESUMED, lasting=False, presumed=True)
        return self._run(case, brief=known or not self._is_near(case))

    def prove(self, case: AnyCase) -> OracleReport:
        """Return the verdict after the whole limit."""
        report = self._run(case, brief=False)
        if report.verdict == "none" and not self._is_near(case):
            # The growth does not explain it: only waiting for longer would have shown it.
            self._brief = min(self._limit, max(self._brief, _LONGER * report.seconds))
        return report

    def is_sure(self, case: AnyCase) -> bool:
        """Return True if the case was seen to use up the whole limit."""
        return case.digest in self._sure

    def doubts(self, case: AnyCase) -> bool:
        """Return True if a case may end within the limit, by what is known now."""
        return not self.is_sure(case) and self._is_near(case)

    def _is_near(self, case: AnyCase) -> bool:
        """Return True if a case of fewer calls than any sure one is expected near the limit."""
        calls = case.total_call_nodes
        if self._sure and calls >= min(self._sure.values()):
            return False
        expected = self._growth.expected(calls)
        return expected is not None and expected < _NEAR * self._limit

    def _run(self, case: AnyCase, *, brief: bool) -> OracleReport:
        seconds = self._brief if brief and self._stack else 0.0
        report = self._oracle.judge_hang(case, seconds, self._stack)
        if report.verdict == "none":
            self._growth.ended(case.total_call_nodes, report.seconds)
            if report.seconds > self._growth.least + self._brief:
                self._ends.ended(case)
        elif report.verdict == "same":
            self._ends.hung(case)
        if report.verdict == "same" and not report.presumed:
            self._sure[case.digest] = case.total_call_nodes
            # The functions that every sure case stays in; without any, nothing is presumed.
            self._stack = shared([self._stack, report.stack]) or report.stack
        return report
