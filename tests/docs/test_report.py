"""The page of reports has the schema of their document."""

from pathlib import Path

import msgspec

from torchreel.report import catalogue, document
from torchreel.report.comparison import document as comparison

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_page_is_what_the_document_declares() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue.page(), (
        "run: python -m torchreel.report.catalogue > docs/report.md"
    )


def test_every_part_of_the_document_is_on_it() -> None:
    made = {
        kind
        for kind in [*vars(document).values(), *vars(comparison).values()]
        if isinstance(kind, type) and issubclass(kind, document.DocumentPart)
    }
    told = {*document.STRUCTS, *comparison.COMPARISON_STRUCTS}
    assert made - {document.DocumentPart, document.PageDocument} == told
    for kind in told:
        assert f"### {kind.__name__}\n" in PAGE.read_text(encoding="utf-8")
        assert msgspec.structs.fields(kind), kind
