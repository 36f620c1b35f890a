"""Two recordings side by side: the document, the command, and the page in a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch._inductor.config
from torch._inductor.utils import fresh_cache

import torchreel
from tests.cli.conftest import Run
from tests.cli.stores import failing, graph, node
from tests.report.conftest import Open
from tests.store.rows import add_compile, add_event, add_recording
from torchreel.report import build_comparison, render
from torchreel.report.comparison.document import ComparisonDocument, PairDetails
from torchreel.report.packing import encoded, unpacked
from torchreel.report.page import PAGE_BYTES
from torchreel.store import Store, parse


def program(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        x = torch.relu(x) + 1
    return torch.mm(x, x.t())


def other(x: torch.Tensor) -> torch.Tensor:
    return torch.mm(x.sin(), x)


def recorded(path: Path, rows: int, **config: Any) -> Path:
    torch._dynamo.reset()
    with torchreel.record(path), torch._inductor.config.patch(config), torch.no_grad():
        torch.compile(program, dynamic=True)(torch.ones(rows, 8))
        torch.compile(other, backend="eager")(torch.ones(4, 4))
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One program with an input of other branches, with another config, and as it was."""
    folder = tmp_path_factory.mktemp("sides")
    with fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
        found = {
            "five": recorded(folder / "five.db", 5),
            "two": recorded(folder / "two.db", 2),
            "config": recorded(folder / "config.db", 5, max_fusion_size=17),
        }
    torch._dynamo.reset()
    return found


def compared(left: Path, right: Path, max_bytes: int = 5_000_000) -> ComparisonDocument:
    with Store.open(left) as one, Store.open(right) as two:
        sides = (one, parse(str(left))), (two, parse(str(right)))
        return build_comparison(*sides, max_bytes)


def details(document: ComparisonDocument, place: int) -> PairDetails:
    packed = document.pairs[place].details
    assert packed is not None
    return msgspec.json.decode(unpacked(document.packed[packed]), type=PairDetails)


def test_what_matches_and_what_differs_is_told_apart(stores: dict[str, Path]) -> None:
    document = compared(stores["five"], stores["two"])
    assert msgspec.json.decode(encoded(document), type=ComparisonDocument) == document
    sized, plain = document.pairs
    assert (sized.frame, plain.frame) == ("program", "other")
    assert {"graphs", "guards", "code", "symbols", "events"} <= set(sized.differing)
    assert "graphs" not in plain.differing
    first = sized.first
    assert first is not None
    assert first.left != first.right
    with Store.open(stores["five"]) as store:
        from torchreel.store import queries

        assert queries.event_at(store, parse(first.left_at)).kind


def test_graphs_and_code_stand_side_by_side(stores: dict[str, Path]) -> None:
    found = details(compared(stores["five"], stores["two"]), 0)
    texts = {text.name: text for text in found.texts}
    dynamo = texts["graph dynamo"]
    parted = [row for row in dynamo.rows if not row.same and not row.skipped]
    assert any("relu" in (row.left or "") and row.right is None for row in parted)
    assert any("torch.mm(" in (row.left or "") for row in dynamo.rows if row.left and row.right)
    assert any(name.startswith("code") for name in texts)
    layers = {layer.layer: layer for layer in found.layers}
    assert layers["guards"].differences == len(layers["guards"].places) > 0


def test_the_factor_of_a_cache_key_is_named(stores: dict[str, Path]) -> None:
    found = details(compared(stores["config"], stores["five"]), 0)
    key = next(key for key in found.keys if key.cache == "FxGraphCache")
    assert [(f.name, f.left, f.right) for f in key.factors] == [
        ("inductor_config[max_fusion_size]", "17", "64")
    ]
    assert key.of > 100
    assert "false miss" in key.verdict


def test_a_long_line_is_cut_where_the_sides_part(tmp_path: Path) -> None:
    """Both sides of the first event that parts, and of a place, show what differs."""
    for name, last in (("left", "one"), ("right", "two")):
        text = f"{'same ' * 1000}{last}{' same' * 1000}"
        with (
            Store.open(tmp_path / f"{name}.db", write=True, create=True) as store,
            store.writer() as w,
        ):
            compile = add_compile(w, recording := add_recording(w))
            columns = {"compile_id": compile, "kind": "trace.record", "name": "n"}
            add_event(w, recording, 1, **columns, data={"said": text})
    document = compared(tmp_path / "left.db", tmp_path / "right.db")
    first = document.pairs[0].first
    (events,) = [row for row in details(document, 0).layers if row.layer == "events"]
    assert first is not None
    for place in (first, events.places[0]):
        assert "same one same" in place.left
        assert "same two same" in place.right
    assert max(map(len, first.left.split("\n"))) <= 120


def test_a_recording_beside_itself_is_no_difference(stores: dict[str, Path]) -> None:
    document = compared(stores["five"], stores["five"])
    assert not document.is_different
    assert details(document, 0).texts == []


def test_what_has_no_room_is_left_out_and_said(stores: dict[str, Path]) -> None:
    whole = compared(stores["five"], stores["two"])
    rows = len(encoded(msgspec.structs.replace(whole, packed=[])))
    room = len(whole.packed[whole.pairs[0].details or 0]) + 10
    small = compared(stores["five"], stores["two"], PAGE_BYTES + rows + room)
    assert [pair.details is None for pair in small.pairs] == [False, True]
    assert "1 of 2 pairs" in small.notes[0]


@pytest.mark.slow
def test_the_command_writes_it_without_torch(
    run: Run,
    tmp_path: Path,
) -> None:
    left, right = tmp_path / "a.db", tmp_path / "b.db"
    for path in (left, right):
        Store.open(path, create=True).close()
    failing(left)
    relu = node("relu", "call_function", "op:aten.relu.default", {"n": "x"})
    failing(right, graph(node("x", "placeholder", "x"), relu))
    page = tmp_path / "diff.html"
    result = run("report", left, right, "-o", page)
    assert result.status == 1, result
    assert f"wrote {page}: 1 of 2 pairs of compiles differ, " in result.out
    assert run("report", left, left, "-o", page, "-f").status == 0
    assert run("report", left, right, left, "-o", page, "-f").status == 2
    assert run("report", left, right, "-o", right, "-f").status == 2
    code = (
        "import sys; from torchreel.cli import app\n"
        f"try: app(['report', {str(left)!r}, {str(right)!r}, '-fo', {str(page)!r}])\n"
        "except SystemExit as ended: assert ended.code == 1\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


# -- in a browser ---------------------------------------------------------------------------------


def test_the_page_shows_both(look: Open, stores: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    file.write_text(render(compared(stores["config"], stores["two"])), encoding="utf-8")
    page = look(file).go("/", "#pairs")
    assert page.locator("#pairs tbody tr").count() == 2
    page.locator("#pairs a.open").first.click()
    page.wait_for_selector("#layers")
    seen = page.locator("main").inner_text()
    assert "inductor_config[max_fusion_size]" in seen
    assert "graph dynamo" in seen
    assert page.locator(".lines tr.parted").count() > 0
    assert page.locator("#keys .story").count() >= 1
    page.click("#back")
    page.wait_for_selector("#pairs")


def test_no_text_of_a_store_does_anything(look: Open, tmp_path: Path) -> None:
    evil = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\u202e'
    left, right = tmp_path / "a.db", tmp_path / "b.db"
    for path, target in ((left, evil), (right, f"{evil}2")):
        Store.open(path, create=True).close()
        call = node(evil, "call_function", target, {"n": "x"}, evil)
        failing(path, graph(node("x", "placeholder", "x"), call), frame_name=evil, frame_file=evil)
    file = tmp_path / "diff.html"
    file.write_text(render(compared(left, right)), encoding="utf-8")
    looked = look(file)
    seen = looked.go("/", "#pairs").locator("main").inner_text()
    place = next(at for at, pair in enumerate(compared(left, right).pairs) if pair.differing)
    page = looked.go(f"/p/{place}", "#layers")
    seen += page.locator("main").inner_text()
    assert "<script>alert(1)</script>" in seen
    assert "\u202e" not in seen
    assert page.locator("#app :is(script, img, iframe)").count() == 0
