"""What a case is computed from, and its settings, all as plain as can be at once.

What is left of a graph mostly fails for any sizes and settings: then one try does what the passes
for each of these would take a dozen for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchreel.minifier.case import Case
from torchreel.minifier.descriptions import is_tensor, sizes
from torchreel.minifier.passes.base import CaseEdit, CasePass, Pass
from torchreel.minifier.passes.config import Ambient, Config
from torchreel.minifier.passes.ranks import DropDimension
from torchreel.minifier.passes.sizes import PlainContents, PlainLayout, SmallerSizes


@dataclass(frozen=True)
class MakePlain(CaseEdit):
    """No config, no ambient state, plain inputs of size 1; with `flat`, of no dimension."""

    flat: bool

    def on(self, case: Case) -> Case | None:
        """As plain as that; None where it is."""
        made = case
        for item in _passes():
            made = item.apply(made, item.edits(made)) or made
        for rank in range(_most_dimensions(made), 0, -1) if self.flat else ():
            made = DropDimension(rank, 0, follow=True).on(made) or made
        return made if made is not case else None


class AllPlain(CasePass):
    """Everything that is not the graph, at once."""

    name = "everything plain"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """The plainest first."""
        return [MakePlain(flat=True), MakePlain(flat=False)]


def _passes() -> Iterator[Pass[Case]]:
    yield from (Config(), Ambient(), SmallerSizes(1), PlainLayout(), PlainContents())


def _most_dimensions(case: Case) -> int:
    found = (len(sizes(value)) for value in case.checkpoint.inputs if is_tensor(value))
    return max(found, default=0)
