"""Inputs, arguments and settings: all made as simple as can be at once.

What is left of a graph mostly fails for any sizes and settings: then one try does what the passes
for each of these would take a dozen for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import is_tensor, sizes
from torchreel.minifier.passes.base import CaseEdit, CasePass, Pass
from torchreel.minifier.passes.config import Ambient, DropConfigEntries
from torchreel.minifier.passes.literals import FewerArguments
from torchreel.minifier.passes.merge import MergeInputs
from torchreel.minifier.passes.ranks import DropDimension
from torchreel.minifier.passes.sizes import PlainContents, PlainLayout, SmallerSizes
from torchreel.minifier.passes.unused import UnusedInputs


@dataclass(frozen=True)
class MakePlain(CaseEdit):
    """No optional argument, no ambient state, one ordinary input of size 1 for all that are alike.

    With `config`, no entry of that either; with `flat`, no dimension.
    """

    config: bool
    flat: bool

    def on(self, case: Case) -> Case | None:
        """Return the case made as simple as that; None where it is."""
        made = case
        for item in (*((DropConfigEntries(),) if self.config else ()), *_PLAIN):
            made = item.apply(made, item.edits(made)) or made
        for rank in range(_most_dimensions(made), 0, -1) if self.flat else ():
            made = DropDimension(rank, 0, follow=True).on(made) or made
        return made if made is not case else None


class AllPlain(CasePass):
    """Everything that is not the graph, at once."""

    name = "everything plain"
    alternatives = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose the edits, the simplest first."""
        return [MakePlain(config, flat) for flat in (True, False) for config in (True, False)]


_PLAIN: tuple[Pass[Case], ...] = (
    Ambient(), SmallerSizes(1), PlainLayout(), PlainContents(), FewerArguments(), UnusedInputs(),
    MergeInputs(),
)  # fmt: skip


def _most_dimensions(case: Case) -> int:
    found = (len(sizes(value)) for value in case.checkpoint.inputs if is_tensor(value))
    return max(found, default=0)
