"""Takes the pictures of docs/report.md: `python -m tests.report.pictures`, with a Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from torchreel.report import ReportOptions, build, render
from torchreel.report.document import ReportDocument
from torchreel.store import Store
from torchreel.store.addressing import parse

FOLDER = Path(__file__).parent.parent.parent / "docs" / "pictures"
NAMES = ("first", "compile", "graphs", "guards", "symbols")
SIZE = {"width": 1280, "height": 900}
PROGRAM = '''"""Train a small model: a recompile, two graph breaks and a failure on the way."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        hidden = torch.sigmoid(self.up(self.norm(x))) * 2
        return torch.relu(self.down(hidden)) + x


@torch.compile
def report_loss(loss):
    scaled = loss * 100
    print("loss", float(scaled))
    return scaled


@torch.compile
def pool(x):
    empty = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(empty, 1, empty, empty) + 1


model = torch.compile(Block())
for size in (3, 5):
    loss = model(torch.randn(size, 16)).square().mean()
    loss.backward()
    report_loss(loss.detach())
pool(torch.randn(2, 3))
'''
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of the browser that is installed here, or that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)


def launch(playwright: Any, path: str) -> Any:
    """Start a browser: as root, it has no sandbox of its own; the pages are ours."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=path, args=arguments)


def take(browser: Any, folder: Path, work: Path) -> None:
    """Record the program in `work`, and write pictures of its report into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = _document(_recorded(work))
    file = work / "report.html"
    file.write_text(render(document), encoding="utf-8")
    for name, (place, wait_for, scheme, act) in _views(document).items():
        context = browser.new_context(viewport=SIZE, color_scheme=scheme)
        page = context.new_page()
        page.goto(f"{file.as_uri()}#{place}")
        page.wait_for_selector(wait_for)
        act(page)
        page.screenshot(path=folder / f"{name}.png", animations="disabled")
        context.close()


def _recorded(work: Path) -> Path:
    """Return a store with a run of the program."""
    (work / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--"]
    subprocess.run(
        [*command, sys.executable, "train.py"], cwd=work, capture_output=True, check=False,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{work}/cache"},
    )  # fmt: skip
    return work / "run.db"


def _document(store: Path) -> ReportDocument:
    with Store.open(store) as opened:
        options = ReportOptions(lambda row: f"torchreel minify run.db#{row.place}")
        return msgspec.structs.replace(build(opened, parse(store.name), options), store=store.name)


_View = tuple[str, str, str, Callable[[Any], object]]


def _views(document: ReportDocument) -> dict[str, _View]:
    """Return, for each picture, the view, what it has when it is there, the theme, what to do."""
    rows = document.compiles
    model = next(at for at, row in enumerate(rows) if row.frame == "forward")
    again = next(at for at, row in enumerate(rows) if row.frame == "forward" and row.misses)
    return {
        "first": ("/", "#compiles table", "light", _nothing),
        "compile": (f"/c/{again}", ".waterfall", "light", _nothing),
        "graphs": (f"/c/{model}/graphs", ".drawing .node", "light", _choose_a_line),
        "guards": (f"/c/{again}/guards", "#panel table", "dark", _search_guards),
        "symbols": (f"/c/{again}/symbols", "#moments", "light", _move_back),
    }


def _nothing(page: Any) -> None:
    """Leave the page as it opened."""


def _choose_a_line(page: Any) -> None:
    page.locator(".pane").first.locator(".row.can", has_text="torch.sigmoid").click()
    page.mouse.move(0, 0)


def _search_guards(page: Any) -> None:
    page.fill("#panel .find", "train.py")


def _move_back(page: Any) -> None:
    page.locator("#moments").focus()
    page.keyboard.press("ArrowLeft")


def main() -> None:
    """Write the pictures of the documentation anew."""
    from playwright.sync_api import sync_playwright

    found = chromium()
    if found is None:
        sys.exit("no Chromium: install your system's, or set CHROMIUM=/path/to/it")
    # A path that says nothing of who made the pictures, and is short enough for one line.
    work = Path("/tmp/example")
    work.mkdir()
    try:
        with sync_playwright() as playwright:
            take(launch(playwright, found), FOLDER, work)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
