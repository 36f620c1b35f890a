"""The page in a real browser: what one sees, clicks, types; and what no text of a store can do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.test_store_text import EVIL, evil, plain  # noqa: F401
from tests.report.conftest import Open, document_of, place_of
from torchreel.report import render
from torchreel.report.document import CauseGroup, ReportDocument


def texts(page: Any, selector: str) -> list[str]:
    return list(page.locator(selector).all_inner_texts())


def test_the_first_view_has_every_compile_and_failure(
    look: Open, page_file: Path, document: ReportDocument
) -> None:
    page = look(page_file).go("/", "#compiles table")
    assert page.evaluate("milliseconds(119_700)") == "2 min 0 s"
    assert texts(page, "#compiles a.open") == [row.address for row in document.compiles]
    assert page.locator("#failures .card").count() == 1
    card = page.locator("#failures .card").inner_text()
    assert "return torch.scatter(y, 1, y, y) + 1" in card
    assert "torchreel show 1/" in card
    assert page.locator("#causes .cause").count() == len(document.causes)


def test_a_recompile_with_two_causes_is_counted_once(
    look: Open, document: ReportDocument, tmp_path: Path
) -> None:
    causes = [CauseGroup("recompile", what, [1]) for what in ("a size", "a number")]
    file = tmp_path / "report.html"
    file.write_text(render(msgspec.structs.replace(document, causes=causes)), encoding="utf-8")
    shown = look(file).go("/", "#compiles table").locator("#causes").inner_text()
    assert shown.startswith("1 recompile, 2 causes\n\nA recompile counts under each cause")


def test_one_of_a_kind_is_not_many(look: Open, document: ReportDocument, tmp_path: Path) -> None:
    row = msgspec.structs.replace(document.compiles[0], breaks=1, misses=1)
    file = tmp_path / "report.html"
    one = msgspec.structs.replace(document, compiles=[row], failures=[], causes=[], ranks=None)
    file.write_text(render(one), encoding="utf-8")
    shown = look(file).go("/", "#compiles table").locator(".stats").inner_text()
    for words in ("1 compile", "1 graph break", "1 recompile"):
        assert words in shown.splitlines()


def test_search_and_sort(look: Open, page_file: Path, document: ReportDocument) -> None:
    page = look(page_file).go("/", "#compiles table")
    page.keyboard.press("/")
    page.keyboard.type("FORWARD")
    wanted = [row.address for row in document.compiles if row.frame == "forward"]
    assert texts(page, "#compiles a.open") == wanted
    assert page.locator("#found").inner_text() == f"{len(wanted)} of {len(document.compiles)}"
    page.fill("#search", "")
    page.click("th button[data-sort=ms]")
    by_time = sorted(document.compiles, key=lambda row: -(row.ms or 0))
    assert texts(page, "#compiles a.open") == [row.address for row in by_time]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("time")
    page.keyboard.press("Enter")  # the focus stays on the button
    assert texts(page, "#compiles a.open") == [row.address for row in reversed(by_time)]
    page.select_option("select[aria-label=Status]", "failed")
    assert page.locator("#compiles tbody tr").count() == 2


def test_the_tree_of_stacks(look: Open, page_file: Path, document: ReportDocument) -> None:
    page = look(page_file).go("/", "#compiles table")
    page.click("#as-tree")
    assert page.locator("#compiles .leaf").count() == len(document.compiles)
    above = page.locator("#compiles .tree > li summary").first.inner_text()
    frames = {frame.function for frame in document.frames if not frame.library}
    assert above.split()[0] in frames
    shown = page.locator("#compiles summary").count()
    page.check("text=library frames")
    assert page.locator("#compiles summary").count() > shown
    assert page.locator("#compiles .leaf").count() == len(document.compiles)


def workbench(look: Open, page_file: Path, document: ReportDocument) -> Any:
    place = place_of(document, "forward")
    return look(page_file).go(f"/c/{place}/graphs", ".drawing .node")


def pane(page: Any, number: int) -> Any:
    return page.locator(".pane").nth(number)


def hits(page: Any, number: int) -> list[str]:
    return list(pane(page, number).locator(".row.hit > :nth-child(2)").all_inner_texts())


LINE = "hidden = torch.sigmoid(self.up(x)) * 2"


def check_chain(page: Any) -> None:
    """All that belongs to the line of the sigmoid is marked, and nothing of the other lines."""
    assert [line.strip() for line in hits(page, 0)] == [LINE]
    assert any("torch.sigmoid(" in line for line in hits(page, 1))
    assert any("aten.sigmoid.default(" in line for line in hits(page, 2))
    assert not any("relu" in line for line in hits(page, 1) + hits(page, 2))
    called = [line for line in hits(page, 3) if "sigmoid" in line and line.startswith(" ")]
    assert called
    assert page.locator(".drawing .node.hit").count() > 0


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (0, LINE),
        (1, "= torch.sigmoid("),
        (2, "aten.sigmoid.default("),
        (3, re.compile(r"cpp_fused\w*_sigmoid")),
    ],
    ids=["line", "dynamo", "aten", "kernel"],
)
def test_one_click_marks_all_that_belongs_together(
    look: Open, page_file: Path, document: ReportDocument, number: int, what: str | re.Pattern[str]
) -> None:
    page = workbench(look, page_file, document)
    pane(page, number).locator(".row.can", has_text=what).last.click()
    check_chain(page)
    if number:  # what was clicked is told from what belongs to it
        assert page.locator(".row.chosen").count() >= 1
    page.keyboard.press("Escape")
    assert page.locator(".row.hit").count() == 0


def test_the_same_by_the_keyboard_alone(
    look: Open, page_file: Path, document: ReportDocument
) -> None:
    page = workbench(look, page_file, document)
    pane(page, 1).locator(".can[tabindex='0']").focus()
    page.keyboard.press("End")
    for _ in range(50):
        if "torch.sigmoid(" in page.evaluate("document.activeElement.textContent"):
            break
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert any("torch.sigmoid(" in line for line in hits(page, 1))
    assert [line.strip() for line in hits(page, 0)] == [LINE]


def test_a_drawn_node_is_chosen_zoomed_and_found(
    look: Open, page_file: Path, document: ReportDocument
) -> None:
    page = workbench(look, page_file, document)
    page.locator(".drawing .node", has_text="sigmoid").first.click()
    assert page.locator(".drawing .node.chosen").count() == 1
    assert [line.strip() for line in hits(page, 0)] == [LINE]

    def scale() -> float:
        text = page.locator(".drawing svg > g").get_attribute("transform")
        return float(text.partition("scale(")[2].rstrip(")"))

    before = scale()
    page.click("button[title='zoom in']")
    assert scale() == pytest.approx(before * 1.25)
    page.locator(".drawing svg").focus()
    page.keyboard.press("-")
    assert scale() == pytest.approx(before)
    box = page.locator(".drawing svg").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.wheel(0, -100)
    page.wait_for_function(
        f"() => !document.querySelector('.drawing svg > g')"
        f".getAttribute('transform').includes('scale({before})')"
    )
    assert scale() > before
    page.fill("#find-node", "addmm")
    titles = page.evaluate(
        "[...document.querySelectorAll('.drawing .node.match')].map(each => each.textContent)"
    )
    assert len(titles) > 2
    assert all("addmm" in title for title in titles)
    assert page.locator(".row.match").count() > 2
    assert "match" in page.locator("#told").inner_text()


@pytest.mark.slow
def test_every_part_of_a_compile(look: Open, page_file: Path, document: ReportDocument) -> None:
    place = next(at for at, row in enumerate(document.compiles) if row.misses)
    page = look(page_file).go(f"/c/{place}", ".waterfall")
    assert "size mismatch at index 0" in page.locator(".story").first.inner_text()
    stages = texts(page, ".waterfall [role=listitem]")
    assert stages[0] == "dynamo"
    assert "codegen forward" in stages
    page.locator("[role=tab][aria-selected=true]").focus()
    for heading in ("Graphs", "Guards", "Symbols", "Config", "Records"):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "(name) => document.querySelector('[role=tab][aria-selected=true]')"
            ".textContent.startsWith(name)",
            arg=heading,
        )
        assert page.evaluate("document.activeElement.textContent").startswith(heading)
    page = look(page_file).go(f"/c/{place}/records", ".record")
    record = page.locator(".record", has_text="dynamo_cpp_guards_str").first
    record.locator("summary").click()
    assert "TREE_GUARD_MANAGER" in record.locator("pre").inner_text()
    page = look(page_file).go(f"/c/{place}/config", "#panel table")
    assert "torch" in page.locator("#panel").inner_text()
    page = look(page_file).go(f"/c/{place}/guards", "table")
    total = page.locator("#panel tbody tr").count()
    page.fill("#panel .find", "TENSOR_MATCH")
    assert 0 < page.locator("#panel tbody tr:visible").count() < total
    page.keyboard.press("Escape")
    assert page.locator("#panel tbody tr:visible").count() == total
    assert page.evaluate("location.hash").endswith("/guards")
    page = look(page_file).go(f"/c/{place}/symbols", ".story")
    assert "L['x'].size()[0]" in page.locator("#panel").inner_text()
    page = look(page_file).go(f"/c/{place}/config", "#keys")
    assert "another key" in page.locator("#keys").inner_text()


def test_the_slider_shows_the_symbols_as_they_were(
    look: Open, page_file: Path, document: ReportDocument
) -> None:
    place = next(at for at, row in enumerate(document.compiles) if row.misses)
    page = look(page_file).go(f"/c/{place}/symbols", "#moments")
    last = page.locator("#moment").inner_text()
    page.locator("#moments").focus()
    page.keyboard.press("Home")
    first = page.locator("#moment").inner_text()
    assert first.startswith("1 of ")
    assert first != last
    assert page.locator("#states tr.changed").count() == 1
    page.keyboard.press("ArrowRight")
    assert page.locator("#moment").inner_text().startswith("2 of ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_that_of_the_system(look: Open, page_file: Path, scheme: str) -> None:
    page = look(page_file, color_scheme=scheme).go("/", "#compiles table")
    colours = "getComputedStyle(document.documentElement)"
    ground, text = (page.evaluate(f"{colours}.{name}") for name in ("backgroundColor", "color"))
    assert luminance(ground) > 0.8 if scheme == "light" else luminance(ground) < 0.2
    assert abs(luminance(ground) - luminance(text)) > 0.6


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.strip("rgb()").split(","))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_the_focus_can_be_seen_and_reaches_the_table(look: Open, page_file: Path) -> None:
    page = look(page_file).go("/", "#compiles table")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "to the content"
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.locator("#compiles a.open").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tabs")
    assert page.evaluate("location.hash") == "#/c/1"
    page.keyboard.press("Escape")


def test_no_text_of_a_store_does_anything(
    look: Open,
    evil: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    document = document_of(evil)
    file = tmp_path / "report.html"
    file.write_text(render(document), encoding="utf-8")
    looked = look(file)
    page = looked.go("/", "#compiles table")
    assert "<script>a</script>" in EVIL
    seen = page.locator("main").inner_text()
    for row, _ in enumerate(document.compiles):
        for tab in ("", "/graphs", "/guards", "/symbols", "/config"):
            looked.go(f"/c/{row}{tab}", "main .head")
            page.wait_for_function("() => document.querySelector('main').children.length > 1")
            seen += page.locator("main").inner_text()
            odd = "script, img, iframe, object, embed, form, base, link, meta"
            assert page.locator(f"#app :is({odd})").count() == 0
            addresses = page.eval_on_selector_all(
                "#app [href]", "found => found.map(each => each.getAttribute('href'))"
            )
            assert all(address.startswith("#") for address in addresses)
            handlers = page.evaluate(
                "[...document.querySelectorAll('#app *')].flatMap(each => [...each.attributes])"
                ".filter(each => each.name.startsWith('on')).length"
            )
            assert handlers == 0
    assert "<script>a</script>" in seen, "the hostile text is not on the way"
    assert "\u202e" not in seen
    assert "\\u202e" in seen
