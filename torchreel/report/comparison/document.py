"""The document that the page of a comparison reads: its types, which are its schema.

Lives here: one struct per object, each field with a sentence that says what it is.  Not here: where
the values come from (`build`), nor how they are shown (`assets/comparison.js`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from torchreel.report.document import ComparedKey, DocumentPart, PageDocument, says


class ComparedPlace(DocumentPart, frozen=True):
    """One place in which two sides part."""

    what: Annotated[str, says("what it is: a name, a node, an event")]
    left: Annotated[str, says("what the left has; empty for nothing")] = ""
    right: Annotated[str, says("what the right has; empty for nothing")] = ""
    left_at: Annotated[str, says("the address of the event on the left")] = ""
    right_at: Annotated[str, says("the address of the event on the right")] = ""
    before: Annotated[list[str], says("what both have just before it, where there is an order")] = (
        msgspec.field(default_factory=list)
    )


class ComparedLayer(DocumentPart, frozen=True):
    """One layer of two compiles, as `torchreel diff` has it."""

    layer: Annotated[str, says("its name: config, symbols, graphs, guards, code, events, ...")]
    left: Annotated[int, says("how many things the left has")]
    right: Annotated[int, says("how many things the right has")]
    differences: Annotated[int, says("in how many places they part")] = 0
    places: Annotated[list[ComparedPlace], says("the first of those places")] = msgspec.field(
        default_factory=list
    )
    note: Annotated[str, says("what could not be compared, or what else differs")] = ""


class TextRow(DocumentPart, frozen=True):
    """A line of two texts side by side, or lines that are left out."""

    left: Annotated[str | None, says("the line on the left; null for none")] = None
    right: Annotated[str | None, says("the line on the right; null for none")] = None
    same: Annotated[bool, says("whether they say the same, whatever names they use")] = False
    skipped: Annotated[int, says("instead: so many lines that are alike are left out here")] = 0


class ComparedText(DocumentPart, frozen=True):
    """Two graphs, or two generated sources, side by side, as far as they differ."""

    name: Annotated[str, says("the stage and the partition of the graphs, or of the code")]
    rows: Annotated[list[TextRow], says("the lines that differ, with those around them")]
    differing: Annotated[int, says("how many lines differ, those left out included")] = 0


class PairDetails(DocumentPart, frozen=True):
    """The details of two compiles: a member of `packed`."""

    layers: Annotated[list[ComparedLayer], says("its layers, in the order of the pipeline")] = (
        msgspec.field(default_factory=list)
    )
    texts: Annotated[list[ComparedText], says("graphs and code that differ, side by side")] = (
        msgspec.field(default_factory=list)
    )
    keys: Annotated[list[ComparedKey], says("the lookups of the left in torch's caches")] = (
        msgspec.field(default_factory=list)
    )
    notes: Annotated[list[str], says("what can't be read")] = msgspec.field(default_factory=list)


class ComparedPair(DocumentPart, frozen=True):
    """Two compiles that belong together: a row of the listing."""

    left: Annotated[str, says("the address of the left one, without the store")]
    right: Annotated[str, says("the address of the right one, without the store")]
    frame: Annotated[str, says("the name of the function")]
    file: Annotated[str, says("the file of the function")]
    line: Annotated[int, says("the first line of the function")]
    statuses: Annotated[tuple[str, str], says("how each ended")]
    ms: Annotated[tuple[float | None, float | None], says("how long each took")] = (None, None)
    differing: Annotated[list[str], says("the layers in which they differ")] = msgspec.field(
        default_factory=list
    )
    first: Annotated[ComparedPlace | None, says("the first event in which they part")] = None
    details: Annotated[
        int | None, says("place in `packed` of its `PairDetails`; null where there is no room")
    ] = None


class LoneCompile(DocumentPart, frozen=True):
    """A compile, or a recording, that only one side has."""

    address: Annotated[str, says("its address, without the store")]
    frame: Annotated[str, says("the name of the function; empty for a recording")] = ""
    status: Annotated[str, says("how it ended")] = ""


class ComparedEnvironment(DocumentPart, frozen=True):
    """Two recordings that belong together."""

    left: Annotated[str, says("the left one")]
    right: Annotated[str, says("the right one")]
    layer: Annotated[ComparedLayer, says("their environments")]
    notes: Annotated[list[str], says("what one of them lost, so that it is not compared")] = (
        msgspec.field(default_factory=list)
    )


class ComparisonDocument(PageDocument, frozen=True):
    """All that the page of a comparison reads."""

    sides: Annotated[tuple[str, str], says("the left address and the right one")]
    recordings: Annotated[list[ComparedEnvironment], says("the recordings that belong together")]
    pairs: Annotated[list[ComparedPair], says("the compiles that belong together")]
    only_left: Annotated[list[LoneCompile], says("what only the left has")] = msgspec.field(
        default_factory=list
    )
    only_right: Annotated[list[LoneCompile], says("what only the right has")] = msgspec.field(
        default_factory=list
    )
    notes: Annotated[list[str], says("what can't be read, or was left out")] = msgspec.field(
        default_factory=list
    )
    packed: Annotated[list[str], says("`PairDetails`: JSON, deflated, in base64")] = msgspec.field(
        default_factory=list
    )

    @property
    def differing(self) -> int:
        """Return the number of pairs of compiles that differ."""
        return sum(bool(pair.differing) for pair in self.pairs)

    @property
    def is_different(self) -> bool:
        """Return True if anything at all differs, the environment included."""
        environments = any(each.layer.differences for each in self.recordings)
        return bool(environments or self.differing or self.only_left or self.only_right)

    def with_notes(self, notes: Iterable[str]) -> ComparisonDocument:
        """Return the document with more notes."""
        return msgspec.structs.replace(self, notes=[*self.notes, *notes])


COMPARISON_STRUCTS: tuple[type[DocumentPart], ...] = (
    ComparisonDocument, ComparedEnvironment, ComparedPair, LoneCompile, PairDetails, ComparedLayer,
    ComparedPlace, ComparedText, TextRow,
)  # fmt: skip
"""All of them, in the order in which the documentation has them."""
