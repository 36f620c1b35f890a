"""How large a page gets: a graph of 5,000 nodes, and 1,000 compiles of 64 ranks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.stores import TENSOR, failing, graph, node
from tests.report.conftest import Open, document_of
from tests.report.test_ranks import job
from torchreel.report import build_comparison, render
from torchreel.report.build import MAX_BYTES
from torchreel.report.document import FORMAT, CodeContent, CompileRow, ReportDocument
from torchreel.report.packing import Packer
from torchreel.store import Store, parse


def large(path: Path, function: str) -> Path:
    """A store with a graph of 5,000 nodes, of which each fiftieth calls a function."""
    nodes = [node("n", "placeholder", "n", val=TENSOR)]
    for number in range(5_000):
        name = function if number % 50 == 0 else "add"
        trace = f'  File "model.py", line {number % 300 + 1}, in forward\n    y = f(x)\n'
        before = f"n{number - 1}" if number else "n"
        meta = {"val": TENSOR, "stack_trace": trace}
        target = f"op:aten.{name}.default"
        nodes.append(node(f"n{number}", "call_function", target, {"n": before}, **meta))
    Store.open(path, create=True).close()
    return failing(path, graph(*nodes))


def test_what_a_page_can_do_without_takes_a_quarter_at_most() -> None:
    packer = Packer(4_000)
    texts = [CodeContent(hashlib.sha256(bytes([number])).hexdigest()) for number in range(40)]
    places = [packer.add_spare(text) for text in texts]
    kept = [place for place in places if place is not None]
    assert 3 < len(kept) < 20
    assert len(packer.parts) == len(kept)
    assert 4_000 - packer.left <= 1_000
    assert packer.add(texts[-1]) == len(kept)  # what a page needs still has room


@pytest.mark.slow
def test_a_graph_of_five_thousand_nodes(tmp_path: Path) -> None:
    left, right = large(tmp_path / "a.db", "relu"), large(tmp_path / "b.db", "sin")
    assert document_of(left).notes == []
    assert len(render(document_of(left)).encode()) < MAX_BYTES
    with Store.open(left) as one, Store.open(right) as other:
        document = build_comparison((one, parse(str(left))), (other, parse(str(right))), MAX_BYTES)
    assert document.notes == []
    assert len(render(document).encode()) < MAX_BYTES


def test_rows_of_a_long_table_are_made_when_they_are_looked_at(look: Open, tmp_path: Path) -> None:
    """A page of 64,000 rows at once takes a browser minutes."""
    rows = [
        CompileRow(f"1/{at}/0", 1, "f", "train.py", 1, "ok", ms=float(at)) for at in range(1_300)
    ]
    file = tmp_path / "report.html"
    file.write_text(render(ReportDocument(FORMAT, "run.db", "0", [], rows)), encoding="utf-8")
    page = look(file).go("/", "#compiles table")
    shown = page.locator("#compiles tbody tr")
    assert shown.count() == 500
    assert page.locator(".more").inner_text() == "800 more"
    page.locator(".more").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelectorAll('#compiles tbody tr').length === 1000")
    page.locator(".more").press("Enter")
    assert shown.count() == 1_300
    assert page.locator(".more").count() == 0
    page.evaluate("scrollTo(0, 0)")  # the rows that are looked at are made
    page.click("#compiles [data-sort=ms]")
    assert shown.count() == 500
    assert "1/1299/0" in shown.first.inner_text()
    page.click("#as-tree")
    assert page.locator("#compiles .leaf").count() == 500


@pytest.mark.slow
def test_a_thousand_compiles_of_64_ranks(tmp_path: Path) -> None:
    path = job(tmp_path / "run.db", 64, 16, lambda rank, at: "odd" if (rank, at) == (40, 9) else "")
    document = document_of(path)
    assert len(document.compiles) == 1024
    assert document.ranks is not None
    assert document.ranks.views[1].ranks == [40]
    assert document.notes == []
    assert len(render(document).encode()) < MAX_BYTES
