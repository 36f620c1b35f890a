"""One sweep of a pass over its edits.

Lives here: which edits are carried out together, and in which order. Not here: which pass is swept
over when (`course`), whether a candidate is accepted (`search`). A state is immutable: where each
answer leads can be seen before there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.passes.base import Edit, Pass
from torchreel.minifier.search.run_lengths import RunLength


@dataclass(frozen=True)
class Sweep:
    """A pass, half way through its edits."""

    item: Pass[Any]
    best: AnyCase
    base: AnyCase
    """The case to which the edits of the present run are applied."""
    edits: Sequence[Edit]
    at: int
    run: RunLength
    whole: bool
    """True if all edits are tried at once, before any run."""

    @classmethod
    def begin(cls, item: Pass[Any], best: AnyCase) -> Sweep:
        """Return the state before the first edit."""
        edits = item.edits(best)
        whole = item.together and len(edits) > 1
        return cls(item, best, best, edits, 0, _run(item, len(edits)), whole)

    @property
    def is_done(self) -> bool:
        """Return True if there is nothing left to try."""
        return self.at >= len(self.edits)

    @property
    def chosen(self) -> Sequence[Edit]:
        """Return the edits to try next."""
        end = len(self.edits) if self.whole else self.at + self.run.length
        return self.edits[self.at : end]

    def candidate(self) -> AnyCase | None:
        """Return the case to try next; None where these edits come to nothing."""
        return self.item.apply(self.base, self.chosen)

    def after(self, held: bool, best: AnyCase) -> Sweep:
        """Return the state after the verdict on the candidate; `best` is the best case then."""
        if self.whole:
            return self._on(best, 0) if held else replace(self, whole=False)
        run = self.run.after(held)
        if run.length:
            return replace(self, run=run, best=best)
        if run.low:
            return self._on(best, self.at)
        at = len(self.edits) if self.item.only_prefix else self.at + 1
        return replace(self, at=at, run=_run(self.item, len(self.edits) - at))

    def _on(self, best: AnyCase, at: int) -> Sweep:
        """Return the state that goes on from a better case, without what was refused already."""
        edits = self.item.edits(best)
        run = _run(self.item, len(edits) - at)
        return Sweep(self.item, best, best, edits, at, run, whole=False)


def _run(item: Pass[Any], left: int) -> RunLength:
    """Return the run of edits to begin with."""
    return RunLength(min(left, 1) if item.alternatives else left, bisect=item.only_prefix)
