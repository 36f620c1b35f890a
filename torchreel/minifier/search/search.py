"""The reduction loop: from a failing case to the simplest one with the same signature.

Lives here: repeating the tiers of passes to a fixpoint, and the counts of each pass. Not here:
whether the case fails at all (`reproduction`), what is tried (`passes`), what is simpler
(`cases.order`), verdicts and their cache (`cached_oracle`). Called by `failure_search`.

It is deterministic: the same case, verdicts and limit on runs give the same result, step for step,
however many workers judge ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from torchreel.errors import BudgetSpent
from torchreel.formats.graphs.codec import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.kinds import AnyCase, Key
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.hangs.proof import Accepted
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.passes import PHASES, Pass, Tier
from torchreel.minifier.passes.around import Around
from torchreel.minifier.results.reductions import (
    Listener,
    MinifyResult,
    PassCount,
    ProgressEvent,
    Status,
)
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.search.data_flow import data_flow
from torchreel.minifier.search.reachability import can_reach
from torchreel.minifier.search.reproduction import (
    ReproducedCase,
    confirm,
    never_alike,
    refuse_trivial,
    reproduce,
)
from torchreel.minifier.search.sweep import Sweep, look_ahead
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
        limits: Budget = _NO_LIMITS,
        listener: Listener | None = None,
        phases: Sequence[Sequence[Tier]] = PHASES,
    ) -> None:
        self.signature = signature
        self._hangs = oracle if isinstance(oracle, HangOracle) else None
        self.judge = CachedOracle(
            oracle, journal if journal is not None else MemoryJournal(), limits
        )
        self._listener, self._phases = listener, phases
        self._counts: dict[str, PassCount] = {}
        self._settled: dict[str, str] = {}  # by pass: the best case that it could not improve
        self._refused: set[Hashable] = set()  # what did not fail: data flows, and edits
        self._put_off: set[str] = set()  # passes of which candidates like these wait
        self._puts_off = True
        self._current = ""
        self._reported_problem = False
        self._widths: dict[str, int] = {}  # by pass: how many edits it last had to offer
        self._open = 0  # edits of the current sweep that have not been tried
        self._rest: Sequence[Pass[Any]] = ()  # what follows the pass, if nothing is accepted
        self._later: Sequence[Pass[Any]] = ()

    def run(
        self,
        *cases: AnyCase,
        parts: Parts = lambda best, judge: (),
        lowered: GraphDoc | None = None,
        is_alike: Callable[[Signature], bool] = never_alike,
    ) -> MinifyResult:
        """Reduce the first of the cases that fails with the signature.

        `parts` gives other ways to the same failure, through one partition alone, for the case that
        is left: the first that fails is reduced as well, and the simpler of the two results is
        taken. `lowered` is the recorded ATen graph, which says what became of the first case's
        calls. `is_alike` says with which other signatures a case is not worth looking beyond
        (`reproduction.reproduce`).

        Raises `NotReproduced` or `FlakyFailure` when none does, and `TrivialResult` when the
        failure has nothing to do with the graph. A spent budget and an interrupt end the search
        with the best case so far, and a status that says so.
        """
        start = reproduce(self.judge, cases, is_alike)
        self._begin(start)
        status: Status = "fixpoint"
        try:
            self._prove_trivial(start.case)
            refuse_trivial(self.judge, start.case)
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
        """Begin with what the message names, if that fails by itself."""
        known = self.judge.known(case)
        if isinstance(case, Case) and known is not None:
            self._run_pass(Around(known.detail, lowered))

    def _to_fixpoint(self, phases: Sequence[Sequence[Tier]] | None = None) -> None:
        """Run the phases until no pass of any of them takes a step.

        A candidate that is like a refused one (`_likeness`) is put off: a pass that had such ones
        is settled only when it has tried them after everything else.
        """
        before = ""
        while before != self._best.digest or self._put_off:
            self._puts_off = before != self._best.digest
            before = self._best.digest
            if not self._puts_off:
                self._refused.clear()
                for name in self._put_off:
                    self._settled.pop(name, None)
                self._put_off.clear()
            tried = list(self._phases if phases is None else phases)
            # What was put off fails last of all for other sizes: the calls see the simplest.
            for phase in tried if self._puts_off else tried[::-1]:
                self._run_phase(phase)

    def _reduce_part(self, parts: Parts) -> None:
        """Go on from one partition, if there is still something that this could take away."""
        if self._best.is_part or self._best.total_call_nodes < _WORTH_A_PART:
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

    def _settle_doubts(self) -> None:
        """Prove the best case as soon as what ended since says that it may end as well."""
        hangs = self._hangs
        if hangs is None or not hangs.doubts(self._best) or self._is_proved(hangs, self._best):
            return
        self._go_back(lambda case: not hangs.doubts(case) or self._is_proved(hangs, case))

    def _go_back(self, is_taken: Callable[[AnyCase], bool]) -> None:
        """Go on from the last case that was accepted and is taken to hang."""
        self._best = self._accepted.last_that(is_taken)
        self._key = sort_key(self._best)
        self.judge.forget_presumed()
        self._settled.clear()

    def _leave_unproved(self) -> None:
        """Give the last case that was proved, where a search ended before the best one was."""
        hangs = self._hangs
        if hangs is not None and not hangs.is_sure(self._best):
            self._best = self._accepted.last_sure(hangs.is_sure)
            self._key = sort_key(self._best)

    def _confirm(self) -> None:
        """Run the result again; if it fails only sometimes, go on with repetitions."""
        if self._start.flaky is not None or self.judge.runs == 0:
            return
        self._best, self._key = self._simplest()
        self._champion = None
        start = confirm(self.judge, self._start, self._best)
        if start is not self._start:
            self._start = replace(self._start, flaky=start.flaky)
            self._best, self._key = start.case, sort_key(start.case)
            self._settled.clear()
            self._refused.clear()
            self._notify("start", message="" if start.flaky is None else _flaky_text(start.flaky))
            self._to_fixpoint()

    def _simplest(self) -> tuple[AnyCase, Key]:
        """Return the best case of all, while another is being reduced."""
        here = (self._best, self._key)
        champion = self._champion
        return champion if champion is not None and champion[1] <= here[1] else here

    def _run_phase(self, tiers: Sequence[Tier]) -> None:
        """Run the tiers until no pass takes a step; begin with the first tier after every step."""
        at = 0
        while at < len(tiers):
            self._later = [item for tier in tiers[at + 1 :] for item in tier]
            at = 0 if self._run_tier(tiers[at]) else at + 1

    def _run_tier(self, passes: Tier) -> bool:
        """Run each pass of a tier once; return True if any took a step."""
        before = self._best.digest
        for number, item in enumerate(passes):
            if self._settled.get(item.name) != self._best.digest:
                found = self._best.digest
                self._rest = [*passes[number + 1 :], *self._later]
                self._run_pass(item)
                self._settled[item.name] = found  # what it improved, it gets to see again
                self._settle_doubts()
        return self._best.digest != before

    def _run_pass(self, item: Pass[Any]) -> None:
        """Sweep over the edits of a pass once, in runs as long as they succeed."""
        self._current = item.name
        began, nodes = time.monotonic(), self._best.total_call_nodes
        try:
            self._sweep(item)
        finally:
            self._count(
                seconds=time.monotonic() - began,
                removed_nodes=nodes - self._best.total_call_nodes,
            )

    def _sweep(self, item: Pass[Any]) -> None:
        sweep = Sweep.begin(item, self._best)
        self._widths[item.name] = len(sweep.edits)
        while not sweep.is_done:
            self._widths[item.name] = len(sweep.edits)
            self._open = len(sweep.edits) - sweep.at
            held = self._accept(sweep)
            sweep = sweep.after(held, self._best)

    def _accept(self, sweep: Sweep) -> bool:
        """Return True if the next candidate is the best case now."""
        candidate = sweep.candidate()
        held = self._decided(candidate, self._best)
        if held is not None or candidate is None:
            return bool(held)
        likeness = _likeness(sweep, candidate)
        if self._is_put_off(likeness):
            self._put_off.add(self._current)
            return False
        hits = self.judge.hits
        report = self.judge.verdict(candidate, lambda: self._ahead(sweep, candidate))
        same = report.verdict == "same"
        self._learn(likeness, same)
        if same:
            self._best, self._key = self.judge.accepted(candidate), sort_key(candidate)
            self._accepted.add(self._best)
            self._save("running")
        self._count(tried=1, cached=self.judge.hits - hits, accepted=int(same))
        self._notify("accepted" if same else "rejected", report)
        return same

    def _decided(self, candidate: AnyCase | None, best: AnyCase) -> bool | None:
        """Return True if a candidate is better than the best case, where that needs no verdict."""
        if candidate is None:
            return False
        if candidate.digest == best.digest:
            return True  # a longer run in which the last edits came to nothing
        key = self._key if best is self._best else sort_key(best)
        if sort_key(candidate) >= key or self._falls_short(candidate, best):
            return False
        return None

    def _is_put_off(self, likeness: Hashable) -> bool:
        """Return True if a candidate like this one did not fail before."""
        return self._puts_off and likeness in self._refused

    def _learn(self, likeness: Hashable, same: bool) -> None:
        """Remember what did not fail; once a step was taken, put off again."""
        self._puts_off = self._puts_off or same
        if same:
            self._refused.discard(likeness)
        elif likeness is not None:
            self._refused.add(likeness)

    def _falls_short(self, candidate: AnyCase, best: AnyCase) -> bool:
        """Return True if a candidate does not get to where the best case fails."""
        return not can_reach(candidate, self.signature) and can_reach(best, self.signature)

    def _ahead(self, sweep: Sweep, candidate: AnyCase) -> Iterator[AnyCase]:
        """Yield what the search will probably need next."""

        def decide(state: Sweep, proposal: AnyCase | None) -> bool | None:
            held = self._decided(proposal, state.best)
            if held is not None or proposal is None:
                return bool(held)
            if self._is_put_off(_likeness(state, proposal)):
                return False
            known = self.judge.known(proposal)
            return known.verdict == "same" if known is not None else None

        count = self._counts.get(self._current, PassCount(self._current))
        likely = (count.accepted + 1) / (count.tried + 2)  # as Laplace has it
        best = self._best.digest
        rest = [item for item in self._rest if self._settled.get(item.name) != best]
        return look_ahead(sweep, candidate, rest, decide, likely)

    def _count(self, **more: float) -> None:
        """Add to what the current pass did."""
        known = self._counts.get(self._current, PassCount(self._current))
        changed = {key: getattr(known, key) + value for key, value in more.items()}
        self._counts[self._current] = replace(known, **changed)

    def _left(self) -> int | None:
        """Return how many runs it takes to the fixpoint if no step succeeds any more.

        None until every pass has been seen once: nobody knows before.
        """
        passes = [item for phase in self._phases for tier in phase for item in tier]
        if any(item.name not in self._widths for item in passes):
            return None
        best = self._best.digest
        others = (p.name for p in passes if p.name != self._current)
        waiting = (name for name in others if self._settled.get(name) != best)
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
        )


def _likeness(sweep: Sweep, candidate: AnyCase) -> Hashable:
    """Return what a candidate has in common with those that will mostly share its verdict.

    The data flow of its calls; or, where it makes as many as the best case (with other sizes,
    settings or arguments), what is done to get there: that seldom depends on the other sizes and
    settings.
    """
    found = data_flow(candidate)
    if found is None or candidate.total_call_nodes < sweep.best.total_call_nodes:
        return found
    return sweep.item.name, tuple(sweep.chosen)


def _flaky_text(flaky: tuple[int, int]) -> str:
    return f"flaky: failed in {flaky[0]} of {flaky[1]} runs; every candidate gets several"
