"""A report as a folder: what is in it, and that it opens from a disk."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tests.cli.conftest import Run
from tests.cli.stores import failing, graph, node
from tests.report.conftest import Open, compiles_of, document_of
from torchreel.report.document import CompileDetails, CompileFile
from torchreel.report.packing import unpacked

EVIL = '</script><script>alert(1)</script>");alert(2);("\u2028\u202e'


def file_of(script: Path) -> CompileFile:
    """The details in a script, which is one call with a number and a text in base64."""
    found = re.fullmatch(r'receive\((\d+), "([A-Za-z0-9+/=]+)"\);\n', script.read_text())
    assert found is not None
    assert found[1] == script.stem
    return msgspec.json.decode(unpacked(found[2]), type=CompileFile)


def test_it_has_all_that_a_page_has_no_room_for(
    run: Run,
    recorded: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "pages"
    result = run("report", recorded, "--site", folder)
    number = compiles_of(recorded)
    assert result.status == 0, result
    assert f"wrote {folder / 'index.html'}: {number + 1} files, " in result.out
    whole = document_of(recorded)
    for place, row in enumerate(whole.compiles):
        assert row.details is not None
        in_page = msgspec.json.decode(unpacked(whole.packed[row.details]), type=CompileDetails)
        alone = file_of(folder / "compiles" / f"{place}.js")
        assert alone.details.guards == in_page.guards
        assert [alone.packed[at.content] for at in alone.details.graphs] == [
            whole.packed[at.content] for at in in_page.graphs
        ]
    index = (folder / "index.html").read_text(encoding="utf-8")
    assert '"elsewhere":"scripts"' in index
    small = document_of(recorded, 150_000)
    assert "--site DIR" in small.notes[0]


def test_it_writes_over_nothing_but_by_force(
    run: Run,
    empty: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "mine").write_text("x")
    assert run("report", failing(empty), "--site", folder).status == 2
    assert run("report", empty, "--site", folder, "--force").status == 0
    assert (folder / "mine").read_text() == "x"
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(folder / "mine")
    assert run("report", empty, "--site", folder, "--force").status == 0
    assert (folder / "mine").read_text() == "x"
    assert run("report", empty, "--site", empty, "--force").status == 2
    assert run("report", f"{empty}#9", "--site", tmp_path / "new").status == 2
    assert not (tmp_path / "new").exists()


def test_of_two_addresses_each_has_a_folder_beside_the_page_that_compares_them(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pages"
    same = run("report", failing(empty), empty, "--site", folder)
    assert same.status == 0, same
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("index.html")) == [
        "index.html", "left/index.html", "right/index.html",
    ]  # fmt: skip
    assert f"wrote {folder / 'index.html'}: 0 of 2 pairs" in same.out
    assert (folder / "right" / "compiles" / "0.js").exists()
    assert "left/index.html" in (folder / "index.html").read_text()
    assert run("report", empty, empty, "--site", folder).status == 2
    missing = run("report", empty, f"{empty}#9", "--site", tmp_path / "new")
    assert (missing.status, (tmp_path / "new").exists()) == (2, False)


def test_it_opens_from_a_disk_and_no_text_does_anything(
    look: Open,
    run: Run,
    empty: Path,
    tmp_path: Path,
) -> None:
    call = node(EVIL, "call_function", EVIL, {"n": "x"}, EVIL)
    failing(empty, graph(node("x", "placeholder", "x"), call), frame_name=EVIL, frame_file=EVIL)
    folder = tmp_path / "pages"
    assert run("report", empty, "--site", folder).status == 0
    file = folder / "index.html"
    looked = look(file)
    page = looked.go("/c/1/graphs", ".pane .row")
    assert "alert(1)" in page.locator("main").inner_text()
    assert page.locator("#app :is(script, img, iframe)").count() == 0
    assert {url.partition("#")[0] for url in looked.asked} == {
        file.as_uri(), (folder / "compiles" / "1.js").as_uri(),
    }  # fmt: skip
    looked.asked = [file.as_uri()]
    (folder / "compiles" / "0.js").unlink()
    page.goto(f"{file.as_uri()}#/c/0")
    page.wait_for_selector("text=can't be read")
    looked.asked, looked.said = [], [text for text in looked.said if "ERR_FILE_NOT" not in text]
