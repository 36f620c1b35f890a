"""The long examinations of `benchmarks` still run: each on the smallest share of its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import corpus, hostile_documents


@pytest.mark.slow
def test_the_corpus_replays_every_entry_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus.main(["chain-52"]) == 0
    table = capsys.readouterr().out
    assert all(entry in table for entry in ("frame", "graph", "shapes"))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings that leave a checkpoint of each kind."""
    folder = tmp_path_factory.mktemp("checkpoints")
    hostile_documents.record(folder)
    found = hostile_documents.checkpoints_of(folder)
    assert {document["entry"] for document in found} == {"graph", "aot", "export"}
    return folder


@pytest.mark.slow
def test_changed_checkpoints_reach_nothing(checkpoints: Path) -> None:
    """A sample of `make hostile`: some are replayed, most are refused, nothing is touched."""
    tally = hostile_documents.attack(checkpoints, 40)
    assert tally.canaries == []
    assert tally.counts["graphs"] == 40
    assert tally.counts["whole"] > 5
    assert len(tally.reasons) > 5


@pytest.mark.slow
def test_a_hole_is_found_by_changed_checkpoints(checkpoints: Path) -> None:
    tally = hostile_documents.attack(checkpoints, 40, planted=True)
    assert any(hostile_documents.MARK in text for text in tally.canaries)
