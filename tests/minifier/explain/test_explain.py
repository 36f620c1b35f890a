"""After the minimum: what cures it, what passes, what does not matter, on planted and real bugs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
import torch._functorch.config
import torch._inductor.config

from tests.minifier.hand_made import BUG, call, case_of, ref, tensor
from tests.minifier.real import case_from, shared_worker
from torchreel.minifier.bisect.workaround import find_workaround, switches
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import sizes
from torchreel.minifier.explain.asking import _Explaining, explain
from torchreel.minifier.explain.difference import deciding_edit
from torchreel.minifier.explain.variations import factors
from torchreel.minifier.options import Budget
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.storage.journal import MemoryJournal
from torchreel.store.database import Store
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import Signature

SINE = case_of([call("y", "sin", ref("x"))], ["y"], x=tensor(2))


@dataclass
class Oracle:
    """Fails, or not, by what it sees of a case."""

    fails: Callable[[Case], object]
    runs: list[Case] = field(default_factory=list)

    def judge(self, case: Case) -> OracleReport:
        """The verdict."""
        self.runs.append(case)
        return OracleReport("same", BUG) if self.fails(case) else OracleReport("none")


def explained(fails: Callable[[Case], bool], case: Case = SINE, runs: int = 40) -> Explanation:
    oracle = Oracle(fails)
    judge = CachedOracle(oracle, MemoryJournal(), Budget(runs=runs))  # type: ignore[arg-type]
    judge.verdict(case)
    return _Explaining(judge, oracle, case).all()  # type: ignore[arg-type]


def entries(case: Case) -> dict[str, object]:
    found = [as_object(entry) for entry in case.checkpoint.config]
    return {f"{entry['module']}.{entry['key']}": entry["value"] for entry in found}


def first(case: Case, key: str) -> object:
    return as_object(case.checkpoint.inputs[0]).get(key)


def test_one_entry_that_cures_is_found_alone() -> None:
    found = explained(lambda case: entries(case).get("inductor.split_reductions") is not False)
    assert found.workaround == ("torch._inductor.config.split_reductions = False",)
    assert found.checked


def test_two_entries_that_cure_only_together_are_found_together() -> None:
    both = {"inductor.size_asserts", "inductor.max_fusion_size"}
    found = explained(lambda case: not both <= set(entries(case)))
    assert found.workaround == (
        "torch._inductor.config.size_asserts = False",
        "torch._inductor.config.max_fusion_size = 1",
    )


def test_no_entry_cures_costs_one_run() -> None:
    oracle = Oracle(lambda case: True)
    judge = CachedOracle(oracle, MemoryJournal(), Budget())  # type: ignore[arg-type]
    assert find_workaround(judge, oracle, SINE) is None  # type: ignore[arg-type]
    assert len(oracle.runs) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_what_only_lets_a_wrong_result_through_is_no_cure(first: int) -> None:
    """Each entry gets the case further; with the first of them its result is wrong then."""
    wrong = {f"{s.module}.{s.key}" for s in switches(SINE)[:first]}
    oracle = Oracle(
        lambda case: (
            not entries(case) or (case.harness == "accuracy" and wrong & set(entries(case)))
        )
    )
    judge = CachedOracle(oracle, MemoryJournal(), Budget())  # type: ignore[arg-type]
    found = find_workaround(judge, oracle, SINE)  # type: ignore[arg-type]
    assert found is not None
    assert found.lines == (switches(SINE)[first].line,)
    assert found.checked
    never = Oracle(lambda case: not entries(case) or case.harness == "accuracy")
    judge = CachedOracle(never, MemoryJournal(), Budget())  # type: ignore[arg-type]
    assert find_workaround(judge, never, SINE) is None  # type: ignore[arg-type]


def test_every_switch_is_an_entry_of_this_torch_and_not_its_default() -> None:
    modules = {"functorch": torch._functorch.config, "inductor": torch._inductor.config}
    for switch in switches(SINE):
        config = modules[switch.module]
        assert switch.key in config._config, switch
        assert config._config[switch.key].default != switch.value, switch


def test_a_case_without_inductor_has_no_switches_of_inductor() -> None:
    assert {s.module for s in switches(replace(SINE, backend="aot_eager"))} == {"functorch"}
    assert switches(replace(SINE, backend="planted:broken")) == ()


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (lambda size: True, "any x.size(0) (3, 9 and 35 fail as well)"),
        (lambda size: size >= 2, "any x.size(0) of at least 2 (3, 9 and 35 fail as well)"),
        (lambda size: size == 2, None),
    ],
)
def test_sizes(fails: Callable[[int], bool], told: str | None) -> None:
    found = explained(lambda case: fails(int(str(sizes(case.checkpoint.inputs[0])[0]))))
    about_sizes = [text for text in found.same if "size" in text]
    assert about_sizes == ([told] if told else [])


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (lambda dtype: True, "any dtype of x (float64, bfloat16, float16 and int64 fail as well)"),
        (lambda dtype: "float" in dtype,
         "any floating dtype of x (float64, bfloat16 and float16 fail as well)"),
        (lambda dtype: dtype == "float32",
         "only float32 for x (float64, bfloat16, float16 and int64 pass)"),
        (lambda dtype: dtype.endswith(("32", "64")) and dtype != "int64",
         "dtype of x: float32 and float64 fail, bfloat16, float16 and int64 pass"),
    ],
)  # fmt: skip
def test_dtypes(fails: Callable[[str], bool], told: str) -> None:
    found = explained(lambda case: fails(str(first(case, "dtype"))))
    assert [text for text in found.same if "dtype" in text or "only" in text] == [told]


def test_the_nearest_neighbour_that_passes_is_told_with_its_edit() -> None:
    found = explained(lambda case: sizes(case.checkpoint.inputs[0])[0] != 1)
    assert found.neighbour == "x: float32[1] instead of float32[2]"


def test_a_limit_on_runs_is_kept_and_said() -> None:
    found = explained(lambda case: True, runs=4)
    assert (found.runs, found.complete) == (4, False)
    assert explained(lambda case: True).complete


def test_asking_is_bounded() -> None:
    names = "abcdefgh"
    inputs = {name: tensor(number + 2, 11) for number, name in enumerate(names)}
    case = case_of([call("y", "stack", [ref(name) for name in names])], ["y"], **inputs)  # type: ignore[arg-type]
    assert sum(len(factor.changes) for factor in factors(case)) <= 25


def test_a_dtype_is_not_the_only_one_if_others_fail_in_another_way() -> None:
    """A message of g++ names the dtype, so that another dtype is another failure."""
    (dtype,) = [one for one in factors(SINE) if one.name == "dtype float32"]
    assert dtype.sentence([], ["int64"]) == ""
    every = [change.value for change in dtype.changes]
    assert dtype.sentence([], every).startswith("only float32 for x (")


def test_an_explanation_is_kept_as_data() -> None:
    found = explained(lambda case: "float" in str(first(case, "dtype")))
    assert Explanation.from_json(found.to_json()) == found


def test_what_differs_in_several_things_has_no_deciding_edit() -> None:
    one = case_of([call("y", "sum", ref("x"), dim=0)], ["y"], x=tensor(2))
    two = case_of([call("y", "sum", ref("x"), dim=1)], ["y"], x=tensor(2))
    three = case_of([call("y", "sum", ref("x"), dim=1)], ["y"], x=tensor(3))
    edit = deciding_edit(one, two)
    assert edit is not None
    assert edit[1] == "torch.sum(x, dim=1) instead of torch.sum(x, dim=0)"
    assert deciding_edit(one, three) is None
    assert deciding_edit(one, one) is None


@pytest.mark.slow
def test_a_real_lowering(tmp_path: Path) -> None:
    """A scatter along an empty dimension (pytorch issue 188213)."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.scatter(x, -1, x, x)

    case = case_from(fn, torch.ones(1, 0))
    worker = shared_worker()
    worker.look_for(Signature("exception", "lowering"))
    seen = worker.judge(case).observed
    assert seen is not None
    worker.look_for(seen)
    with Store.open(tmp_path / "run.db", create=True, write=True) as store:
        found = explain(store, worker, case, seen)
        assert explain(store, worker, case, seen) == found
    assert found.workaround == ("torch._inductor.config.fallback_by_default = True",)
    assert found.runs <= 40
