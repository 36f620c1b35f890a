"""What a reduction is told and what it tells: limits, progress, the result.

Plain data, imported by the search, the command line and the reports alike; nothing here acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from torchreel.errors import (
    BudgetSpent,
    ForbiddenError,
    MinifyError,
    UnsupportedError,
    UntrustedError,
)
from torchreel.store.jsontypes import Json
from torchreel.store.signature import Signature

if TYPE_CHECKING:
    from torchreel.minifier.cases.kinds import AnyCase
    from torchreel.minifier.explain.results import Explanation

Verdict = Literal["same", "other", "none", "invalid", "unjudged"]
"""What an oracle says of a case.

- same: it fails, with the signature that is looked for
- other: it fails with another signature
- none: it does not fail
- invalid: it is no program: eager (or fake propagation) rejects it, or it can't be rebuilt
- unjudged: nobody knows: killed for its time or memory, or the worker itself broke
"""

Status = Literal["fixpoint", "budget", "interrupted"]


@dataclass(frozen=True)
class Report:
    """A verdict with what was seen."""

    verdict: Verdict
    observed: Signature | None = None
    """The signature of the failure, for `same` and `other`."""
    detail: str = ""
    """The failure's message, or why the case is invalid or could not be judged."""
    stage: str = ""
    """The last stage that was entered."""
    seconds: float = 0.0
    values: Mapping[str, Json] = field(default_factory=dict)
    """Fresh descriptions of the values of call nodes, by name, where the case has others."""
    lasting: bool = True
    """Whether the same case would get the same verdict again: it may be kept."""
    note: str = ""
    """Where a case holds a part of the compiler back (`bisect`): what was left out first."""
    missing: tuple[str, ...] = ()
    """What of the recording the run was made without: config entries, passes."""
    stack: frozenset[str] = frozenset()
    """Of a hang: the functions that were on the stack each time that it was looked at."""
    presumed: bool = False
    """Whether it was presumed before the whole limit was over."""

    @property
    def refusal(self) -> str:
        """Why the case may not, or cannot, be built; empty for any other verdict."""
        if self.verdict != "invalid" or self.stage != "decode":
            return ""
        kind, _, reason = self.detail.partition(": ")
        known = reason if kind in _REFUSALS else ""
        return known or f"The recorded graph can't be built here, so nothing was run: {self.detail}"


_REFUSALS = {kind.__name__ for kind in (UnsupportedError, UntrustedError, ForbiddenError)}


def raise_refusal(reports: Sequence[Report]) -> None:
    """Raise `UnsupportedError` with the first reason when each of the cases was refused."""
    if reports and all(report.refusal for report in reports):
        raise UnsupportedError(reports[0].refusal)


def raise_missing(reports: Sequence[Report], seen: Sequence[str] = ()) -> None:
    """Raise `UntrustedError` when a case did not fail, and was run without what may make it fail.

    That nothing happened proves nothing then: the failure may lie in what is missing.  `seen` is
    what happened, a line each.
    """
    for report in reports:
        if report.verdict in ("none", "other") and report.missing:
            what = "\n".join([" What happened:", *seen, ""]) if seen else " "
            raise UntrustedError(
                "The recorded compile had what this run was made without: "
                f"{', '.join(report.missing)}. So the run proves nothing.{what}"
                "Add --trust for config entries, or --import MODULE for the module that defines it."
            )


def raise_forbidden(report: Report) -> None:
    """Raise `ForbiddenError` for a case out of a store that nobody recorded."""
    if report.refusal and report.detail.startswith(ForbiddenError.__name__):
        raise ForbiddenError(report.refusal)


@dataclass(frozen=True)
class Limits:
    """When to stop before a fixpoint; None is no limit."""

    seconds: float | None = None
    runs: int | None = None


@dataclass(frozen=True)
class PassCount:
    """What one pass did: how many candidates were tried, found in the cache, and accepted."""

    name: str
    tried: int = 0
    cached: int = 0
    accepted: int = 0
    removed_nodes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ProgressEvent:
    """One candidate was judged (or taken from the cache), or is looked for."""

    kind: Literal["looking", "start", "accepted", "rejected", "note", "end"]
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
    """How many candidates there are to a fixpoint if no step succeeds any more; None as long as
    some pass has not been seen, so that nobody knows."""
    unit: str = "call node"
    """What is counted: call nodes of a graph, statements of a program."""


def looking(message: str) -> ProgressEvent:
    """What is run now to find something that can be reduced."""
    return ProgressEvent("looking", "", 0, 0, 0, 0, 0.0, message=message)


class Listener(Protocol):
    """Who wants to see progress; the command line renders it."""

    def on_step(self, event: ProgressEvent) -> None:
        """One step was made. Called from the search's thread; must not raise."""


@dataclass(frozen=True)
class ByCatchFound:
    """Another bug that was met: its signature, and the smallest case that shows it."""

    signature: Signature
    case_digest: str
    call_nodes: int


@dataclass(frozen=True)
class Reduction:
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
    by_catch: tuple[ByCatchFound, ...]
    status: Status
    flaky: tuple[int, int] | None = None
    """(failures, tries) where the case fails only sometimes."""
    reduction_id: int | None = None
    """The row of `reductions`, where there is a store."""
    explanation: Explanation | None = None
    """What was found out about the case beyond that it fails, where that was asked for."""

    def error(self) -> MinifyError | None:
        """What a command that wanted a fixpoint says when there is none; None if there is one."""
        if self.status == "fixpoint":
            return None
        why = "was interrupted" if self.status == "interrupted" else "spent its budget"
        return BudgetSpent(
            f"The reduction {why} after {self.oracle_runs} oracle runs, at {self.after_call_nodes} "
            f"of {self.before_call_nodes} call nodes. The best case is in the store: run the same "
            "command again to go on from there."
        )
