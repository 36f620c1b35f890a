"""Inputs that show whether a graph is compiled wrongly."""

from __future__ import annotations

from collections.abc import Callable

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_object, is_tensor
from torchreel.minifier.results.verdicts import OracleReport


def is_wrong(report: OracleReport) -> bool:
    """Return True if a run computed something else than eager."""
    return report.observed is not None and report.observed.failure_class == "wrong_result"


def with_telling_inputs(
    case: Case, judge: Callable[[Case], OracleReport]
) -> tuple[Case, OracleReport]:
    """Return the case with inputs that show a wrong result, if there are such, and the report on
    it.

    Of invented numbers a square root or a logarithm makes NaN, which hide what comes after them.
    """
    report = judge(case)
    if report.verdict != "invalid" and not (report.verdict == "none" and report.detail):
        return case, report
    positive = with_positive_inputs(case)
    found = judge(positive)
    taken = is_wrong(found) or report.verdict == "invalid"
    return (positive, found) if taken else (case, report)


def with_positive_inputs(case: Case) -> Case:
    """Return the case with no negative number in its inputs."""
    inputs = tuple(
        {**as_object(value), "contents": "positive"} if is_tensor(value) else value
        for value in case.checkpoint.inputs
    )
    return case.with_graph(case.graph, inputs)
