"""The long examinations of `benchmarks` still run: each on the smallest share of its work."""

from __future__ import annotations

import pytest

from benchmarks import corpus


@pytest.mark.slow
def test_the_corpus_replays_every_entry_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus.main(["chain-52"]) == 0
    table = capsys.readouterr().out
    assert all(entry in table for entry in ("frame", "graph", "shapes"))
