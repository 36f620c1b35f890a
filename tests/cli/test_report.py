"""`torchreel report`, on stores that are written row by row."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing
from torchreel.store import Store


def data_of(page: Path) -> Any:
    """The document in a page."""
    found = re.search(r'id="report">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.usefixtures("a_file")
def test_it_writes_a_page_and_says_what_is_in_it(run: Run, empty: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("report", failing(empty), "-o", page)
    assert result.status == 0, result
    size = f"{page.stat().st_size:,}"
    assert result.out == f"wrote {page}: 2 compiles, 1 distinct failure, {size} bytes\n"
    found = data_of(page)
    assert [row["address"] for row in found["compiles"]] == ["1/0/0", "1/0/1"]
    (group,) = found["failures"]
    assert group["compiles"] == [1]
    assert group["next"] == f"torchreel minify {empty}#1/0/1"


def test_an_address_says_what_it_covers(run: Run, empty: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", f"{failing(empty)}#1/0/0", "-o", page).status == 0
    assert [row["address"] for row in data_of(page)["compiles"]] == ["1/0/0"]
    assert "failures" not in data_of(page)
    assert run("report", f"{empty}#1/7/7", "-o", page, "-f").status == 2
    assert run("report", f"{empty}#9", "-o", page, "-f").status == 2


def test_it_overwrites_only_by_force(run: Run, empty: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("mine")
    result = run("report", failing(empty), "-o", page)
    assert (result.status, page.read_text()) == (2, "mine")
    assert f"{page} exists: overwrite it with --force" in result.err
    assert run("report", empty, "-o", page, "--force").status == 0
    assert run("report", empty, "-o", tmp_path / "no" / "report.html").status == 2
    assert run("report", empty, "-o", tmp_path, "--force").status == 2


def test_a_link_leads_to_the_page(run: Run, empty: Path, tmp_path: Path) -> None:
    page, link = tmp_path / "there" / "page.html", tmp_path / "report.html"
    page.parent.mkdir()
    link.symlink_to(page)
    store = failing(empty)
    for _ in ("the page is missing", "the page is there"):
        assert run("report", store, "-o", link, "--force").status == 0
        assert link.is_symlink()
        assert len(data_of(page)["compiles"]) == 2


def test_a_pipe_is_written_into(run: Run, empty: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "report.html"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    try:
        assert run("report", failing(empty), "-o", pipe, "--force").status == 0
        assert pipe.is_fifo(), "it was replaced by a file"
        text, _ = reader.communicate(timeout=20)
    finally:
        reader.kill()
    assert text.startswith("<!doctype html>")


def test_an_empty_store_has_a_page(run: Run, empty: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", empty, "-o", page).status == 0
    assert data_of(page)["compiles"] == []


def test_what_is_readable_of_a_damaged_store_is_shown(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    with closing(sqlite3.connect(failing(empty), isolation_level=None)) as connection:
        connection.execute("UPDATE graphs SET digest = 'no digest'")
        connection.execute("UPDATE stages SET started_ns = 'x' WHERE stage = 'lowering'")
    result = run("report", empty, "-o", page)
    assert result.status == 3, result
    assert "not readable: " in result.err
    found = data_of(page)
    assert len(found["compiles"]) == 2
    assert len(found["failures"]) == 1
    told = [line.removeprefix("not readable: ") for line in result.err.splitlines()]
    assert set(found["notes"]) <= set(told)
    assert len(found["notes"]) == 2


def test_it_does_not_import_torch(empty: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from torchreel.cli import app\n"
        f"app(['report', {str(failing(empty))!r}, '-o', {str(tmp_path / 'r.html')!r}], "
        "standalone_mode=False)\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.usefixtures("a_file")
def test_the_store_itself_is_never_overwritten(run: Run, empty: Path) -> None:
    before = failing(empty).read_bytes()
    result = run("report", empty, "-o", empty, "--force")
    assert result.status == 2
    assert "is the store itself" in result.err
    assert empty.read_bytes() == before


def test_a_page_that_can_not_be_written_is_said(run: Run, empty: Path, tmp_path: Path) -> None:
    page = tmp_path / ("long" * 70 + ".html")
    result = run("report", failing(empty), "-o", page)
    assert result.status == 2
    assert "can't be written" in result.err


def test_a_folder_that_can_not_be_read_or_named_is_said(
    run: Run, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(empty)
    long = tmp_path / ("long" * 75)
    assert run("report", empty, "-o", long / "x.html").status == 2
    assert run("report", empty, "--site", long).status == 2

    def denied(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", denied)
        result = run("report", empty, "--site", tmp_path)
    assert (result.status, "can't be read: Permission denied" in result.err) == (2, True)


def test_a_recording_whose_rows_begin_with_zero(run: Run, empty: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(failing(empty))) as connection:
        connection.execute("PRAGMA foreign_keys = off")
        connection.execute("UPDATE compiles SET id = 0 WHERE id = 2")
        connection.execute("UPDATE failures SET compile_id = 0 WHERE compile_id = 2")
        connection.commit()
    page = tmp_path / "report.html"
    assert run("report", empty, "-o", page).status == 0
    (group,) = data_of(page)["failures"]
    assert len(group["compiles"]) == 1


def test_a_comparison_in_a_folder_is_whole_where_a_part_is_not_readable(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    Store.open(other, create=True).close()
    failing(other)
    with closing(sqlite3.connect(failing(empty), isolation_level=None)) as connection:
        connection.execute("UPDATE stages SET started_ns = 'x' WHERE stage = 'lowering'")
    folder = tmp_path / "site"
    result = run("report", empty, other, "--site", folder)
    assert result.status == 3, result
    assert "not readable: " in result.err
    for name in ("left/index.html", "right/index.html", "index.html"):
        assert (folder / name).is_file(), name


def test_the_size_of_a_folder_is_in_bytes(run: Run, empty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    result = run("report", failing(empty, frame_name="λ" * 100), "--site", folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert result.out.endswith(f" {size:,} bytes\n")
