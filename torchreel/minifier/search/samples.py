"""Samples: candidates that are run only to learn which calls a failure needs.

Lives here: which candidates are samples, and learning from their verdicts and from the runs ahead
that the search never asks about. Not here: the candidates that the search will ask about
(`look_ahead`), what is learned (`likelihood`). Called by `look_ahead`.

A free worker could run a candidate that the search will hardly ever ask about. It teaches more to
run a sample instead: the best case with a single edit of a gentle pass. One round of sixty samples
shows what the search would otherwise find out one call after the other.
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
        """Remember a candidate of a pass, to learn from its verdict once it has come."""
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
        """Yield samples for the best case of a course, about whose calls nothing is known yet."""
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
        """Return the edits of the best case that the gentle passes of the phase propose."""
        passes = [item for item in course.passes if item.gentle]
        if self._edits is None or self._edits[:2] != (course.best.digest, passes):
            edits = [(item, edit) for item in passes for edit in item.edits(course.best)]
            self._edits = course.best.digest, passes, edits
        return self._edits[2]

    def _candidate(self, course: Course, item: Pass[Any], edit: Edit) -> AnyCase | None:
        """Return the best case with one edit applied; None if the order does not call it simpler.

        It is kept for later best cases: made from another case, it teaches as much.
        """
        key = item.name, edit
        if key not in self._made:
            made: AnyCase | None = item.apply(course.best, [edit])
            is_simpler = made is not None and sort_key(made) < course.key
            self._made[key] = made if is_simpler else None
        return self._made[key]
