"""The likelihood that a candidate is accepted, by what verdicts so far say about its calls.

Lives here: the estimate, which decides only what is run ahead. Not here: where each verdict leads
(`course`), the order in which candidates are run ahead (`look_ahead`). Called by `search`.

A failure mostly needs a few of the calls. A candidate that leaves out all that another one of the
same pass left out, which was refused, is refused as well: of 441 such ones in six reductions none
was accepted. The same holds mostly where the other one was of a gentle pass. Of all others the
share is taken that was accepted of their kind. Runs ahead that the search never asks about tell of
calls as well as those that it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.passes.base import Pass
from torchreel.minifier.search.course import Course

# What is taken to have been accepted and refused of each kind before anything was.
_BEFORE: dict[str, tuple[float, float]] = {
    "put off": (0.1, 8.0),
    "refused with less": (0.1, 8.0),
    "refused with less by a gentle pass": (0.3, 6.0),
    "without a needed call": (0.5, 4.0),
    "calls that may go together": (4.0, 1.0),
    "calls that may each go": (2.0, 2.0),
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
        self._refused_gently: set[frozenset[str]] = set()
        self._learned: set[str] = set()  # digests of the candidates that were learned from
        self._edits: set[Hashable] = set()
        self._needed: set[str] = set()
        self._free: set[str] = set()
        self._free_together: set[frozenset[str]] = set()

    def of(self, course: Course) -> float:
        """Return the probability with which the candidate of a course is accepted."""
        kind, where = self._kind(course)
        before, tally = _BEFORE[kind], self._tally[kind, where]
        share = (tally[0] + before[0]) / (sum(tally) + sum(before))
        return min(max(share, _LEAST), 1 - _LEAST)

    def learn(self, course: Course, same: bool) -> None:
        """Learn from the verdict on the candidate of a course."""
        sweep, candidate = course.sweep, course.candidate
        assert sweep is not None, "it is at a candidate"
        assert candidate is not None, "it is at a candidate"
        self._tally[self._kind(course)][not same] += 1
        self.learn_ahead(sweep.item, course.best, candidate, same)
        if not same and len(sweep.chosen) == 1:
            self._edits.add((sweep.item.name, sweep.chosen[0]))

    def learn_ahead(self, item: Pass[Any], best: AnyCase, candidate: AnyCase, same: bool) -> None:
        """Learn from a run of a candidate of a pass, wherever it was made from; each counts once.

        `best` is the best case of the search now, not the one that the candidate was made from.
        """
        left_out = _calls(best) - _calls(candidate)
        if candidate.digest in self._learned or not left_out:
            return
        self._learned.add(candidate.digest)
        if same:
            self._free |= left_out
            self._free_together.add(left_out)
            return
        self._refused[item.name].add(left_out)
        if item.gentle:
            self._refused_gently.add(left_out)
        if len(left_out) == 1:
            self._needed |= left_out

    def is_open(self, item: Pass[Any], best: AnyCase, candidate: AnyCase) -> bool:
        """Return True if nothing is known yet about the calls that a candidate leaves out."""
        left_out = _calls(best) - _calls(candidate)
        return bool(left_out) and not self._kind_by_calls(item, best, left_out)

    def _kind(self, course: Course) -> tuple[str, str]:
        """Return the kind of a candidate, and the pass where kinds are counted by pass."""
        sweep, left_out = course.sweep, _left_out(course)
        assert sweep is not None, "it is at a candidate"
        name = sweep.item.name
        if not course.lessons.puts_off:
            return "put off", ""
        if left_out:
            kind = self._kind_by_calls(sweep.item, course.best, left_out)
            if kind:
                return kind, "" if kind == "refused with less" else name
        elif any((name, edit) in self._edits for edit in sweep.chosen):
            return "edit refused before", ""
        if sweep.run.refused is not None:
            return "bisected", ""
        return ("longer", "") if sweep.run.low else ("first", name)

    def _kind_by_calls(self, item: Pass[Any], best: AnyCase, left_out: frozenset[str]) -> str:
        """Return the kind that follows from the calls that are left out; "" where none does."""
        calls = _calls(best)
        if _holds_one(left_out, calls, self._refused[item.name]):
            return "refused with less"
        if _holds_one(left_out, calls, self._refused_gently):
            return "refused with less by a gentle pass"
        if left_out & self._needed:
            return "without a needed call"
        if any(left_out <= free for free in self._free_together):
            return "calls that may go together"
        return "calls that may each go" if left_out <= self._free else ""


def _holds_one(
    left_out: frozenset[str], calls: frozenset[str], refused: Iterable[frozenset[str]]
) -> bool:
    """Return True if a refused candidate left out some of these calls, and no other call."""
    return any(found and found <= left_out for found in (one & calls for one in refused))


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
