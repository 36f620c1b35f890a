"""A case that can't be built is refused: nothing was run, so nothing failed to reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.minifier.hand_made import BUG, Predicate, chain, functions_of
from tests.minifier.real import case_from, planted
from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.results.verdicts import OracleReport, raise_refusal
from torchreel.minifier.search.search import Search
from torchreel.minifier.storage.journal import MemoryJournal

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


class Exchanging(MemoryJournal):
    """Knows every verdict, and gives one large case for each digest, as a stranger's store may."""

    def verdict(self, case: AnyCase) -> OracleReport | None:
        return Predicate(lambda one: "relu" in functions_of(one)).judge(case)

    def accepted(self, digest: str) -> AnyCase | None:
        return chain(["sin", "relu", "cos"])


def test_a_case_under_the_digest_of_another_is_not_gone_on_from() -> None:
    """The search would go from the small one to the large one, and never end."""
    oracle = Predicate(lambda case: "relu" in functions_of(case))
    found = Search(oracle, BUG, journal=Exchanging()).run(chain(["sin", "relu", "cos"]))
    assert isinstance(found.case, Case)
    assert functions_of(found.case) == ["relu"]
