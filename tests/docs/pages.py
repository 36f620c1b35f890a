"""The pages of the documentation, in the order of the site's menu (mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def menu() -> dict[str, list[Path]]:
    """The pages of each section."""
    lines = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    found: dict[str, list[Path]] = {}
    section = ""
    for indent, title, page in re.findall(r"^( +)- ([^:]+):(?: (\S+))?$", lines, re.MULTILINE):
        section = title if len(indent) == 2 else section
        if page:
            found.setdefault(section, []).append(ROOT / "docs" / page)
    return found


def guide() -> str:
    """The pages of the guide, one after the other."""
    return "\n".join(page.read_text(encoding="utf-8") for page in menu()["Guide"])
