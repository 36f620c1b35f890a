"""A case that can't be built is refused: nothing was run, so nothing failed to reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.minifier.real import case_from, planted
from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.results.verdicts import OracleReport, raise_refusal
from torchreel.minifier.search.search import Search

MALFORMED = OracleReport("invalid", detail="unknown kind of node 'absurd'", stage="decode")


class Answers:
    """An oracle that gives every case one answer."""

    def __init__(self, report: OracleReport) -> None:
        self._report = report

    def judge(self, case: AnyCase) -> OracleReport:
        return self._report


def malformed() -> Case:
    case = case_from(torch.relu, torch.ones(3))
    nodes = [replace(node, op="absurd") for node in case.graph.nodes]
    return case.with_graph(replace(case.graph, nodes=tuple(nodes)))


def test_a_search_refuses_what_cannot_be_built() -> None:
    search = Search(Answers(MALFORMED), planted("no"))
    with pytest.raises(UnsupportedError, match=r"can't be built here.*'absurd'"):
        search.run(malformed())


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [MALFORMED, OracleReport("none")],
        [OracleReport("invalid", detail="eager raises", stage="eager")],
    ],
)
def test_what_was_run_is_not_refused(reports: Sequence[OracleReport]) -> None:
    raise_refusal(reports)
