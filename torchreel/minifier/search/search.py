"""The reduction loop: from a failing case to the simplest one with the same signature.

Lives here: what is run before, in and after the way to a fixpoint, and the counts of each pass. Not
here: that way (`course`), whether the case fails at all (`reproduction`), what is tried (`passes`),
verdicts and their cache (`cached_oracle`). Called by `failure_search`.

It is deterministic: the same case, verdicts and limit on runs give the same result, step for step,
however many workers judge ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal

from torchreel.errors import BudgetSpent
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase, Key
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.hangs.proof import Accepted
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.passes import PHASES, Phases
from torchreel.minifier.passes.named_in_message import Around
from torchreel.minifier.results.reductions import (
    Listener,
    MinifyResult,
    PassCount,
    ProgressEvent,
    Status,
)
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.cached_oracle import CachedOracle, Spending
from torchreel.minifier.search.course import Course, Lessons
from torchreel.minifier.search.likelihood import Likelihood
from torchreel.minifier.search.look_ahead import look_ahead
from torchreel.minifier.search.reproduction import (
    LOOKS,
    ReproducedCase,
    confirm,
    fails_every_time,
    never_alike,
    refuse_trivial,
    reproduce,
)
from torchreel.minifier.search.samples import Samples
from torchreel.minifier.storage.journal import Journal, MemoryJournal
from torchreel.store.failures.signature import Signature

_NO_LIMITS = Budget()
# A graph of one call hardly becomes smaller by being lowered.
_WORTH_A_PART = 2

Parts = Callable[[AnyCase, CachedOracle], Iterable[AnyCase]]
"""Gives cases of one partition for a case of a whole graph, the best first.

What it runs for that is within the judge's budget.
"""


class Search:
    """One reduction; `run` does it."""

    def __init__(
        self,
        oracle: Oracle,
        signature: Signature,
        *,
        journal: Journal | None = None,
        limits: Budget | Spending = _NO_LIMITS,
        listener: Listener | None = None,
        phases_of: Callable[[AnyCase], Phases] = lambda case: PHASES,
    ) -> None:
        self.signature = signature
        self._hangs = oracle if isinstance(oracle, HangOracle) else None
        self.judge = CachedOracle(
            oracle, journal if journal is not None else MemoryJournal(), limits
        )
        self._listener, self._phases_of = listener, phases_of
        self._counts: dict[str, PassCount] = {}
        self._lessons = Lessons()
        self.samples = Samples(Likelihood())
        self._current = ""
        self._reported_problem = False
        self._widths: dict[str, int] = {}  # by pass: how many edits it last had to offer
        self._open = 0  # edits of the current sweep that have not been tried

    def run(
        self,
        *cases: AnyCase,
        parts: Parts = lambda best, judge: (),
        lowered: GraphDoc | None = None,
        is_alike: Callable[[Signature], bool] = never_alike,
        insist: bool = True,
    ) -> MinifyResult:
        """Reduce the first of the cases that fails with the signature.

        `parts` gives other ways to the same failure, through one partition alone, for the case that
        is left: the first that fails is reduced as well, and the simpler of the two results is
        taken. `lowered` is the recorded ATen graph, which says what became of the first case's
        calls. `is_alike` says with which other signatures a case is not worth looking beyond, and
        `insist` whether a case that passes is run more often (`reproduction.reproduce`).

        Raises `NotReproduced` or `FlakyFailure` when none does, and `TrivialResult` when the
        failure has nothing to do with the graph. A spent budget and an interrupt end the search
        with the best case so far, and a status that says so.
        """
        start = reproduce(self.judge, cases, is_alike, insist=insist)
        self._begin(start)
        status: Status = "fixpoint"
        try:
            self._prove_trivial(start.case)
            refuse_trivial(self.judge, start.case, self._after_trivial)
            self._guess(start.case, lowered)
            self._to_fixpoint()
            self._reduce_part(parts)
            self._prove()
            self._confirm()
        except BudgetSpent:
            status = "budget"
        except KeyboardInterrupt:
            status = "interrupted"
        self._best, self._key = self._simplest()
        self._leave_unproved()
        self._save(status)
        self._notify("end")
        return self._result(status)

    @property
    def _phases(self) -> Phases:
        """The passes for the kind of case that is being reduced."""
        return self._phases_of(self._best)

    def _begin(self, start: ReproducedCase) -> None:
        self._start, self._best, self._key = start, start.case, sort_key(start.case)
        self._champion: tuple[AnyCase, Key] | None = None
        self._accepted = Accepted(start.case)
        if self._hangs is not None and not self._hangs.is_sure(start.case):
            self.judge.count()  # known from an earlier reduction: where it hangs has to be seen
            self._hangs.prove(start.case)
        self._number = self.judge.journal.begin(start.case)
        self._save("running")
        self._notify("start", message="" if start.flaky is None else _flaky_text(start.flaky))

    def _guess(self, case: AnyCase, lowered: GraphDoc | None = None) -> None:
        """Begin with the part of the graph that the message names, if that fails by itself."""
        known = self.judge.known(case)
        if isinstance(case, Case) and known is not None:
            item = Around(known.detail, lowered)
            self._follow(Course.of_pass(item, self._best, self.signature, self._lessons))

    def _to_fixpoint(self, phases: Phases | None = None) -> None:
        """Run the phases until no pass of any of them takes a step."""
        tried = self._phases if phases is None else phases
        self._follow(Course.to_fixpoint(tried, self._best, self.signature, self._lessons))

    def _follow(self, course: Course) -> None:
        """Go a course to its end, one verdict after the other."""
        while not course.is_done:
            assert course.sweep is not None, "it is in a pass"
            self._lessons = course.lessons
            self._current = course.sweep.item.name
            self._widths[self._current] = len(course.sweep.edits)
            self._open = len(course.sweep.edits) - course.sweep.at
            began, nodes = time.monotonic(), self._best.total_call_nodes
            try:
                course = self._after_pass(course) if course.has_ended else self._judged(course)
            finally:
                self._count(
                    seconds=time.monotonic() - began,
                    removed_nodes=nodes - self._best.total_call_nodes,
                )
        self._lessons = course.lessons

    def _judged(self, course: Course) -> Course:
        """Return the course that follows from the verdict on the candidate."""
        candidate = course.candidate
        assert candidate is not None, "it is not at an end"
        hits = self.judge.hits
        report = self.judge.verdict(candidate, lambda: self._ahead(course))
        same = report.verdict == "same"
        self.samples.likelihood.learn(course, same)
        if same:
            self._best, self._key = self.judge.accepted(candidate), sort_key(candidate)
            self._accepted.add(self._best)
            self._save("running")
        self._count(tried=1, cached=self.judge.hits - hits, accepted=int(same))
        self._notify("accepted" if same else "rejected", report)
        return course.taking(self._best) if same else course.refused

    def _after_pass(self, course: Course) -> Course:
        if self._settle_doubts():
            course = course.going_on_from(self._best)
        return course.following

    def _reduce_part(self, parts: Parts) -> None:
        """Go on from one partition, if there is still something that this could take away."""
        if not isinstance(self._best, Case) or self._best.is_part:
            return  # a partition says less than the program that it is of
        if self._best.total_call_nodes < _WORTH_A_PART:
            return
        found = [part.repeating(self._start.case.repeats) for part in parts(self._best, self.judge)]
        part = next((part for part in found if self.judge.verdict(part).verdict == "same"), None)
        if part is not None:
            self._champion = whole = (self._best, self._key)
            self._best, self._key = self.judge.accepted(part), sort_key(part)
            self._accepted.add(self._best)
            self._guess(part)
            # As few calls as the whole has, and all of them named: none of these can go either.
            is_guessed = self._best.digest != part.digest
            if not is_guessed or self._best.total_call_nodes != whole[0].total_call_nodes:
                self._to_fixpoint(self._phases[:-1])
            if self._best.total_call_nodes < whole[0].total_call_nodes:
                self._to_fixpoint()
            else:  # the whole is what a user knows: the sizes of this need not be seen to
                (self._best, self._key), self._champion = whole, None

    def _prove(self) -> None:
        """Run a hang for the whole limit; where it ends, go on from the last case that hangs."""
        hangs = self._hangs
        if hangs is None:
            return
        self._best, self._key = self._simplest()
        self._champion = None
        while not self._is_proved(hangs, self._best):
            self._go_back(lambda case: self._is_proved(hangs, case))
            self._to_fixpoint()

    def _prove_trivial(self, case: AnyCase) -> None:
        """Prove whether a case which does nothing hangs as well: that is not presumed."""
        empty = case.trivial()
        if self._hangs is not None and empty is not None:
            self._is_proved(self._hangs, empty)

    def _is_proved(self, hangs: HangOracle, case: AnyCase) -> bool:
        if hangs.is_sure(case):
            return True
        known = self.judge.known(case)
        if known is not None and not known.presumed:
            return known.verdict == "same"
        self.judge.count()
        report = hangs.prove(case)
        self.judge.keep(case, report)
        return report.verdict == "same"

    def _settle_doubts(self) -> bool:
        """Prove the hang of the best case, if cases that ended since then make it doubtful.

        Returns True if another case is the best one now.
        """
        hangs = self._hangs
        if hangs is None or not hangs.doubts(self._best) or self._is_proved(hangs, self._best):
            return False
        self._go_back(lambda case: not hangs.doubts(case) or self._is_proved(hangs, case))
        return True

    def _go_back(self, is_taken: Callable[[AnyCase], bool]) -> None:
        """Make the last accepted case that `is_taken` the best one; forget presumed verdicts."""
        self._best = self._accepted.last_that(is_taken)
        self._key = sort_key(self._best)
        self.judge.forget_presumed()
        self._lessons = replace(self._lessons, settled={})

    def _leave_unproved(self) -> None:
        """Make the last proved case the best one, if the search ended with an unproved one."""
        hangs = self._hangs
        if hangs is not None and not hangs.is_sure(self._best):
            self._best = self._accepted.last_sure(hangs.is_sure)
            self._key = sort_key(self._best)

    def _confirm(self) -> None:
        """Run the result again; if it fails only sometimes, go on with repetitions.

        An earlier search may have done so: how often it failed then is in the journal.
        """
        if self._start.flaky is not None:
            return
        self._best, self._key = self._simplest()
        self._champion = None
        start = confirm(self.judge, self._start, self._best)
        while start is None and self._best is not self._start.case:
            # It failed by luck: what was accepted before it is the result, and is not gone on from.
            self.judge.keep(self._best, OracleReport("none"))
            # The start alone is known to fail, should the search end here.
            self._best, self._key = self._start.case, sort_key(self._start.case)
            self._go_back(lambda case: fails_every_time(self.judge, case))
            start = confirm(self.judge, self._start, self._best)
        if start is not None and start is not self._start:
            self._start = replace(self._start, flaky=start.flaky)
            self._best, self._key = start.case, sort_key(start.case)
            self._lessons = replace(self._lessons, settled={}, refused=frozenset())
            self._notify("start", message="" if start.flaky is None else _flaky_text(start.flaky))
            self._to_fixpoint()

    def _simplest(self) -> tuple[AnyCase, Key]:
        """Return the best case of all, while another is being reduced."""
        here = (self._best, self._key)
        champion = self._champion
        return champion if champion is not None and champion[1] <= here[1] else here

    def _ahead(self, course: Course) -> Iterator[AnyCase]:
        """Yield the cases that the search will probably need next."""
        looks = LOOKS if self._start.flaky is None else 0
        return look_ahead(course, self.judge.foreseen, self.samples, looks)

    def _after_trivial(self) -> Iterator[AnyCase]:
        """Yield the cases that the search will probably need after the case that does nothing."""
        course = Course.to_fixpoint(self._phases, self._best, self.signature, self._lessons)
        if course.candidate is not None:
            yield course.candidate
        yield from self._ahead(course)

    def _count(self, **more: float) -> None:
        """Add to the counts of the current pass."""
        known = self._counts.get(self._current, PassCount(self._current))
        changed = {key: getattr(known, key) + value for key, value in more.items()}
        self._counts[self._current] = replace(known, **changed)

    def _left(self) -> int | None:
        """Return the number of runs to the fixpoint if no step succeeds any more.

        None until every pass has been seen once.
        """
        passes = [item for phase in self._phases for tier in phase for item in tier]
        if any(item.name not in self._widths for item in passes):
            return None
        best = self._best.digest
        others = (p.name for p in passes if p.name != self._current)
        settled = self._lessons.settled
        waiting = (name for name in others if settled.get(name) != best)
        return self._open + sum(self._widths[name] for name in waiting)

    def _save(self, status: str) -> None:
        judge = self.judge
        judge.journal.progress(
            self._simplest()[0],
            status=status,
            runs=judge.runs,
            hits=judge.hits,
            seconds=judge.seconds,
        )
        if judge.journal.problem and not self._reported_problem:
            self._reported_problem = True
            self._notify("note", message=f"{judge.journal.problem} The search goes on in memory.")

    def _notify(
        self,
        kind: Literal["start", "accepted", "rejected", "note", "end"],
        report: OracleReport | None = None,
        message: str = "",
    ) -> None:
        if self._listener is None:
            return
        event = ProgressEvent(
            kind,
            self._current,
            self._simplest()[0].call_nodes,
            self._start.case.call_nodes,
            self.judge.runs,
            self.judge.hits,
            self.judge.seconds,
            report.verdict if report is not None else None,
            message,
            left=self._left(),
            unit=self._best.unit,
            seconds_left=self.judge.seconds_left,
        )
        self._listener.on_step(event)

    def _result(self, status: Status) -> MinifyResult:
        return MinifyResult(
            case=self._best,
            signature=self.signature,
            before_call_nodes=self._start.case.call_nodes,
            after_call_nodes=self._best.call_nodes,
            oracle_runs=self.judge.runs,
            cache_hits=self.judge.hits,
            seconds=self.judge.seconds,
            passes=tuple(self._counts.values()),
            other_failures=self.judge.other_failures,
            status=status,
            flaky=self._start.flaky,
            reduction_id=self._number,
            wasted_runs=self.judge.wasted,
        )


def _flaky_text(flaky: tuple[int, int]) -> str:
    return f"flaky: failed in {flaky[0]} of {flaky[1]} runs; every candidate gets several"
