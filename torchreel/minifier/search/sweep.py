"""One sweep of a pass over its edits, and a look ahead at the candidates that follow.

Lives here: which edits are carried out together, and in which order. Not here: whether a candidate
is accepted (`search`). A state is immutable: where each answer leads can be seen before there is
one. That is all there is to running candidates in parallel: other workers judge those that the
search is most likely to ask for next, and the search itself goes the way that it would go alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.passes.base import Edit, Pass
from torchreel.minifier.search.run_lengths import RunLength

# So many states are looked at for one answer that is waited for: most need no run to be decided.
_MOST_STATES = 64


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


Decide = Callable[[Sweep, AnyCase | None], bool | None]
"""Returns True if the candidate of a state is accepted; None where that has to be found out."""


def look_ahead(
    sweep: Sweep, candidate: AnyCase, rest: Sequence[Pass[Any]], decide: Decide, likely: float
) -> Iterator[AnyCase]:
    """Yield the candidates that follow `candidate`, the most probable first.

    `rest` are the passes that follow, `likely` the share of candidates that are accepted.
    """
    number = 0  # makes states that are equally probable comparable
    heap: list[tuple[float, int, Sweep, int]] = []

    def add(probability: float, state: Sweep, passes: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(heap, (-probability, number, state, passes))

    def both(probability: float, state: Sweep, proposal: AnyCase, passes: int) -> None:
        add(probability * likely, state.after(True, proposal), passes)
        add(probability * (1 - likely), state.after(False, state.best), passes)

    both(1.0, sweep, candidate, 0)
    while heap and number < _MOST_STATES:
        negative, _, state, passes = heapq.heappop(heap)
        if state.is_done:
            if passes < len(rest):
                add(-negative, Sweep.begin(rest[passes], state.best), passes + 1)
            continue
        proposal = state.candidate()
        known = decide(state, proposal)
        if known is None and proposal is not None:
            yield proposal
            both(-negative, state, proposal, passes)
        else:
            better = proposal if known and proposal is not None else state.best
            add(-negative, state.after(bool(known), better), passes)
