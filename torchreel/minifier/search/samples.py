"""Samples: candidates that are run only to learn which calls a failure needs.

Lives here: which ones, and learning from them and from the runs ahead that the search never asks
about. Not here: the candidates that the search will ask about (`look_ahead`), what is learned
(`likelihood`). Called by `look_ahead`.

A worker that has nothing to do but what is hardly ever asked for learns more from one edit of a
gentle pass alone, made in the best case. Sixty of these tell in one round what a search else finds
out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.passes import Edit, Pass
from torchreel.minifier.search.course import Course
from torchreel.minifier.search.likelihood import Likelihood

Known = Callable[[AnyCase], "AnyCase | bool | None"]
"""Returns the case that an accepted candidate became, False for a refused one, None for others."""

# Some of 64 workers stay at what the search may ask about, however unlikely.
_MOST = 40
# Runs that were given up never tell anything: so many of the last ones are waited for.
_MOST_EXPECTED = 512


class Samples:
    """The samples of one search, and its runs ahead that may have come."""

    def __init__(self, likelihood: Likelihood) -> None:
        self.likelihood = likelihood
        self._expected: dict[str, tuple[Pass[Any], AnyCase]] = {}
        self._made: dict[tuple[str, Edit], AnyCase | None] = {}
        self._edits: tuple[str, list[Pass[Any]], list[tuple[Pass[Any], Edit]]] | None = None

    def expect(self, item: Pass[Any], candidate: AnyCase) -> None:
        """Learn from the verdict on a candidate of a pass when it has come."""
        self._expected.setdefault(candidate.digest, (item, candidate))
        while len(self._expected) > _MOST_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def learn(self, best: AnyCase, known: Known) -> None:
        """Learn from the verdicts that have come."""
        for digest, (item, candidate) in list(self._expected.items()):
            held = known(candidate)
            if held is not None:
                del self._expected[digest]
                self.likelihood.learn_ahead(item, best, candidate, held is not False)

    def of(self, course: Course, known: Known) -> Iterator[AnyCase]:
        """Yield the samples that tell something, of the best case of a course."""
        return islice(self._open(course, known), _MOST)

    def _open(self, course: Course, known: Known) -> Iterator[AnyCase]:
        for item, edit in self._gentle(course):
            candidate = self._candidate(course, item, edit)
            if candidate is None:
                continue
            is_open = self.likelihood.is_open(item, course.best, candidate)
            if not is_open or known(candidate) is not None:
                self._made[item.name, edit] = None
                continue
            self.expect(item, candidate)
            yield candidate

    def _gentle(self, course: Course) -> list[tuple[Pass[Any], Edit]]:
        """Return the edits in the best case of those passes of its phase that are gentle."""
        passes = [item for item in course.passes if item.gentle]
        if self._edits is None or self._edits[:2] != (course.best.digest, passes):
            edits = [(item, edit) for item in passes for edit in item.edits(course.best)]
            self._edits = course.best.digest, passes, edits
        return self._edits[2]

    def _candidate(self, course: Course, item: Pass[Any], edit: Edit) -> AnyCase | None:
        """Return the case with one edit carried out, made once: from another one it tells as much.

        None where the order does not call it simpler.
        """
        key = item.name, edit
        if key not in self._made:
            made: AnyCase | None = item.apply(course.best, [edit])
            is_simpler = made is not None and sort_key(made) < course.key
            self._made[key] = made if is_simpler else None
        return self._made[key]
