"""A look ahead at the candidates that a search will probably ask about, the most probable first.

Lives here: following a course on guesses. Not here: where each verdict leads (`course`), what runs
the candidates that are foreseen (`oracle`), what else is worth a run (`samples`). Called by
`search`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.search.course import Course
from torchreel.minifier.search.samples import Known, Samples

# So many courses are looked at in all: most need no run to be decided, and many were foreseen.
_MOST_COURSES = 1024
# What is less probable than this is not worth a run, even of a worker that has nothing to do.
_LEAST = 1e-3
# A sample tells more than a candidate that is less probable than this. With 8 workers few of either
# are run, with 64 most workers are free for samples.
_SAMPLES_BELOW = 0.25


@dataclass(frozen=True)
class _Guess:
    """A guessed verdict on the candidate of a course, with the guesses that it builds on."""

    course: Course
    verdict: bool | None
    assumed: Mapping[str, bool]

    def arrive(self) -> Course:
        """Return the course that follows if the guess is right."""
        if self.verdict is None:
            return self.course
        candidate = self.course.candidate
        assert candidate is not None, "a verdict is on something"
        return self.course.taking(candidate) if self.verdict else self.course.refused


def look_ahead(course: Course, known: Known, samples: Samples, looks: int = 0) -> Iterator[AnyCase]:
    """Yield the candidates that may follow the course's own, with samples before unlikely ones.

    At the end of the course, yield the best case `looks` times: the search runs it again so often.
    """
    samples.learn(course.best, known)
    sampled = False
    number = 0  # makes guesses that are equally probable comparable
    heap: list[tuple[float, int, _Guess]] = [(-1.0, 0, _Guess(course, None, {}))]

    def add(probability: float, guess: _Guess) -> None:
        nonlocal number
        number += 1
        if probability >= _LEAST:
            heapq.heappush(heap, (-probability, number, guess))

    while heap and number < _MOST_COURSES:
        negative, _, guess = heapq.heappop(heap)
        if -negative < _SAMPLES_BELOW and not sampled:
            sampled = True
            yield from samples.of(course, known)
        here, assumed = guess.arrive(), guess.assumed
        while here.has_ended:
            here = here.following
        candidate = here.candidate
        if candidate is None:
            yield from [here.best] * looks
            continue
        held = known(candidate)
        if held is None:
            held = assumed.get(candidate.digest)
        if held is False:
            add(-negative, _Guess(here.refused, None, assumed))
        elif held is not None:
            taken = here.taking(candidate if held is True else held)
            add(-negative, _Guess(taken, None, assumed))
        else:
            if candidate is not course.candidate:
                assert here.sweep is not None, "it is at a candidate"
                samples.expect(here.sweep.item, candidate)
                yield candidate
            share = samples.likelihood.of(here)
            for verdict, part in ((True, share), (False, 1 - share)):
                found = {**assumed, candidate.digest: verdict}
                add(-negative * part, _Guess(here, verdict, found))
