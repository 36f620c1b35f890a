"""Every page is in the menu, every link leads somewhere, and the glossary stays short."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, menu

PAGES = sorted((ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\[[^\]]+\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_the_menu_has_every_page_once() -> None:
    assert sorted(page for section in menu().values() for page in section) == PAGES


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_glossary_is_short_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([\w -]+) \| ", text, re.MULTILINE)[1:]
    assert 40 < len(words) <= 60
    assert words == sorted(words)


def test_the_paths_of_the_architecture_exist() -> None:
    """A path in backquotes is in the repository, in the package, or in what its line is about."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    assert len(paths) > 40
    absent = [path for path in paths if not (ROOT / path).exists()]
    assert [path for path in absent if not any((ROOT / "torchreel").glob(f"**/{path}"))] == []
