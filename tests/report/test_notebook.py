"""What a notebook shows of a store, in a real browser: hostile text in it does nothing."""

from __future__ import annotations

from pathlib import Path

import torchreel
from tests.cli.test_store_text import EVIL, evil, plain  # noqa: F401
from tests.report.conftest import Open
from torchreel.analysis.query.rows import CompilesRow, FailuresRow


def test_a_compile_and_a_failure_show_themselves(
    look: Open, recorded: Path, tmp_path: Path
) -> None:
    with torchreel.open(recorded) as run:
        failure = run.failures[0]
        compile = next(row for row in run.compiles if row.compile == failure.compile)
        cards = compile._repr_html_() + failure._repr_html_()
    with torchreel.open(f"{recorded}#{failure.compile}") as one:
        cards += one._repr_html_()
    page = look(_page(tmp_path, cards)).go("", "table")
    titles = page.locator("caption").all_inner_texts()
    assert titles[0] == f"compile {compile.compile} of fails: failed"
    assert titles[1] == f"{failure.exception_type} in {failure.stage} of {failure.compile}"
    assert titles[2:] == titles[:2]
    assert "UTC" in page.locator("table").first.inner_text()
    # A message keeps its lines.
    assert page.locator("pre").first.inner_text() == failure.message
    assert "dynamo" in page.locator("table").last.inner_text()


def test_no_text_of_a_store_does_anything(
    look: Open,
    evil: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    with torchreel.open(evil) as run:
        cards = run._repr_html_() + "".join(row._repr_html_() for row in run.compiles)
        assert len(run.failures) > 0
    named = CompilesRow(EVIL, 1, EVIL, None, EVIL, 0, EVIL, EVIL, 1, None, EVIL, 2**70, 1.0, 3)
    failed = FailuresRow(EVIL, 1, 0, EVIL, EVIL, "", EVIL, EVIL, f"{EVIL}\n{EVIL}", EVIL, EVIL, 1)
    page = look(_page(tmp_path, cards + named._repr_html_() + failed._repr_html_())).go("", "table")
    seen = page.locator("body").inner_text()
    assert "<script>a</script>" in seen
    assert "\u202e" not in seen
    names = page.evaluate(
        "[...new Set([...document.body.querySelectorAll('*')].map(e => e.tagName))]"
    )
    assert set(names) <= {"TABLE", "CAPTION", "B", "TBODY", "TR", "TH", "TD", "PRE", "P"}
    attributes = page.evaluate(
        "[...document.body.querySelectorAll('*')].flatMap(each => [...each.attributes])"
        ".map(each => `${each.name}=${each.value}`)"
    )
    assert set(attributes) == {"style=text-align: left"}


def _page(folder: Path, cards: str) -> Path:
    """A page with nothing but what a notebook is given."""
    path = folder / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{cards}</body>", encoding="utf-8")
    return path
