"""Before anything is reduced: does the case fail here, every time, and because of its graph?

The failing case runs twice in view. One that fails only once is measured, and reduced with so many
repetitions that a failing candidate is hardly ever overlooked. A failure that an empty graph shows
as well is none of the graph's, and reducing it would end nowhere. Called by `search`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.errors import FlakyFailure, NotReproduced, TrivialResult
from torchreel.minifier.events import Report
from torchreel.minifier.judge import Judge
from torchreel.minifier.kinds import AnyCase

# A case that failed only once in two runs is run this often before it is said how flaky it is.
_TRIES = 10
# A flaky candidate that fails is overlooked with at most this probability ...
_OVERLOOKED = 0.05
# ... unless that took more runs than this.
_MOST_REPEATS = 10


@dataclass(frozen=True)
class Start:
    """Where a search begins."""

    case: AnyCase
    flaky: tuple[int, int] | None = None
    """(failures, tries) of a case that does not always fail."""


def reproduce(judge: Judge, cases: Sequence[AnyCase]) -> Start:
    """The first of the cases that fails with the signature.

    Raises `NotReproduced` with what each did instead, and `FlakyFailure` where one failed once and
    never again.
    """
    seen: list[str] = []
    for case in cases:
        start, report = _looked_at(judge, case)
        if start is not None:
            return start
        seen.append(f"  {case.told}: {_told(report)}")
    raise NotReproduced(
        "The recorded failure does not happen here. What happened instead:\n"
        + "\n".join(seen)
        + "\nCompare the environments with 'torchreel show', or replay it with 'torchreel replay'."
    )


def _looked_at(judge: Judge, case: AnyCase) -> tuple[Start | None, Report]:
    """Run a case twice, unless it is known that it fails."""
    known = judge.journal.verdict(case)
    if known is not None and known.verdict == "same":
        judge.verdict(case)
        return Start(judge.accepted(case)), known
    reports = [judge.run(case), judge.run(case)]
    failed = [report for report in reports if report.verdict == "same"]
    if len(failed) == 1:
        return _measured(judge, case, failed[0])
    judge.keep(case, reports[0])
    return (Start(judge.accepted(case)) if failed else None), reports[0]


def _measured(judge: Judge, case: AnyCase, report: Report) -> tuple[Start, Report]:
    """How often a flaky case fails, and the case with the repetitions that follow from it."""
    more = [judge.run(case) for _ in range(_TRIES - 2)]
    failures = 1 + sum(found.verdict == "same" for found in more)
    if failures == 1:
        raise FlakyFailure(
            f"The case failed as recorded in 1 of {_TRIES} runs: too seldom to reduce it. "
            "Look for what differs between runs (threads, uninitialised memory, a seed)."
        )
    repeats = repetitions(failures / _TRIES)
    case = case.repeating(repeats)
    judge.keep(case, report)
    return Start(judge.accepted(case), (failures, _TRIES)), report


def repetitions(rate: float) -> int:
    """How often to run a case that fails at this rate, so that it is hardly ever overlooked."""
    if rate >= 1:
        return 1
    needed = math.ceil(math.log(_OVERLOOKED) / math.log(1 - rate))
    return min(max(needed, 1), _MOST_REPEATS)


def refuse_trivial(judge: Judge, case: AnyCase) -> None:
    """Raises `TrivialResult` when a case that does nothing fails in the same way."""
    empty = case.trivial()
    if empty is not None and judge.verdict(empty).verdict == "same":
        raise TrivialResult(
            "A graph that only returns its input fails in the same way: the failure does not "
            "depend on the graph, so there is nothing to reduce. Look at the backend, the config "
            "and the environment."
        )


def _told(report: Report) -> str:
    where = f" in stage {report.stage!r}" if report.stage else ""
    text = {
        "none": "it did not fail",
        "other": f"it failed{where} in another way",
        "invalid": f"it could not be run{where}",
        "unjudged": f"it could not be judged{where}",
    }.get(report.verdict, report.verdict)
    return f"{text}: {report.detail}" if report.detail else text
