"""What the search itself does for a candidate grows with what changed, not with the case."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.minifier.hand_made import BUG, Predicate, chain, tensor
from tests.minifier.search.test_search import journal_of, sin_reaches_cos
from torchreel.minifier.cases import canonical_text as texts
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json


def long(nodes: int) -> Case:
    """A chain in which one sine and one cosine matter."""
    functions = ["relu"] * nodes
    functions[nodes // 5], functions[nodes * 3 // 4] = "sin", "cos"
    return chain(functions)


def test_a_node_is_written_down_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates share their nodes, and the texts of them: 77 runs of up to 2,000 nodes here."""
    written: Counter[str] = Counter()
    text_of = texts.text_of

    def counted(value: Json) -> str:
        written["nodes"] += isinstance(value, list) and len(value) == 5  # a canonical node
        return text_of(value)

    monkeypatch.setattr(texts, "text_of", counted)
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        found = Search(Predicate(sin_reaches_cos), BUG, journal=journal_of(store)).run(long(1000))
    assert found.after_call_nodes == 2
    # Each at least once; those that were given other operands, again.
    assert 1000 < written["nodes"] < 1200


def test_memory_does_not_grow_with_the_runs() -> None:
    """Verdicts are remembered without what every node computed, cases only the last few."""

    class Wordy(Predicate):
        def judge(self, case: AnyCase) -> OracleReport:
            assert isinstance(case, Case)
            report = super().judge(case)
            return replace(report, values={node.name: tensor(4, 8) for node in case.graph.nodes})

    search = Search(Wordy(sin_reaches_cos), BUG)
    found = search.run(long(300))
    assert found.oracle_runs > 30
    assert len(search.judge._failed) <= 8
    assert not any(report.values for report in search.judge._seen.values())
