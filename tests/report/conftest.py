"""A recording to report on, and a browser to look at the page with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

import torchreel
from tests.cli.conftest import empty, on_server, run  # noqa: F401
from tests.report.pictures import chromium, launch
from torchreel.report import ReportOptions, build, render
from torchreel.report.document import ReportDocument
from torchreel.store import Store, queries
from torchreel.store.addressing import parse


class Model(nn.Module):
    """Two layers: three kernels of Inductor's own and two of a library."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.sigmoid(self.up(x)) * 2
        return torch.relu(self.down(hidden)) + x


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def fails(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a compiled model, its recompile with a symbol, a graph break and a failure."""
    path = tmp_path_factory.mktemp("report") / "run.db"
    torch._dynamo.reset()
    # Without the answers of an earlier run: what comes out of a cache was not generated.
    with fresh_cache(), torchreel.record(path):
        model = torch.compile(Model())
        for size in (3, 5):
            model(torch.randn(size, 8)).sum().backward()
        torch.compile(breaks, backend="eager")(torch.ones(3))
        for _ in range(2):
            with suppress(Exception):
                torch.compile(fails)(torch.randn(2, 3))
            torch._dynamo.reset()
    return path


@pytest.fixture(scope="session")
def document(recorded: Path) -> ReportDocument:
    """The document of its report."""
    return document_of(recorded)


def document_of(path: Path, max_bytes: int = 5_000_000) -> ReportDocument:
    """The document of a report on a store."""
    with Store.open(path) as store, store.as_far_as_readable():
        options = ReportOptions(lambda row: f"torchreel show {row.place}", max_bytes)
        return build(store, parse(str(path)), options)


@pytest.fixture(scope="session")
def page_file(document: ReportDocument, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(document), encoding="utf-8")
    return path


def place_of(document: ReportDocument, frame: str) -> int:
    """The place of the first compile of a function that has a graph."""
    return next(
        place
        for place, row in enumerate(document.compiles)
        if row.frame == frame and row.call_nodes is not None
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium that Playwright drives; skips where one of them is missing."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install 'torchreel[browser]'"
    )
    found = chromium()
    if found is None:
        pytest.skip("no Chromium: install your system's, or set CHROMIUM=/path/to/it")
    with api.sync_playwright() as playwright:
        made = launch(playwright, found)
        yield made
        made.close()


@dataclass
class Looked:
    """A page that is open, and what it did that it should not."""

    page: Any
    file: Path
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def go(self, place: str, wait_for: str) -> Any:
        """Show a view."""
        self.page.goto(f"{self.file.as_uri()}#{place}")
        self.page.wait_for_selector(wait_for)
        return self.page


Open = Callable[..., Looked]


@pytest.fixture
def look(browser: Any) -> Iterator[Open]:
    """Open a page; in the end, it has said nothing and asked nobody."""
    opened: list[tuple[Looked, Any]] = []

    def look(file: Path, **options: Any) -> Looked:
        context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        found = Looked(context.new_page(), file)
        opened.append((found, context))
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("dialog", lambda dialog: found.said.append(dialog.message))
        found.page.on("request", lambda request: found.asked.append(request.url))
        return found

    yield look
    for found, context in opened:
        assert found.said == []
        assert {url.partition("#")[0] for url in found.asked} <= {found.file.as_uri()}
        context.close()


def compiles_of(path: Path) -> int:
    """How many compiles a store has."""
    with Store.open(path) as store:
        return sum(len(queries.compiles(store, row.id)) for row in queries.recordings(store))
