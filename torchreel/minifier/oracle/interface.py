"""The interface of an oracle, for the search, explanations and bisections.

The oracles themselves: `worker_oracle`, `command_oracle`, and `hangs.oracle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.results.verdicts import OracleReport


class Oracle(Protocol):
    """Runs a case once and reports the result."""

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the verdict on one run of the case."""


Ahead = Callable[[], Iterator[AnyCase]]
"""Gives the cases that will probably be judged next, the most probable first.

One that comes again is one that is judged again.
"""


@runtime_checkable
class ParallelOracle(Oracle, Protocol):
    """One that has workers for more than one case at a time."""

    def expect(self, ahead: Ahead) -> None:
        """Run some of the cases that may follow, while the next one is judged.

        `ahead` is called again whenever a result has come.
        """

    @property
    def wasted(self) -> int:
        """Return the number of runs begun or made whose results were never used."""

    def arrived(self, case: AnyCase) -> OracleReport | None:
        """Return the report on a case that was run ahead, if it has come."""
