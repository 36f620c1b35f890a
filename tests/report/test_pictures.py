"""The pictures of docs/report.md: they can be taken again, and the page shows each of them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.report import pictures


def size_of(file: Path) -> tuple[int, int]:
    """Return width and height, as the header of a PNG has them."""
    head = file.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_the_page_shows_each_of_them() -> None:
    text = (pictures.FOLDER.parent / "report.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)", text)
    assert sorted(shown) == sorted(pictures.NAMES)
    assert sorted(file.stem for file in pictures.FOLDER.iterdir()) == sorted(pictures.NAMES)
    wanted = (pictures.SIZE["width"], pictures.SIZE["height"])
    assert {size_of(pictures.FOLDER / f"{name}.png") for name in pictures.NAMES} == {wanted}


@pytest.mark.slow
def test_they_can_be_taken_again(browser: Any, tmp_path: Path) -> None:
    folder, work = tmp_path / "pictures", tmp_path / "work"
    work.mkdir()
    pictures.take(browser, folder, work)
    assert sorted(file.stem for file in folder.iterdir()) == sorted(pictures.NAMES)
    # A page without content is a picture of some 5 kB.
    assert min(file.stat().st_size for file in folder.iterdir()) > 20_000
