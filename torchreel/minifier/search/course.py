"""The way of a search through its passes, as a value: where it is, and where each verdict leads.

Lives here: repeating the tiers of passes to a fixpoint, what is put off, and which candidates need
no verdict. Not here: verdicts (`cached_oracle`), the runs before and after (`search`), which of the
candidates that may follow are run ahead (`look_ahead`). Called by both.

A course never changes; `refused` and `taking` give the one that follows. So the search goes along
it, one verdict after the other, and the look ahead goes on from the same place on a guess: both by
the same code, and whatever the guesses are, the search takes the same steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase, Key
from torchreel.minifier.passes import Pass, Phases, Tier
from torchreel.minifier.search.data_flow import data_flow
from torchreel.minifier.search.reachability import can_reach
from torchreel.minifier.search.sweep import Sweep
from torchreel.store.failures.signature import Signature


@dataclass(frozen=True)
class Lessons:
    """The lessons of the verdicts so far, by which the next candidates are chosen."""

    settled: Mapping[str, str] = field(default_factory=dict)
    """By pass: the digest of the best case that it could not improve."""
    refused: frozenset[Hashable] = frozenset()
    """The data flows, and the edits, that did not fail."""
    put_off: frozenset[str] = frozenset()
    """The passes that have candidates put off."""
    puts_off: bool = True

    def after_verdict(self, likeness: Hashable, same: bool) -> Lessons:
        """Return the lessons after a verdict on a candidate with this `likeness`.

        One that did not fail is remembered as refused. After a step, such ones are put off again.
        """
        if same:
            return replace(self, refused=self.refused - {likeness}, puts_off=True)
        return self if likeness is None else replace(self, refused=self.refused | {likeness})

    def next_round(self, is_better: bool) -> Lessons:
        """Return the lessons for the next round.

        After a round without a step, it tries the candidates that were put off.
        """
        if is_better:
            return replace(self, puts_off=True)
        settled = {name: best for name, best in self.settled.items() if name not in self.put_off}
        return Lessons(settled, puts_off=False)


@dataclass(frozen=True)
class _Place:
    """The place of a pass: its tier, and the phase of that."""

    phases: Phases
    phase: int = 0
    tier: int = 0
    number: int = 0

    @property
    def item(self) -> Pass[Any] | None:
        """Return the pass; None behind the last of its tier."""
        tier = self.phases[self.phase][self.tier]
        return tier[self.number] if self.number < len(tier) else None

    @property
    def tiers(self) -> Sequence[Tier]:
        """Return the tiers of the phase."""
        return self.phases[self.phase]

    def after_tier(self, took_a_step: bool) -> _Place | None:
        """Return the start of the tier to go on with; None behind the last phase."""
        if took_a_step:
            return replace(self, tier=0, number=0)
        if self.tier + 1 < len(self.phases[self.phase]):
            return replace(self, tier=self.tier + 1, number=0)
        phase = self.phase + 1
        return replace(self, phase=phase, tier=0, number=0) if phase < len(self.phases) else None


@dataclass(frozen=True)
class Course:
    """A search half way to a fixpoint: at a candidate, at the end of a pass, or at its own end."""

    phases: Phases
    signature: Signature
    best: AnyCase
    key: Key
    lessons: Lessons
    place: _Place | None = None
    sweep: Sweep | None = None
    candidate: AnyCase | None = None
    """The case that needs a verdict now."""
    likeness: Hashable = None
    """The trait that candidates share which will mostly share their verdict."""
    has_ended: bool = False
    """True if the edits of a pass (`sweep`) have all been tried."""
    is_done: bool = False
    at_round: str = ""
    """The digest of the best case when the round began."""
    at_tier: str = ""
    """The same for the tier."""
    at_pass: str = ""
    """The same for the pass."""

    @classmethod
    def of_pass(cls, item: Pass[Any], best: AnyCase, wanted: Signature, known: Lessons) -> Course:
        """Return the course that sweeps once over the edits of a pass."""
        start = cls((), wanted, best, sort_key(best), known, sweep=Sweep.begin(item, best))
        return start._on()

    @classmethod
    def to_fixpoint(
        cls, phases: Phases, best: AnyCase, wanted: Signature, known: Lessons
    ) -> Course:
        """Return the course that runs the phases until no pass of any of them takes a step.

        A candidate that is like a refused one (`_likeness`) is put off: a pass that had such ones
        is settled only when it has tried them after everything else.
        """
        return cls(phases, wanted, best, sort_key(best), known)._on()

    @property
    def passes(self) -> list[Pass[Any]]:
        """Return the passes of the phase that the course is in."""
        place = self.place
        return [] if place is None else [one for tier in place.tiers for one in tier]

    @cached_property
    def refused(self) -> Course:
        """Return the course that follows when the candidate is refused."""
        assert self.sweep is not None, "there is a candidate"
        lessons = self.lessons.after_verdict(self.likeness, same=False)
        return self._changed(sweep=self.sweep.after(False, self.best), lessons=lessons)._on()

    def taking(self, best: AnyCase) -> Course:
        """Return the course that follows when the candidate becomes the best case.

        `best` is the candidate with the values that its run computed, as far as they are known.
        """
        known: tuple[AnyCase, Course] | None = vars(self).get("_taken")
        if known is None or known[0] is not best:
            assert self.sweep is not None, "there is a candidate"
            lessons = self.lessons.after_verdict(self.likeness, same=True)
            sweep = self.sweep.after(True, best)
            taken = self._changed(best=best, key=sort_key(best), sweep=sweep, lessons=lessons)
            vars(self)["_taken"] = known = (best, taken._on())
        return known[1]

    @cached_property
    def following(self) -> Course:
        """Return the course that follows the end of a pass."""
        return self._after_pass()._on()

    def going_on_from(self, best: AnyCase) -> Course:
        """Return the course that goes on from another case, at the end of a pass."""
        lessons = replace(self.lessons, settled={})
        return replace(self, best=best, key=sort_key(best), lessons=lessons)

    def _changed(self, **changes: Any) -> Course:
        """Return the course with changes, away from the place where it stopped."""
        return replace(self, candidate=None, likeness=None, has_ended=False, **changes)

    def _on(self) -> Course:
        """Go on to the next candidate that needs a verdict, or to the end of a pass."""
        course = self
        while course.candidate is None and not course.has_ended and not course.is_done:
            course = course._step()
        return course

    def _step(self) -> Course:
        if self.sweep is not None:
            return self._in_sweep(self.sweep)
        if self.place is None:
            return self._next_round()
        item = self.place.item
        if item is None:
            return self._after_tier(self.place)
        if self.lessons.settled.get(item.name) == self.best.digest:
            return replace(self, place=replace(self.place, number=self.place.number + 1))
        return replace(self, sweep=Sweep.begin(item, self.best), at_pass=self.best.digest)

    def _in_sweep(self, sweep: Sweep) -> Course:
        if sweep.is_done:
            return self._swept(sweep)
        proposal = sweep.candidate()
        held = self._verdict_without_run(proposal)
        if held is not None or proposal is None:
            return replace(self, sweep=sweep.after(bool(held), self.best))
        likeness = _likeness(sweep, proposal)
        if self.lessons.puts_off and likeness in self.lessons.refused:
            lessons = replace(self.lessons, put_off=self.lessons.put_off | {sweep.item.name})
            return replace(self, sweep=sweep.after(False, self.best), lessons=lessons)
        return replace(self, candidate=proposal, likeness=likeness)

    def _swept(self, sweep: Sweep) -> Course:
        """End a pass; it runs again on a case that it improved."""
        if self.place is None:
            return replace(self, has_ended=True)
        settled = {**self.lessons.settled, sweep.item.name: self.at_pass}
        return replace(self, has_ended=True, lessons=replace(self.lessons, settled=settled))

    def _after_pass(self) -> Course:
        if self.place is None:
            return self._changed(sweep=None, is_done=True)
        return self._changed(sweep=None, place=replace(self.place, number=self.place.number + 1))

    def _after_tier(self, place: _Place) -> Course:
        """Begin with the first tier after every step, else with the next one."""
        following = place.after_tier(self.at_tier != self.best.digest)
        return replace(self, place=following, at_tier=self.best.digest)

    def _next_round(self) -> Course:
        digest = self.best.digest
        if self.at_round == digest and not self.lessons.put_off:
            return replace(self, is_done=True)
        lessons = self.lessons.next_round(self.at_round != digest)
        # What was put off fails last of all for other sizes: the calls see the simplest.
        phases = list(self.phases) if lessons.puts_off else list(self.phases)[::-1]
        phases = [phase for phase in phases if phase]
        return replace(
            self,
            lessons=lessons,
            place=_Place(phases) if phases else None,
            at_round=digest,
            at_tier=digest,
        )

    def _verdict_without_run(self, candidate: AnyCase | None) -> bool | None:
        """Return True or False if a candidate is accepted or refused without a verdict, or None."""
        if candidate is None:
            return False
        if candidate.digest == self.best.digest:
            return True  # a longer run in which the last edits came to nothing
        if sort_key(candidate) >= self.key or self._falls_short(candidate):
            return False
        return None

    def _falls_short(self, candidate: AnyCase) -> bool:
        """Return True if a candidate does not get to where the best case fails."""
        return not can_reach(candidate, self.signature) and can_reach(self.best, self.signature)


def _likeness(sweep: Sweep, candidate: AnyCase) -> Hashable:
    """Return a key that is equal for candidates that will mostly share their verdict.

    It is the data flow of the calls; for a candidate with no fewer calls than the best case, it is
    the pass and its chosen edits: their verdict seldom depends on the other sizes and settings.
    """
    found = data_flow(candidate)
    if found is None or candidate.total_call_nodes < sweep.best.total_call_nodes:
        return found
    return sweep.item.name, tuple(sweep.chosen)
