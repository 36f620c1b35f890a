"""The passes for a case, by its kind."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.passes import PHASES, Tier


def phases_of(case: AnyCase) -> Sequence[Sequence[Tier]]:
    """Return the phases of passes for a case of that kind."""
    if isinstance(case, SourceCase):
        # Its passes need libcst, which takes half a second to import.
        from torchreel.minifier.source import passes

        return passes.PHASES
    return PHASES
