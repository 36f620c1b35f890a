"""The page is one file that asks for nothing, whatever the document has in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from tests.escaping.nasty import with_every_fragment
from torchreel.escaping.characters import visible_block
from torchreel.report import render
from torchreel.report.build import PAGE_BYTES
from torchreel.report.document import FORMAT, CompileRow, RecordingRow, ReportDocument
from torchreel.report.packing import json_block
from torchreel.report.page import SCRIPTS, asset

ASSETS = Path(__file__).parents[2] / "torchreel" / "report" / "assets"
DAGRE = "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578"


class Tags(HTMLParser):
    """The tags of a page with their attributes, the JSON of it, and its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style", "title"):
            self.texts.setdefault(self._inside, []).append(data)


def document_with(text: str) -> ReportDocument:
    """A document with a text in all places of some sorts."""
    row = CompileRow("1/0/0", 1, text, text, 3, text, text, 0.0, 1.0, stage=text)
    recording = RecordingRow(1, text, text, text, text, None, {text: text})
    return ReportDocument(FORMAT, text, "0", [recording], [row], notes=[text])


def test_its_policy_allows_what_is_in_it_and_nothing_else() -> None:
    page = Tags(render(document_with("x")))
    policy = next(tag["content"] or "" for _, tag in page.tags if "http-equiv" in tag)
    script, style = page.texts["script"][-1], page.texts["style"][0]
    hashes = {
        kind: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for kind, text in (("script", script), ("style", style))
    }
    assert policy == (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; "
        "base-uri 'none'; form-action 'none'"
    )


def test_nothing_of_it_names_another_place() -> None:
    for name in [*SCRIPTS, "style.css"]:
        text = asset(name) if not name.startswith("vendor/") else ""
        addresses = set(re.findall(r"https?://[^\s\"']+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"@import|url\((?!#)", text), name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, name


@with_every_fragment
def test_a_text_adds_no_tag(text: str) -> None:
    page, plain = Tags(render(document_with(text))), Tags(render(document_with("x")))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.tags == plain.tags
    found = json.loads(page.texts["script"][0])
    assert found["compiles"][0]["frame"] == visible_block(text)
    assert "".join(page.texts["title"]).startswith("torchreel: ")


@with_every_fragment
def test_a_block_of_json_is_the_same_json(text: str) -> None:
    data = json.dumps({"a": text}).encode()
    block = json_block(data)
    assert json.loads(block) == {"a": text}
    assert not set("<>&") & set(block)


def test_the_library_is_the_one_that_was_looked_at() -> None:
    """As npm has it in @dagrejs/dagre 3.1.3, and with its licence."""
    data = (ASSETS / "vendor" / "dagre.min.js").read_bytes()
    assert hashlib.sha256(data).hexdigest() == DAGRE
    assert "Permission is hereby granted" in (ASSETS / "vendor" / "dagre.LICENSE").read_text()
    page = render(document_with("x"))
    assert "Chris Pettitt" in page
    assert "sourceMappingURL" not in page


def test_the_page_itself_takes_no_more_than_is_set_aside_for_it() -> None:
    assert len(render(document_with("x")).encode()) < PAGE_BYTES
