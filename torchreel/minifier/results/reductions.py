"""The result of a reduction, and its progress as a listener sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torchreel.errors import BudgetSpent, MinifyError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.results.verdicts import Verdict
from torchreel.store.failures.signature import Signature

Status = Literal["fixpoint", "budget", "interrupted"]


@dataclass(frozen=True)
class PassCount:
    """The counts of one pass: candidates that were tried, found in the cache, and accepted."""

    name: str
    tried: int = 0
    cached: int = 0
    accepted: int = 0
    removed_nodes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ProgressEvent:
    """One candidate was judged (or taken from the cache), or is looked for."""

    kind: Literal["begin", "looking", "start", "accepted", "rejected", "note", "end"]
    pass_name: str
    call_nodes: int
    """Call nodes of the best case so far."""
    start_call_nodes: int
    oracle_runs: int
    cache_hits: int
    seconds: float
    verdict: Verdict | None = None
    message: str = ""
    left: int | None = None
    """The number of candidates up to a fixpoint if no step succeeds any more; None until every pass
    has proposed its edits."""
    unit: str = "call node"
    """The unit of the counts: call nodes of a graph, statements of a program."""
    seconds_left: float | None = None
    """The seconds that the budget leaves, in which the failing case was looked for as well; None
    where time is not limited."""


def looking(message: str) -> ProgressEvent:
    """Return the event that says what is run now to find something to reduce."""
    return ProgressEvent("looking", "", 0, 0, 0, 0, 0.0, message=message)


def beginning(message: str) -> ProgressEvent:
    """Return the event that says that a worker is started, and what for."""
    return ProgressEvent("begin", "", 0, 0, 0, 0, 0.0, message=message)


class Listener(Protocol):
    """A listener to progress; the command line renders it."""

    def on_step(self, event: ProgressEvent) -> None:
        """Take notice of a step. Called from the search's thread; must not raise."""


@dataclass(frozen=True)
class OtherFailure:
    """Another bug that was met: its signature, and the smallest case that shows it."""

    signature: Signature
    case_digest: str
    call_nodes: int


@dataclass(frozen=True)
class MinifyResult:
    """The result of a search."""

    case: AnyCase
    """The simplest case that still fails with the signature."""
    signature: Signature
    before_call_nodes: int
    after_call_nodes: int
    oracle_runs: int
    cache_hits: int
    seconds: float
    passes: tuple[PassCount, ...]
    other_failures: tuple[OtherFailure, ...]
    status: Status
    flaky: tuple[int, int] | None = None
    """(failures, tries) where the case fails only sometimes."""
    reduction_id: int | None = None
    """The row of `reductions`, where there is a store."""
    wasted_runs: int = 0
    """The runs ahead of the search, on other workers, that turned out not to be needed."""
    explanation: Explanation | None = None
    """The explanation of the case, where one was wanted."""

    def error(self) -> MinifyError | None:
        """Return the error of a command that wanted a fixpoint; None if there is one."""
        if self.status == "fixpoint":
            return None
        why = "was interrupted" if self.status == "interrupted" else "spent its budget"
        return BudgetSpent(
            f"The reduction {why} after {self.oracle_runs} oracle runs, at {self.after_call_nodes} "
            f"of {self.before_call_nodes} call nodes. The best case is in the store: run the same "
            "command again to go on from there."
        )
