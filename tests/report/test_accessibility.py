"""Every view of the page, in both themes, as axe-core sees it: contrast, names, roles, headings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.stores import failing, graph, node
from tests.report.conftest import Open, place_of
from torchreel.report import build_comparison, render
from torchreel.report.document import ReportDocument
from torchreel.store import Store, parse

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="no axe: pip install 'torchreel[browser]'"
)
pytestmark = pytest.mark.slow
TABS = {
    "": ".waterfall",
    "/graphs": ".drawing .node",
    "/guards": "#panel table",
    "/symbols": "#panel",
    "/config": "#panel table",
    "/records": "details.record",
}


def problems(page: Any) -> list[tuple[str, str]]:
    """The rules that are broken, with the first element of each."""
    found = axe.Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report(look: Open, page_file: Path, document: ReportDocument, scheme: str) -> None:
    looked = look(page_file, color_scheme=scheme)
    assert problems(looked.go("/", "#compiles table")) == []
    for tab, wait_for in TABS.items():
        place = place_of(document, "forward")
        assert problems(looked.go(f"/c/{place}{tab}", wait_for)) == [], tab
    assert problems(looked.go(f"/c/{place_of(document, 'fails')}", ".card")) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_two_recordings(look: Open, tmp_path: Path, scheme: str) -> None:
    left, right = tmp_path / "a.db", tmp_path / "b.db"
    for path in (left, right):
        Store.open(path, create=True).close()
    failing(left)
    failing(right, graph(node("x", "placeholder", "x")))
    with Store.open(left) as one, Store.open(right) as other:
        document = build_comparison((one, parse(str(left))), (other, parse(str(right))), 5_000_000)
    file = tmp_path / "diff.html"
    file.write_text(render(document), encoding="utf-8")
    looked = look(file, color_scheme=scheme)
    assert problems(looked.go("/", "#pairs")) == []
    place = next(at for at, pair in enumerate(document.pairs) if pair.differing)
    assert problems(looked.go(f"/p/{place}", "#layers")) == []
