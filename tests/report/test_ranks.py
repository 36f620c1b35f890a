"""The ranks of a job side by side, and how much of a store is read for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.cli.stores import GRAPH
from tests.report.conftest import Open, document_of
from tests.store.rows import add_compile, add_event, add_graph, add_recording
from torchreel.analysis.diff import diff_ranks
from torchreel.events.frames import GraphBreak
from torchreel.events.output_graph import SubgraphCompile
from torchreel.report import render
from torchreel.store import Store, parse

EVIL = "<script>alert(1)</script>\u202e"


def job(path: Path, ranks: int, compiles: int, odd: Callable[[int, int], str]) -> Path:
    """A job whose ranks break each graph once, for a reason that `odd` gives."""
    with Store.open(path, create=True) as store, store.writer() as w:
        for rank in range(ranks):
            recording = add_recording(w, run="job", rank=rank)
            for number in range(compiles):
                row = add_compile(w, recording, f"{number}/0", started_ns=number + 1, ended_ns=9)
                add_graph(w, row, digest=w.blob(GRAPH + b" " * (rank % 3)))
                reason = odd(rank, number)
                data = {"type": "Unsupported", "reason": reason, "hints": []}
                add_event(
                    w, recording, 2 * number + 1, compile_id=row, kind=GraphBreak.kind, data=data
                )
                add_event(w, recording, 2 * number + 2, compile_id=row, kind=SubgraphCompile.kind)
    return path


def test_those_that_have_the_same_stand_together(tmp_path: Path) -> None:
    path = job(tmp_path / "run.db", 6, 3, lambda rank, at: EVIL if (rank, at) == (4, 1) else "x")
    ranks = document_of(path).ranks
    assert ranks is not None
    assert (ranks.what, ranks.compiles) == ("graph break", 1)
    assert [view.ranks for view in ranks.views] == [[0, 1, 2, 3, 5], [4]]
    assert ranks.views[1].event == "#5/1/0@3"
    assert ranks.recordings == [1, 2, 3, 4, 5, 6]


def test_ranks_that_agree_say_so(tmp_path: Path) -> None:
    ranks = document_of(job(tmp_path / "run.db", 2, 3, lambda rank, at: "x")).ranks
    assert ranks is not None
    assert (ranks.what, ranks.compiles, ranks.views) == ("", 3, [])


def test_one_recording_has_no_ranks(tmp_path: Path) -> None:
    assert document_of(job(tmp_path / "run.db", 1, 3, lambda rank, at: "x")).ranks is None


@pytest.mark.parametrize("compiles", [4, 16])
def test_the_statements_do_not_grow_with_the_compiles(tmp_path: Path, compiles: int) -> None:
    """A rank's events, graphs and checkpoints are read some dozens of compiles at a time."""
    path = job(tmp_path / "run.db", 8, compiles, lambda rank, at: "x")
    statements: list[str] = []
    with Store.open(path) as store:
        event.listen(
            store.engine, "before_cursor_execute", lambda *found: statements.append(found[2])
        )
        assert diff_ranks([(store, parse(str(path)))]).parting is None
    of_blobs = [text for text in statements if "blobs" in text]
    others = [text for text in statements if text.startswith("SELECT") and "blobs" not in text]
    assert len(others) < 8 * 24
    # Each rank has the graph under another digest in three: none is read to be compared again.
    assert len(of_blobs) <= 2 * 8 * compiles


def test_the_page_shows_them(look: Open, tmp_path: Path) -> None:
    path = job(tmp_path / "run.db", 6, 3, lambda rank, at: EVIL if (rank, at) == (4, 1) else "x")
    file = tmp_path / "report.html"
    file.write_text(render(document_of(path)), encoding="utf-8")
    page = look(file).go("/", "#ranks")
    seen = page.locator("#ranks").inner_text()
    assert "6 ranks part at a graph break, after 1 compile" in seen
    assert "0-3, 5" in seen
    assert "<script>alert(1)</script>\\u202e" in seen
    assert page.locator("#ranks .cell").count() == 18
    page.click("#ranks .card a")
    page.wait_for_selector(".head")
    assert page.evaluate("location.hash") == "#/c/1"
