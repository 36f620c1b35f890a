"""The likelihood that a candidate is accepted, by what verdicts so far say about its calls.

Lives here: the estimate, which decides only what is run ahead. Not here: where each verdict leads
(`course`), the order in which candidates are run ahead (`look_ahead`). Called by `search`.

A failure mostly needs a few of the calls. A candidate that leaves out all that another one of the
same pass left out, which was refused, is refused as well: of 441 such ones in six reductions none
was accepted. Of all others the share is taken that was accepted of their kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.search.course import Course

# What is taken to have been accepted and refused of each kind before anything was.
_BEFORE: dict[str, tuple[float, float]] = {
    "put off": (0.1, 8.0),
    "refused with less": (0.1, 8.0),
    "without a needed call": (0.5, 4.0),
    "only calls that may go": (4.0, 1.0),
    "edit refused before": (0.2, 4.0),
    "bisected": (3.0, 3.0),
    "longer": (3.0, 2.0),
    "first": (1.0, 2.0),
}
# Nothing is certain: an estimate that was wrong costs more than one that was not sure.
_LEAST = 0.02


class Likelihood:
    """The estimate of one search."""

    def __init__(self) -> None:
        self._tally: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
        self._refused: dict[str, set[frozenset[str]]] = defaultdict(set)  # by pass
        self._edits: set[Hashable] = set()
        self._needed: set[str] = set()
        self._free: set[str] = set()

    def of(self, course: Course) -> float:
        """Return the probability with which the candidate of a course is accepted."""
        kind, where = self._kind(course)
        before, tally = _BEFORE[kind], self._tally[kind, where]
        share = (tally[0] + before[0]) / (sum(tally) + sum(before))
        return min(max(share, _LEAST), 1 - _LEAST)

    def learn(self, course: Course, same: bool) -> None:
        """Learn from the verdict on the candidate of a course."""
        sweep, left_out = course.sweep, _left_out(course)
        assert sweep is not None, "it is at a candidate"
        self._tally[self._kind(course)][not same] += 1
        if same:
            self._free |= left_out
            return
        if left_out:
            self._refused[sweep.item.name].add(left_out)
        if len(left_out) == 1:
            self._needed |= left_out
        if len(sweep.chosen) == 1:
            self._edits.add((sweep.item.name, sweep.chosen[0]))

    def _kind(self, course: Course) -> tuple[str, str]:
        """Return the kind of a candidate, and the pass where kinds are counted by pass."""
        sweep, left_out = course.sweep, _left_out(course)
        assert sweep is not None, "it is at a candidate"
        name = sweep.item.name
        if not course.lessons.puts_off:
            return "put off", ""
        if left_out:
            calls = _calls(course.best)
            found = (refused & calls for refused in self._refused[name])
            if any(refused and refused <= left_out for refused in found):
                return "refused with less", ""
            if left_out & self._needed:
                return "without a needed call", ""
            if left_out <= self._free:
                return "only calls that may go", ""
        elif any((name, edit) in self._edits for edit in sweep.chosen):
            return "edit refused before", ""
        if sweep.run.refused is not None:
            return "bisected", ""
        return ("longer", "") if sweep.run.low else ("first", name)


def _left_out(course: Course) -> frozenset[str]:
    """Return the names of the calls of the best case that the candidate does not make."""
    assert course.candidate is not None, "it is at a candidate"
    return _calls(course.best) - _calls(course.candidate)


def _calls(case: AnyCase) -> frozenset[str]:
    """Return the names of the calls of a graph; none of a program."""
    if not isinstance(case, Case):
        return frozenset()
    known: frozenset[str] | None = vars(case).get("_calls")
    if known is None:
        known = frozenset(node.name for node in case.graph.nodes if node.is_call)
        vars(case)["_calls"] = known
    return known
