"""Inputs that show whether a graph is compiled wrongly."""

from __future__ import annotations

from collections.abc import Callable

from torchreel.formats.tensors.synthetic import COUNTING_NUMBERS, POSITIVE
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import is_tensor
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

Judge = Callable[[Case], OracleReport]


def is_wrong(report: OracleReport) -> bool:
    """Return True if a run computed something else than eager."""
    return report.observed is not None and report.observed.failure_class == "wrong_result"


def with_telling_inputs(case: Case, judge: Judge) -> tuple[Case, OracleReport]:
    """Return the case with inputs that show a wrong result, if there are such, and the report on
    it.

    Of invented numbers a square root or a logarithm makes NaN, which hide what comes after them;
    of zeros and ones many an error of integers does not show.
    """
    case, report = _with_positive_floats(case, judge)
    larger = with_larger_integers(case)
    if report.verdict != "none" or larger is None:
        return case, report
    found = judge(larger)  # which eager rejects where they are indices: the first report holds
    return (larger, found) if is_wrong(found) else (case, report)


def _with_positive_floats(case: Case, judge: Judge) -> tuple[Case, OracleReport]:
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
        {**as_object(value), "contents": POSITIVE} if is_tensor(value) else value
        for value in case.checkpoint.inputs
    )
    return case.with_graph(case.graph, inputs)


def with_larger_integers(case: Case) -> Case | None:
    """Return the case with integers from 1 to 100 in its inputs; None where none holds integers."""
    inputs = tuple(
        {**as_object(value), "contents": COUNTING_NUMBERS} if _holds_integers(value) else value
        for value in case.checkpoint.inputs
    )
    changed = inputs != case.checkpoint.inputs
    return case.with_graph(case.graph, inputs) if changed else None


def _holds_integers(value: Json) -> bool:
    return is_tensor(value) and str(as_object(value).get("dtype")).startswith(("int", "uint"))
