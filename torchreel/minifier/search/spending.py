"""The spending of a budget: runs, and time, by everything that is done for one reduction.

A reduction may look for its start, search for one signature, then for one like it, and begin anew
with the program itself. All of that is within one budget. Called by `minify` and `cached_oracle`.
"""

from __future__ import annotations

import time

from torchreel.errors import BudgetSpent
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.results.verdicts import OracleReport


class Spending:
    """A budget, and what has been spent of it; its time begins now."""

    def __init__(self, limits: Budget) -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._runs = 0

    def count(self) -> None:
        """Count a run that is about to be made.  Raises `BudgetSpent`."""
        runs, seconds = self._limits.runs, self._limits.seconds
        if runs is not None and self._runs >= runs:
            raise BudgetSpent(f"The limit of {runs} oracle runs is reached.")
        if seconds is not None and time.monotonic() - self._began >= seconds:
            raise BudgetSpent(f"The limit of {seconds:g} s is reached.")
        self._runs += 1


class LimitedOracle:
    """An oracle whose runs are counted before they are made."""

    def __init__(self, oracle: Oracle, spending: Spending) -> None:
        self._oracle, self._spending = oracle, spending

    def judge(self, case: AnyCase) -> OracleReport:
        """See `Oracle`.  Raises `BudgetSpent`."""
        self._spending.count()
        return self._oracle.judge(case)
