"""Before anything is reduced: does the case fail here, every time, and because of its graph?

The failing case runs twice in view. One that fails only once is measured, and reduced with so many
repetitions that a failing candidate is hardly ever overlooked. One that fails in neither run gets
more before it is said not to fail, and the result of a reduction runs three times again: of the
cases that fail in three runs of ten, one in eleven fails twice in a row, and one in 400 five times.
A failure that an empty graph shows as well is none of the graph's, and reducing it would end
nowhere. Called by `search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.errors import FlakyFailure, NotReproduced, TrivialResult
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.interface import Ahead
from torchreel.minifier.results.verdicts import (
    OracleReport,
    raise_forbidden,
    raise_missing,
    raise_refusal,
)
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.store.failures.signature import Signature

# How flaky a case is, is said after this many runs, in which it failed at least so often: then the
# rate is known to about a factor of two. One that needs more runs fails too seldom to be reduced.
_TRIES = 10
_FAILURES = 3
_MOST_TRIES = 30
# The result of a reduction is run this often before it is said to fail every time.
LOOKS = 3
# A flaky candidate that fails is overlooked with at most this probability.
_OVERLOOKED = 0.05
# That many runs are enough for what fails in a tenth of them.
_MOST_REPEATS = 29


@dataclass(frozen=True)
class ReproducedCase:
    """The case that a search begins with."""

    case: AnyCase
    flaky: tuple[int, int] | None = None
    """(failures, tries) of a case that does not always fail."""


def never_alike(seen: Signature) -> bool:
    """Return False: the signature has to be met exactly."""
    return False


def reproduce(
    judge: CachedOracle,
    cases: Sequence[AnyCase],
    is_alike: Callable[[Signature], bool] = never_alike,
    *,
    insist: bool = True,
) -> ReproducedCase:
    """Return the first of the cases that fails with the signature.

    With `insist`, the first that passed twice runs some times more before that is believed.

    Raises `NotReproduced` with the outcome of each, `FlakyFailure` if one failed once and never
    again, and `UnsupportedError` if none may be run. A case that raises with a signature that
    `is_alike` ends the attempt: it is the one to reduce, with that signature, and the cases after
    it need not be run.
    """
    for case in cases:
        if _is_known(judge, case):
            judge.verdict(case)
            return ReproducedCase(judge.accepted(case))
    seen: list[str] = []
    reports: list[OracleReport] = []
    passed: list[AnyCase] = []
    looked_at: dict[str, OracleReport] = {}
    for case in cases:
        if case.digest in looked_at or _passed_with_eager(case, looked_at):
            continue
        start, report = _looked_at(judge, case)
        looked_at[case.digest] = report
        if start is not None:
            return start
        raise_forbidden(report)
        reports.append(report)
        seen.append(f"  {case.summary}: {_in_words(report)}")
        # Of a process that died there is only a signal: another start may show the very failure.
        observed = report.observed
        if observed is not None and observed.failure_class == "exception" and is_alike(observed):
            raise _not_reproduced(seen, reports)
        passed += [case] if report.verdict == "none" else []
    for case in passed[:1] if insist else ():
        start = _insisted(judge, case)
        if start is not None:
            return start
    raise_refusal(reports)
    raise_missing(reports, seen)
    raise _not_reproduced(seen, reports)


def _not_reproduced(seen: Sequence[str], reports: Sequence[OracleReport]) -> NotReproduced:
    advice = "Compare the environments with 'torchreel show', or replay it with 'torchreel replay'."
    if all(report.verdict == "invalid" and report.stage == "eager" for report in reports):
        advice = "Eager mode raises too: what fails is the program, whether it is compiled or not."
    return NotReproduced(
        "The recorded failure does not happen here. What happened instead:\n"
        + "\n".join(dict.fromkeys(seen))
        + f"\n{advice}"
    )


def _is_known(judge: CachedOracle, case: AnyCase) -> bool:
    """Return True if an earlier reduction saw the case fail: it went on from there, and so does
    this.
    """
    known = judge.journal.verdict(case)
    return known is not None and known.verdict == "same"


def _passed_with_eager(case: AnyCase, looked_at: Mapping[str, OracleReport]) -> bool:
    """Return True if a case without the judgement of eager mode passed with it: it was compiled."""
    if not isinstance(case, Case) or case.eager:
        return False
    known = looked_at.get(replace(case, eager=True).digest)
    return known is not None and known.verdict == "none"


def _looked_at(judge: CachedOracle, case: AnyCase) -> tuple[ReproducedCase | None, OracleReport]:
    """Run a case twice."""
    reports = [judge.run(case, more) for more in (1, 0)]
    failed = [report for report in reports if report.verdict == "same"]
    if len(failed) == 1:
        return _measured(judge, case, reports), failed[0]
    judge.keep(case, reports[0])
    return (ReproducedCase(judge.accepted(case)) if failed else None), reports[0]


def _insisted(judge: CachedOracle, case: AnyCase) -> ReproducedCase | None:
    """Run a case that passed twice a few times more: it may fail only sometimes."""
    reports = [OracleReport("none"), OracleReport("none")]
    while len(reports) < _TRIES:
        reports.append(judge.run(case))
        if reports[-1].verdict == "same":
            return _measured(judge, case, reports)
    return None


def confirm(judge: CachedOracle, start: ReproducedCase, best: AnyCase) -> ReproducedCase | None:
    """Return `start` if the result fails each time; a new start if it fails only sometimes.

    The result is the case of the new start, with enough repetitions to go on from. None means that
    it fails so seldom that its accepted run was luck. Runs that an earlier search has recorded are
    not repeated.
    """
    known = judge.journal.confirmed(best)
    if known is not None:
        return start if known[0] == known[1] else _at_rate(judge, best, *known)
    reports = _looks(judge, best)
    if not _all_fail(reports):
        reports = _sampled(judge, best, reports)
        if _failures(reports) < _FAILURES:
            return None
        start = _repeating(judge, best, reports)
    if all(report.verdict != "unjudged" for report in reports):
        judge.journal.confirm(best, _failures(reports), len(reports))
    return start


def fails_every_time(judge: CachedOracle, case: AnyCase) -> bool:
    """Return True if some more runs of the case all fail."""
    return _all_fail(_looks(judge, case))


def _looks(judge: CachedOracle, case: AnyCase) -> list[OracleReport]:
    return [judge.run(case, more) for more in reversed(range(LOOKS))]


def _all_fail(reports: Sequence[OracleReport]) -> bool:
    return all(report.verdict in ("same", "unjudged") for report in reports)


def _measured(
    judge: CachedOracle, case: AnyCase, reports: Sequence[OracleReport]
) -> ReproducedCase:
    """Return a flaky case with its repetitions.

    Raises `FlakyFailure` where it fails too seldom.
    """
    found = _sampled(judge, case, reports)
    if _failures(found) < _FAILURES:
        raise FlakyFailure(
            f"The case failed as recorded in {_failures(found)} of {len(found)} runs: too seldom "
            "to reduce it. Look for what differs between runs (threads, uninitialised memory, a "
            "seed)."
        )
    return _repeating(judge, case, found)


def _sampled(
    judge: CachedOracle, case: AnyCase, reports: Sequence[OracleReport]
) -> list[OracleReport]:
    """Add the reports of more runs to `reports`, until it can be said how often the case fails."""
    found = list(reports)
    while len(found) < _TRIES or (_failures(found) < _FAILURES and len(found) < _MOST_TRIES):
        found.append(judge.run(case))
    return found


def _repeating(
    judge: CachedOracle, case: AnyCase, reports: Sequence[OracleReport]
) -> ReproducedCase:
    """Return the start with the repetitions that its rate of failures calls for."""
    failures = _failures(reports)
    case = case.repeating(repetitions(failures / len(reports)))
    failed = [report for report in reports if report.verdict == "same"]
    judge.keep(case, failed[0] if failed else OracleReport("same"))
    return ReproducedCase(judge.accepted(case), (failures, len(reports)))


def _at_rate(judge: CachedOracle, case: AnyCase, failures: int, tries: int) -> ReproducedCase:
    """Return the start for a case whose rate of failures an earlier search has measured."""
    case = case.repeating(repetitions(failures / tries))
    return ReproducedCase(judge.accepted(case), (failures, tries))


def _failures(reports: Sequence[OracleReport]) -> int:
    return sum(report.verdict == "same" for report in reports)


def repetitions(rate: float) -> int:
    """Return the number of runs that hardly ever overlook a case that fails at this rate."""
    if rate >= 1:
        return 1
    if rate <= 0:
        return _MOST_REPEATS
    needed = math.ceil(math.log(_OVERLOOKED) / math.log(1 - rate))
    return min(max(needed, 1), _MOST_REPEATS)


def refuse_trivial(judge: CachedOracle, case: AnyCase, ahead: Ahead) -> None:
    """Raise `TrivialResult` when a case that does nothing fails in the same way.

    `ahead` yields the cases that probably follow. The trivial case can only run after the case
    itself, whose run sets the limits of a run and the last step.
    """
    empty = case.trivial()
    if empty is not None and judge.verdict(empty, ahead).verdict == "same":
        raise TrivialResult(
            "A graph that only returns its input fails in the same way: the failure does not "
            "depend on the graph, so there is nothing to reduce. Look at the backend, the config "
            "and the environment."
        )


def _in_words(report: OracleReport) -> str:
    if report.verdict == "invalid" and report.stage == "eager":
        return f"it does not run in eager mode either, where nothing is compiled: {report.detail}"
    where = f" in stage {report.stage!r}" if report.stage else ""
    text = {
        "none": "it did not fail",
        "other": f"it failed{where} in another way",
        "invalid": f"it could not be run{where}",
        "unjudged": f"it could not be judged{where}",
    }.get(report.verdict, report.verdict)
    return f"{text}: {report.detail}" if report.detail else text
