"""The search, with oracles that only look at the graph."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.minifier.cases.test_order import cases
from tests.minifier.hand_made import (
    BUG,
    OTHER_BUG,
    Predicate,
    call,
    case_of,
    chain,
    functions_of,
    reaches,
    ref,
    tensor,
)
from torchreel.errors import BudgetSpent, FlakyFailure, NotReproduced, TrivialResult
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import sizes
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.options import Budget
from torchreel.minifier.passes import all_passes
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.cached_oracle import CachedOracle, LimitedOracle, Spending
from torchreel.minifier.search.data_flow import data_flow
from torchreel.minifier.search.failure_search import phases_of
from torchreel.minifier.search.reachability import can_reach
from torchreel.minifier.search.reproduction import repetitions
from torchreel.minifier.search.search import Search
from torchreel.minifier.search.similar import is_alike
from torchreel.minifier.storage.findings import keep_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import Signature, crash_signature


def sin_reaches_cos(case: Case) -> bool:
    """The planted bug of most tests here."""
    return reaches(case.graph, "sin", "cos")


def long_chain() -> Case:
    """Twenty operators, of which one sine and one cosine matter."""
    functions = ["relu"] * 20
    functions[4], functions[15] = "sin", "cos"
    return chain(functions)


def test_it_ends_at_a_fixpoint() -> None:
    """No pass can propose anything smaller that fails: 1-minimal with respect to every pass."""
    oracle = Predicate(sin_reaches_cos)
    found = Search(oracle, BUG).run(long_chain())
    assert found.status == "fixpoint"
    assert functions_of(found.case) == ["sin", "cos"]
    for item in all_passes():
        for edit in item.edits(found.case):
            candidate = item.apply(found.case, [edit])
            if candidate is not None and can_reach(candidate, BUG):
                smaller = sort_key(candidate) < sort_key(found.case)
                assert not (smaller and sin_reaches_cos(candidate))


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from(["sin", "cos", "relu", "neg"]))
def test_any_graph_with_one_culprit_ends_at_one_node(case: Case, culprit: str) -> None:
    """Whatever the graph is."""

    def fails(candidate: Case) -> bool:
        return culprit in functions_of(candidate)

    if fails(case):
        assert functions_of(Search(Predicate(fails), BUG).run(case).case) == [culprit]


def test_what_eager_mode_refuses_is_no_failure_of_the_compiler() -> None:
    """Nobody finds more by comparing environments then."""

    @dataclass
    class Refusing(Predicate):
        stage: str = "eager"

        def judge(self, case: Case) -> OracleReport:
            return OracleReport("invalid", detail="ZeroDivisionError", stage=self.stage)

    with pytest.raises(NotReproduced, match="Eager mode raises too"):
        Search(Refusing(lambda case: False), BUG).run(long_chain())
    with pytest.raises(NotReproduced, match="Compare the environments"):
        Search(Refusing(lambda case: False, stage="dynamo"), BUG).run(long_chain())


def test_no_verdict_is_computed_twice() -> None:
    """Each run is of another case; only the start runs twice, and the result three times more."""
    oracle = Predicate(sin_reaches_cos)
    found = Search(oracle, BUG).run(long_chain())
    assert found.oracle_runs == len(oracle.seen) == len(set(oracle.seen)) + 4


def test_it_does_not_slip_to_another_bug() -> None:
    """The other failure, though simpler, is listed and not followed."""
    functions = ["relu", "tan", "relu", "sin", "relu", "cos"]
    oracle = Predicate(sin_reaches_cos, lambda case: "tan" in functions_of(case))
    found = Search(oracle, BUG).run(chain(functions))
    assert functions_of(found.case) == ["sin", "cos"]
    assert [caught.signature for caught in found.other_failures] == [OTHER_BUG]


def test_a_program_that_compiles_nothing_is_no_other_failure() -> None:
    """A reduction has made it wrong itself: an error outside of every stage says nothing."""
    nothing = replace(OTHER_BUG, stage="")
    functions = ["relu", "tan", "relu", "sin", "relu", "cos"]
    oracle = Predicate(sin_reaches_cos, lambda case: "tan" in functions_of(case), nothing)
    found = Search(oracle, BUG).run(chain(functions))
    assert functions_of(found.case) == ["sin", "cos"]
    assert found.other_failures == ()


def test_what_does_not_fail_is_refused() -> None:
    """With what was seen instead."""
    with pytest.raises(NotReproduced, match="it did not fail"):
        Search(Predicate(lambda case: False), BUG).run(long_chain())


def test_a_failure_of_any_graph_is_refused() -> None:
    """An empty result is no result."""
    with pytest.raises(TrivialResult, match="does not depend on the graph"):
        Search(Predicate(lambda case: True), BUG).run(long_chain())


def test_the_second_start_is_taken_when_the_first_does_not_fail() -> None:
    """A lean case that lost what matters gives way to the next one."""
    found = Search(Predicate(sin_reaches_cos), BUG).run(chain(["relu"]), long_chain())
    assert functions_of(found.case) == ["sin", "cos"]


def test_the_passes_are_those_of_the_case_that_fails() -> None:
    """A program that passes comes before a graph with bodies, and has other passes."""

    def fails(case: AnyCase) -> bool:
        return isinstance(case, Case) and sin_reaches_cos(case)

    program = SourceCase("import torch\ntorch.compile(torch.sin)(torch.ones(3))\n")
    found = Search(Predicate(fails), BUG, phases_of=phases_of).run(program, long_chain())
    assert isinstance(found.case, Case)
    assert functions_of(found.case) == ["sin", "cos"]


def test_a_program_is_not_left_for_a_partition_of_its_graph() -> None:
    """What is known of the partition is none of a program's passes."""
    text = "import torch\n" + "torch.compile(torch.sin)(torch.ones(3))\n" * 9
    oracle = Predicate(lambda case: isinstance(case, Case) or "torch.sin" in case.text)
    search = Search(oracle, BUG, phases_of=phases_of)
    found = search.run(SourceCase(text), parts=lambda best, judge: [long_chain()])
    assert isinstance(found.case, SourceCase)


def test_starts_after_one_that_fails_alike_are_not_run() -> None:
    """With that signature it is the one to reduce: the others would only be run for nothing."""
    oracle = Predicate(lambda case: False, lambda case: "tan" in functions_of(case))
    starts = chain(["relu"]), chain(["relu", "tan"]), chain(["tan"])
    with pytest.raises(NotReproduced, match="another way"):
        Search(oracle, BUG).run(*starts, is_alike=OTHER_BUG.matches)
    assert oracle.seen == [starts[0].digest] * 2 + [starts[1].digest] * 2


def test_a_start_that_passed_runs_no_more_in_another_form() -> None:
    """The same case is no other start, and what passes with the judgement of eager mode was
    compiled."""
    oracle = Predicate(lambda case: False)
    first, second = chain(["relu"]), chain(["relu", "tan"])
    starts = first, chain(["relu"]), replace(first, eager=False), second
    with pytest.raises(NotReproduced):
        Search(oracle, BUG).run(*starts, insist=False)
    assert oracle.seen == [first.digest] * 2 + [second.digest] * 2
    with pytest.raises(NotReproduced):
        Search(oracle, BUG).run(*starts)
    assert oracle.seen[4:] == oracle.seen[:4] + [first.digest] * 8


def test_what_eager_mode_refuses_runs_without_its_judgement() -> None:
    @dataclass
    class Refusing(Predicate):
        def judge(self, case: Case) -> OracleReport:
            refused = OracleReport("invalid", detail="RuntimeError", stage="eager")
            return refused if case.eager else super().judge(case)

    start = replace(long_chain(), eager=False)
    found = Search(Refusing(sin_reaches_cos), BUG).run(long_chain(), start)
    assert functions_of(found.case) == ["sin", "cos"]


def test_a_part_of_what_is_left_is_reduced_as_well() -> None:
    """Of the smallest case, not of the first; and the simpler of the two results is taken."""
    asked: list[list[str]] = []

    def parts(best: AnyCase, judge: CachedOracle) -> list[AnyCase]:
        assert isinstance(best, Case)
        asked.append(functions_of(best))
        return [chain(["relu"]), chain(["relu", "tan", "relu"])]

    oracle = Predicate(lambda case: sin_reaches_cos(case) or "tan" in functions_of(case))
    found = Search(oracle, BUG).run(long_chain(), parts=parts)
    assert asked == [["sin", "cos"]]
    assert functions_of(found.case) == ["tan"]


def test_a_part_of_as_many_calls_is_left() -> None:
    """The whole is what a user knows, whichever is the simpler text."""

    def fails(case: Case) -> bool:
        return sin_reaches_cos(case) or {"abs", "exp"} <= set(functions_of(case))

    part = chain(["abs", "neg", "exp"])
    assert sort_key(chain(["abs", "exp"])) < sort_key(chain(["sin", "cos"]))
    found = Search(Predicate(fails), BUG).run(long_chain(), parts=lambda best, judge: [part])
    assert functions_of(found.case) == ["sin", "cos"]
    assert sizes(found.case.checkpoint.inputs[0]) == []


@dataclass
class Telling(Predicate):
    """Names what it does not like."""

    def judge(self, case: Case) -> OracleReport:
        """The verdict, with a message."""
        return replace(super().judge(case), detail="LoweringException: target: aten.tan.default")


def test_what_the_message_names_is_tried_first() -> None:
    """A hundred calls are one after a single run."""
    whole = chain([*["relu"] * 60, "tan", *["relu"] * 60])

    def fails(case: Case) -> bool:
        return "tan" in functions_of(case)

    told = Search(Telling(fails), BUG).run(whole)
    untold = Search(Predicate(fails), BUG).run(whole)
    assert told.case.digest == untold.case.digest
    # Three at the start, this one, all plain, three at the end.
    assert told.oracle_runs == 8
    assert untold.oracle_runs > 2 * told.oracle_runs


def test_what_was_refused_is_put_off_and_not_forgotten() -> None:
    """One call less would not do, as long as the input was large; then it does."""

    def fails(case: Case) -> bool:
        few = sizes(case.checkpoint.inputs[0]) == []
        return sin_reaches_cos(case) if not few else "cos" in functions_of(case)

    oracle = Predicate(fails)
    found = Search(oracle, BUG).run(chain(["sin", "relu", "cos"]))
    assert functions_of(found.case) == ["cos"]


def test_so_is_what_was_refused_for_another_setting() -> None:
    """No dimension would not do, as long as the dtype was odd: it is tried again in the end."""

    def fails(case: Case) -> bool:
        fields = as_object(case.checkpoint.inputs[0])
        return sin_reaches_cos(case) and (sizes(fields) != [] or fields["dtype"] == "float32")

    calls = [call("a", "sin", ref("x")), call("b", "cos", ref("a"))]
    start = case_of(calls, ["b"], x=tensor(4, dtype="uint8"))
    found = Search(Predicate(fails), BUG).run(start)
    assert sizes(found.case.checkpoint.inputs[0]) == []
    assert as_object(found.case.checkpoint.inputs[0])["dtype"] == "float32"


def test_what_was_refused_is_not_asked_after_every_step() -> None:
    """A dimension has to stay: that is found out at first, and in the end once more."""
    flat: list[Case] = []

    def fails(case: Case) -> bool:
        if functions_of(case) != ["sin", "pow", "cos"]:
            return False
        flat.extend([case] if sizes(case.checkpoint.inputs[0]) == [] else [])
        return case not in flat

    calls = [call("a", "sin", ref("x")), call("b", "pow", ref("a"), 7), call("c", "cos", ref("b"))]
    start = case_of(calls, ["c"], x=tensor(4, 8, dtype="uint8"))
    found = Search(Predicate(fails), BUG).run(start)
    assert found.case.graph.by_name["b"].args == [ref("a"), 0]
    assert as_object(found.case.checkpoint.inputs[0])["dtype"] == "float32"
    assert len(flat) == 2


def test_data_flow_knows_calls_and_nothing_else() -> None:
    """Names, inputs, sizes and numbers are no part of it."""
    case = chain(["sin", "cos"])
    assert data_flow(case) == data_flow(chain(["sin", "cos"]))
    two = case_of(
        [call("a", "sin", ref("y")), call("b", "cos", ref("a"))], ["b"], x=tensor(3), y=tensor(2)
    )
    assert data_flow(two) == data_flow(case)
    assert data_flow(chain(["sin", "sin"])) != data_flow(case)
    other = case_of([call("a", "sin", ref("x")), call("b", "cos", ref("x"))], ["b"], x=tensor(3))
    assert data_flow(other) != data_flow(case)


def test_a_spent_budget_gives_the_best_so_far() -> None:
    """And a status that says so."""
    found = Search(Predicate(sin_reaches_cos), BUG, limits=Budget(runs=9)).run(long_chain())
    assert found.status == "budget"
    assert found.oracle_runs == 9
    assert 2 < found.after_call_nodes < 20
    assert isinstance(found.error(), BudgetSpent)


def test_all_searches_for_one_failure_share_a_budget() -> None:
    """The first finds that no start fails; what it ran is not left for the second."""
    spending, oracle = Spending(Budget(runs=30)), Predicate(sin_reaches_cos)
    LimitedOracle(oracle, spending).judge(long_chain())
    with pytest.raises(NotReproduced):
        Search(oracle, BUG, limits=spending).run(chain(["relu"]))
    found = Search(oracle, BUG, limits=spending).run(long_chain())
    assert found.status == "budget"
    assert len(oracle.seen) == 30
    assert found.oracle_runs < 20
    with pytest.raises(BudgetSpent, match="30 oracle runs"):
        LimitedOracle(oracle, spending).judge(long_chain())
    assert len(oracle.seen) == 30


def test_an_interrupt_gives_the_best_so_far() -> None:
    """Control-C at the tenth run."""

    @dataclass
    class Interrupted(Predicate):
        fails: Callable[[Case], bool] = sin_reaches_cos

        def judge(self, case: Case) -> OracleReport:
            if len(self.seen) == 9:
                raise KeyboardInterrupt
            return super().judge(case)

    found = Search(Interrupted(), BUG).run(long_chain())
    assert found.status == "interrupted"
    assert 2 < found.after_call_nodes < 20


@dataclass
class Flaky:
    """Fails in a fixed pattern of its runs."""

    pattern: tuple[bool, ...]
    runs: int = 0
    seen: list[int] = field(default_factory=list)

    def judge(self, case: Case) -> OracleReport:
        """The next of the pattern, if the case fails at all."""
        self.runs += 1
        fails = self.pattern[self.runs % len(self.pattern)] and sin_reaches_cos(case)
        return OracleReport("same", BUG) if fails else OracleReport("none")


@dataclass
class DiesElsewhere:
    """Dies of the same signal, but in another stage, unless the case is the second start."""

    second: str
    wanted: Signature

    def judge(self, case: Case) -> OracleReport:
        """As `wanted`, or in the stage `joint`."""
        fails = sin_reaches_cos(case)
        if fails and (case.digest == self.second or len(case.graph.nodes) < 20):
            return OracleReport("same", self.wanted)
        other = replace(self.wanted, stage="joint")
        return OracleReport("other", other) if fails else OracleReport("none")


def test_a_start_that_dies_elsewhere_does_not_end_the_attempt() -> None:
    """Of a process that died there is only a signal: a later start shows the very failure."""
    wanted = crash_signature("codegen", "", "SIGSEGV")
    first = long_chain()
    second = replace(first, seed=7)
    oracle = DiesElsewhere(second.digest, wanted)
    found = Search(oracle, wanted).run(first, second, is_alike=lambda seen: is_alike(seen, wanted))
    assert functions_of(found.case) == ["sin", "cos"]


def test_a_flaky_case_is_reduced_with_repetitions() -> None:
    """And how flaky it is stands in the result."""
    found = Search(Flaky((True, False)), BUG).run(long_chain())
    assert found.flaky == (5, 10)
    assert found.case.repeats == repetitions(0.5) == 5
    assert functions_of(found.case) == ["sin", "cos"]


@dataclass
class Lucky:
    """Fails with `sin` and `cos`, and once with `sin` alone."""

    seen: Counter[str] = field(default_factory=Counter)

    def judge(self, case: Case) -> OracleReport:
        """By what the case calls, and by how often it was asked for."""
        self.seen[case.digest] += 1
        once = functions_of(case) == ["sin"] and self.seen[case.digest] == 1
        fails = sin_reaches_cos(case) or once
        return OracleReport("same", BUG) if fails else OracleReport("none")


def test_a_case_that_failed_by_luck_is_not_the_result() -> None:
    found = Search(Lucky(), BUG).run(long_chain())
    assert sin_reaches_cos(found.case)
    assert found.after_call_nodes < found.before_call_nodes
    assert found.flaky is None


def test_a_repeated_search_does_not_return_what_failed_by_luck(tmp_path: Path) -> None:
    """The verdict of its first run is in the store, and is replaced there."""
    oracle = Lucky()
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        for _ in range(3):
            found = Search(oracle, BUG, journal=journal_of(store)).run(long_chain())
            assert sin_reaches_cos(found.case)
            assert found.status == "fixpoint"


def test_a_budget_spent_on_looking_back_does_not_give_what_failed_by_luck() -> None:
    whole, rejected = Search(Lucky(), BUG).run(long_chain()), 0
    for runs in range(whole.oracle_runs - 12, whole.oracle_runs):
        oracle = Lucky()
        found = Search(oracle, BUG, limits=Budget(runs=runs)).run(long_chain())
        assert found.status == "budget"
        rejected += max(oracle.seen.values()) > 30
        if max(oracle.seen.values()) > 30:
            assert sin_reaches_cos(found.case)
    assert rejected


@dataclass
class Dice:
    """Fails in three runs of ten, by chance."""

    seed: int
    calls: int = 0

    def judge(self, case: Case) -> OracleReport:
        """By a number that depends on the seed and on how many runs there were before."""
        self.calls += 1
        luck = random.Random(f"{self.seed} {self.calls}").random()
        return (
            OracleReport("same", BUG)
            if luck < 0.3 and sin_reaches_cos(case)
            else OracleReport("none")
        )


def test_what_fails_in_three_runs_of_ten_is_reduced_and_reported() -> None:
    """Whatever the first runs show: that nothing fails, that all do. It never stops failing."""
    sizes = []
    for seed in range(50, 75):  # of all, one in 400 goes unnoticed (`start`)
        found = Search(Dice(seed), BUG).run(long_chain())
        assert found.flaky is not None, f"seed {seed}: taken for a failure that always happens"
        failures, tries = found.flaky
        assert 0.1 <= failures / tries <= 0.7
        assert isinstance(found.case, Case)
        assert sin_reaches_cos(found.case)
        sizes.append(found.after_call_nodes)
    # A needed step may be overlooked, in one try of twenty: the chain of twenty still shrinks.
    assert sorted(sizes)[18] == 2
    assert max(sizes) <= 6


def test_what_only_seems_to_fail_always_is_found_out_at_the_end() -> None:
    """The start fails twice; the result is run again before it is one."""
    oracle = Flaky((True,) * 3 + (True, False, False) * 1000)
    found = Search(oracle, BUG).run(long_chain())
    assert found.flaky is not None
    assert functions_of(found.case) == ["sin", "cos"]


def test_how_often_it_failed_is_in_the_store(tmp_path: Path) -> None:
    """It is not measured again, for it might seem to fail always."""
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        oracle = Flaky((True,) * 3 + (True, False, False) * 1000)
        first = Search(oracle, BUG, journal=journal_of(store)).run(long_chain())
        second = Search(Flaky((True,)), BUG, journal=journal_of(store)).run(long_chain())
    assert second.oracle_runs == 0
    assert (second.flaky, second.case.digest) == (first.flaky, first.case.digest)


@pytest.mark.parametrize("found", [[], {"failures": "3", "tries": 3}, {"failures": 4, "tries": 3}])
def test_a_finding_that_says_nothing_confirms_nothing(tmp_path: Path, found: Json) -> None:
    case = long_chain()
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        keep_finding(store, "confirmation", case, BUG, "environment", found)
        assert journal_of(store).confirmed(case) is None
        journal_of(store).confirm(case, 3, 3)
        assert journal_of(store).confirmed(case) == (3, 3)
        assert StoreJournal(store, OTHER_BUG, "environment", None).confirmed(case) is None


def test_a_case_that_fails_too_seldom_is_refused() -> None:
    """There is nothing to hold on to."""
    with pytest.raises(FlakyFailure, match="1 of 30"):
        Search(Flaky((False, True) + (False,) * 40), BUG).run(long_chain())


def test_progress_is_told() -> None:
    """From the start to the end, never growing."""
    events: list[ProgressEvent] = []

    class Listener:
        def on_step(self, event: ProgressEvent) -> None:
            events.append(event)

    found = Search(Predicate(sin_reaches_cos), BUG, listener=Listener()).run(long_chain())
    assert (events[0].kind, events[-1].kind) == ("start", "end")
    sizes = [event.call_nodes for event in events]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(count.accepted for count in found.passes) == sum(
        event.kind == "accepted" for event in events
    )


def test_the_time_that_is_left_is_that_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the failing case took some of it."""
    left: list[float | None] = []

    class Listener:
        def on_step(self, event: ProgressEvent) -> None:
            left.append(event.seconds_left)

    monkeypatch.setattr("torchreel.minifier.search.cached_oracle.time.monotonic", lambda: 0.0)
    spending = Spending(Budget(seconds=100))
    monkeypatch.setattr("torchreel.minifier.search.cached_oracle.time.monotonic", lambda: 60.0)
    oracle = Predicate(sin_reaches_cos)
    Search(oracle, BUG, limits=spending, listener=Listener()).run(long_chain())
    assert set(left) == {40.0}
    left.clear()
    Search(oracle, BUG, listener=Listener()).run(long_chain())
    assert set(left) == {None}


def journal_of(store: Store) -> StoreJournal:
    """A journal in an environment of its own."""
    return StoreJournal(store, BUG, "environment", None)


def test_a_second_search_runs_nothing(tmp_path: Path) -> None:
    """Every verdict is in the store."""
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        first = Search(Predicate(sin_reaches_cos), BUG, journal=journal_of(store)).run(long_chain())
        again = Predicate(sin_reaches_cos)
        second = Search(again, BUG, journal=journal_of(store)).run(long_chain())
        assert not again.seen
        assert second.oracle_runs == 0
        assert second.case.to_bytes() == first.case.to_bytes()


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """In two halves it takes as many runs as in one."""
    whole = Search(Predicate(sin_reaches_cos), BUG).run(long_chain())
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        half = Search(
            Predicate(sin_reaches_cos), BUG, journal=journal_of(store), limits=Budget(runs=15)
        ).run(long_chain())
        rest = Search(Predicate(sin_reaches_cos), BUG, journal=journal_of(store)).run(long_chain())
        rows = queries.reductions(store)
    assert half.status == "budget"
    assert rest.case.digest == whole.case.digest
    assert half.oracle_runs + rest.oracle_runs == whole.oracle_runs
    assert [row.status for row in rows] == ["budget", "fixpoint"]
    assert rows[1].best_case == whole.case.digest


def test_by_catch_is_in_the_store(tmp_path: Path) -> None:
    """With the smallest case that shows it."""
    functions = ["relu", "tan", "relu", "sin", "relu", "cos"]
    oracle = Predicate(sin_reaches_cos, lambda case: "tan" in functions_of(case))
    with Store.open(tmp_path / "run.db", write=True, create=True) as store:
        journal = journal_of(store)
        Search(oracle, BUG, journal=journal).run(chain(functions))
        (reduction,) = queries.reductions(store)
        (caught,) = queries.by_catch(store, reduction)
        case = journal.accepted(caught.case_digest)
    assert caught.signature == OTHER_BUG
    assert case is not None
    assert "tan" in functions_of(case)


def test_what_is_dead_but_needed_stays() -> None:
    """A failure may need a node that nothing uses."""
    calls = [call("d", "sin", ref("x")), call("a", "cos", ref("x"))]
    case = case_of(calls, ["a"], x=tensor(4, 8))
    found = Search(Predicate(lambda c: "sin" in functions_of(c)), BUG).run(case)
    assert functions_of(found.case) == ["sin"]


def test_what_can_not_get_to_the_failure_is_not_run() -> None:
    """AOTAutograd alone lowers nothing; what is only compiled does not run."""
    for wanted, harness in ((BUG, "compile"), (replace(BUG, stage="run"), "run")):
        seen: list[tuple[str, str]] = []

        def fails(case: Case, seen: list[tuple[str, str]] = seen) -> bool:
            seen.append((case.backend, case.harness))
            return sin_reaches_cos(case)

        start = replace(long_chain(), harness=harness)
        Search(Predicate(fails), wanted).run(start)
        backends = {backend for backend, _ in seen}
        assert ("aot_eager" in backends) == (wanted.stage == "run")
        assert {found for _, found in seen} == {harness}


def test_what_compiles_no_backward_does_not_fail_in_it() -> None:
    """Nor does what is only run; but one partition alone does, and what the config makes do so."""
    wanted = replace(BUG, partition="backward")
    case = long_chain()
    assert [can_reach(replace(case, harness=h), wanted) for h in ("compile", "run", "train")] == [
        False, False, True,
    ]  # fmt: skip
    entry = ("functorch.force_non_lazy_backward_lowering", True)
    for changed in ({"entry": "aot"}, {"config": (entry,)}):
        assert can_reach(replace(case, checkpoint=replace(case.checkpoint, **changed)), wanted)
    assert can_reach(case, replace(wanted, failure_class="crash", signal="SIGSEGV"))


def test_what_only_returns_its_inputs_is_not_run() -> None:
    """The trivial case did not fail; where an input is odd, nobody knows."""
    sizes: list[int] = []

    def fails(case: Case) -> bool:
        sizes.append(case.call_nodes)
        return sin_reaches_cos(case)

    Search(Predicate(fails), BUG).run(long_chain())
    assert sizes.count(0) == 1
    plain, odd = tensor(4), tensor(4, requires_grad=True)
    trivial = case_of([], ["x"], x=plain, unused=odd)
    assert not can_reach(trivial, BUG)
    assert can_reach(trivial, replace(BUG, failure_class="memory"))
    assert can_reach(case_of([], ["x", "y"], x=plain, y=odd), BUG)
    assert can_reach(case_of([], ["x", "x"], x=plain), BUG)
