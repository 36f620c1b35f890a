"""What counts as a wrong result, and what does not: rounding, random numbers, uninitialised memory.

The harness runs in this process: nothing here crashes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tests.minifier.planted_results  # registers the backends
import torchreel
from tests.minifier.real import case_from
from torchreel.errors import UsageError
from torchreel.minifier.accuracy.inputs import (
    with_larger_integers,
    with_positive_inputs,
    with_telling_inputs,
)
from torchreel.minifier.accuracy.wrong_results import find_difference
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.oracle.child.graph_runner import run
from torchreel.minifier.oracle.protocol import ChildReport, Task, TaskResult
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.passes.sizes import PlainContents
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.scripts.script import compile_form
from torchreel.replay.accuracy.comparison import compare, differences
from torchreel.store import Store, queries
from torchreel.store.failures.signature import Signature, wrong_result_signature

assert tests.minifier.planted_results, "imported for its side effect"

Function = Callable[..., Any]


def found(
    case: Case,
    kind: str = "values",
    comparator: str = "default",
    imports: tuple[str, ...] = (),
) -> ChildReport:
    """What the oracle's child says of a case."""
    case = replace(case, harness="accuracy", comparator=comparator, imports=imports)
    return run(Task(case, wrong_result_signature(kind), 0.0, 0), lambda position: None)


def of(fn: Function, *inputs: object, backend: str = "aot_eager") -> Case:
    """The case of a function, for a backend that breaks its results in one way."""
    return case_from(fn, *inputs, backend=backend)


@pytest.mark.parametrize("kind", ["values", "dtype", "shape", "stride", "aliasing", "count"])
def test_every_kind_of_difference_is_known_by_its_kind(kind: str) -> None:
    """And a right result is one."""
    case = of(lambda x: torch.sin(x) + 1, torch.ones(3, 4), backend=f"planted_{kind}")
    finding = found(case, kind)
    assert finding.verdict == "same", finding
    assert Signature.from_json(finding.signature).output == (2 if kind == "count" else 0)
    assert found(of(lambda x: torch.sin(x) + 1, torch.ones(3, 4)), kind).verdict == "none"


def test_what_was_finite_is_not_shown_by_a_nan() -> None:
    """A division by zero makes one of any rounding error."""

    def judged(fn: Function, magnitude: int | None) -> ChildReport:
        case = replace(of(fn, torch.ones(3), backend="planted_nan"), harness="accuracy")
        wanted = wrong_result_signature("values", 0, magnitude)
        return run(Task(case, wanted, 0.0, 0), lambda position: None)

    both = judged(lambda x: (torch.sin(x), torch.cos(x)), 0)
    seen = Signature.from_json(both.signature)
    assert (both.verdict, seen.output, seen.magnitude) == ("same", 1, 0)
    alone = judged(torch.sin, 0)
    assert (alone.verdict, alone.signature) == ("none", None)
    assert judged(torch.sin, None).verdict == "same"


def test_nothing_but_nan_is_not_the_same() -> None:
    """Where eager computes nothing that could differ, nobody knows; positive inputs may help."""
    case = of(lambda x: torch.log(x).sum() + 1, torch.ones(64), backend="planted_values")
    nothing = found(case)
    assert (nothing.verdict, "NaN" in nothing.detail) == ("invalid", True)
    positive = with_positive_inputs(case)
    assert found(positive).verdict == "same"
    assert sort_key(case) < sort_key(positive)
    again = PlainContents().apply(positive, PlainContents().edits(positive))
    assert again is not None
    assert again.digest == case.digest
    positive = replace(positive, harness="accuracy", backend="inductor", imports=())
    text = compile_form(positive, wrong_result_signature("values"), []).text
    assert "torch.randn(64).abs()" in text


def test_an_error_where_eager_computes_no_number() -> None:
    """It is not seen, and that is said: positive inputs show it."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * 2, torch.cos(torch.log(x).sum())[None]])

    case = of(fn, torch.ones(64), backend="planted_cosine")
    assert (found(case).verdict, "in places" in found(case).detail) == ("none", True)
    telling, report = with_telling_inputs(
        replace(case, harness="accuracy", imports=()),
        judged,
    )
    assert (report.verdict, telling.checkpoint.inputs) == (
        "same", with_positive_inputs(case).checkpoint.inputs,
    )  # fmt: skip


def judged(case: Case) -> OracleReport:
    """What the oracle says of a case."""
    return TaskResult(found(case), 0.0, 0).report()


def test_an_error_of_integers() -> None:
    """Zeros and ones do not show it; numbers up to 100 do, in the oracle and in the script."""
    case = of(lambda x: x * 1, torch.arange(9), backend="planted_low_bit")
    case = replace(case, harness="accuracy", imports=())
    assert found(case).verdict == "none"
    telling, report = with_telling_inputs(case, judged)
    assert (report.verdict, telling) == ("same", with_larger_integers(case))
    assert sort_key(case) < sort_key(telling)
    text = compile_form(
        replace(telling, backend="inductor"), wrong_result_signature("values"), []
    ).text
    assert "torch.randint(1, 101, (9,))" in text


def test_integers_that_are_indices() -> None:
    """Stay in bounds: the verdict on the first ones holds."""
    case = of(lambda x, i: x[i] * 1, torch.arange(3), torch.tensor([0, 1, 1]))
    case = replace(case, harness="accuracy", imports=())
    telling, report = with_telling_inputs(case, judged)
    assert (report.verdict, telling) == ("none", case)


def viewed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns two objects in one memory."""
    made = x + 1
    return made, made.view(3)


@pytest.mark.parametrize("backend", ["planted_one_object", "planted_apart"])
def test_outputs_become_one_object_or_part(backend: str) -> None:
    """What is done to one of them later is done to the other, or no longer (pytorch#191449)."""
    assert found(of(viewed, torch.ones(3), backend=backend), "aliasing").verdict == "same"
    assert found(of(viewed, torch.ones(3)), "aliasing").verdict == "none"


def test_the_script_compares_what_shares_memory() -> None:
    """Both as the results are, and as writing to them shows it."""
    case = replace(of(viewed, torch.ones(3)), harness="accuracy", imports=(), backend="inductor")
    text = compile_form(case, wrong_result_signature("aliasing"), []).text
    assert "expected = sharing(fn(*args), args)" in text
    names: dict[str, Any] = {}
    exec(text.partition("args = inputs()")[0].replace("torch.compile(", "dict(fn="), names)
    x = torch.ones(3)
    apart, shared = names["sharing"]((x + 1, x + 1), (x,)), names["sharing"](viewed(x), (x,))
    made = x + 1
    same, of_input = names["sharing"]((made, made), (x,)), names["sharing"]((x + 1, x[:1]), (x,))
    assert len({repr(found) for found in (apart, shared, same, of_input)}) == 4


@pytest.mark.slow
def test_other_values_come_before_other_sharing(tmp_path: Path) -> None:
    """Inductor returns one object for a view of all of it; the second graph is wrong."""
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        torch.compile(viewed)(torch.ones(3))
        torch.compile(lambda x: x * 1, backend="planted_values")(torch.ones(4))
    wanted = wrong_result_signature("values")
    with (
        Store.open(tmp_path / "run.db", write=True) as store,
        WorkerOracle(wanted, imports=("tests.minifier.planted_results",)) as oracle,
    ):
        imports = ("tests.minifier.planted_results",)
        _, failure = find_difference(store, None, imports, oracle)
        assert failure.signature.message == "values"
        first = queries.compiles(store, 1)[0]
        _, failure = find_difference(store, first, imports, oracle)
        assert failure.signature.message == "aliasing"


@pytest.mark.parametrize("leaf", [True, False])
def test_a_wrong_gradient_of_an_input(leaf: bool) -> None:
    """Also of one that was computed, as that of a layer in the middle of a model is."""
    given = torch.ones(3, requires_grad=True)
    given = given if leaf else given * 2
    assert found(of(torch.sin, given, backend="planted_gradient")).verdict == "same"
    assert found(of(torch.sin, given)).verdict == "none"


def test_two_differences_are_told_apart() -> None:
    """The one that is looked for is seen behind a more telling one."""
    case = of(lambda x: torch.sin(x) + 1, torch.ones(3, 4), backend="planted_stride_and_values")
    assert found(case, "stride").verdict == "same"
    assert found(case, "values").verdict == "same"
    assert found(case, "aliasing").verdict == "other"


def unstable(x: torch.Tensor) -> torch.Tensor:
    """Rounding decides about each element: the sum of a number and what was taken from it."""
    return torch.floor((x * 3 - x * 2 - x) * 1e9)


def cancelling(x: torch.Tensor) -> torch.Tensor:
    """Loses all its digits."""
    return ((x + 1000.0) - 1000.0 - x) * 1e6


@pytest.mark.parametrize("fn", [unstable, cancelling])
def test_rounding_is_no_error(fn: Function) -> None:
    """However large it has become on the way: eager itself is as far off."""
    torch.manual_seed(0)
    case = of(fn, torch.randn(50), backend="planted_rounding")
    assert found(case).verdict == "none"
    assert found(case, comparator="exact").verdict == "same", "there is no difference to excuse"
    assert found(case, comparator="close(1e-3, 1e-3)").verdict == "same"


def test_an_error_is_no_rounding() -> None:
    """In a function that loses no digits."""
    case = of(lambda x: torch.sin(x) * 2, torch.randn(50), backend="planted_values")
    assert found(case).verdict == "same"


def half_used(x: torch.Tensor) -> torch.Tensor:
    """Returns memory that nobody wrote to, and zero times that."""
    whole = torch.empty(4, 2)
    whole[:2] = x
    return torch.cat([whole, whole * 0])


def test_uninitialised_memory_is_no_difference() -> None:
    """But what was written is compared."""
    right = found(of(half_used, torch.ones(2, 2), backend="planted_garbage"))
    assert right.verdict == "none"
    assert "values of output 0 not compared" in right.detail
    assert found(of(torch.sin, torch.ones(2))).detail == ""
    wrong = found(of(half_used, torch.ones(2, 2), backend="planted_garbage_and_values"))
    assert wrong.verdict == "same"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x),
        lambda x: x + torch.randn(4) * torch.bernoulli(torch.full((4,), 0.5)),
        lambda x: x[torch.randperm(4)],
    ],
)
def test_random_numbers_are_the_same(fn: Function) -> None:
    """Operators that draw them are compared like any other."""
    assert found(of(fn, torch.ones(4))).verdict == "none"


def test_a_comparator_of_the_user() -> None:
    """By the name of a function in a module that was imported; never imported for its name."""
    case = of(lambda x: torch.sin(x), torch.ones(3), backend="planted_values")
    name = "tests.minifier.planted_results"
    assert found(case, comparator=f"{name}:never", imports=(name,)).verdict == "none"
    assert found(case, comparator=f"{name}:always", imports=(name,)).verdict == "same"
    assert found(case, comparator="layout").verdict == "none"
    one = [torch.ones(2)]
    for text in ("closely", "close(1)", "close(1.e.e+, 0)", f"{name}:missing", "antigravity:x"):
        with pytest.raises(UsageError, match="comparator"):
            differences(one, one, comparator=text, imports=(name, "antigravity"))
    assert "antigravity" not in sys.modules


def test_a_stored_comparator_is_no_way_to_a_function() -> None:
    """Of a module that is loaded anyway, but that nobody named: a store says which code it is."""
    case = of(lambda x: torch.sin(x), torch.ones(3), backend="planted_values")
    for text in ("os:dup2", "torch:add", "tests.minifier.planted_results:always"):
        finding = found(case, comparator=text)
        assert finding.verdict not in ("same", "none"), finding
        assert "is code: name its module with --import" in finding.detail


def test_the_comparator_is_kept_with_the_case() -> None:
    """And makes it another case; the default is what it was before there was another."""
    case = of(torch.sin, torch.ones(3))
    exact = replace(case, comparator="exact")
    assert Case.from_bytes(exact.to_bytes()) == exact
    assert exact.digest != case.digest
    assert "comparator" not in case.canonical


def test_infinities_and_nans() -> None:
    """Equal ones are equal; others are not."""
    nan, inf = float("nan"), float("inf")
    values = [torch.tensor([nan, inf, -inf, 1.0])]
    assert compare(values, [torch.tensor([nan, inf, -inf, 1.0])]) is None
    for other in ([0.0, inf, -inf, 1.0], [nan, -inf, -inf, 1.0], [nan, inf, -inf, nan]):
        assert compare(values, [torch.tensor(other)]) is not None
    assert compare([torch.tensor([1, 2])], [torch.tensor([1, 3])]) is not None
    assert compare([1.5], [torch.tensor(1.5)]) is not None


def test_the_script_compares_in_the_same_way() -> None:
    """With the tolerances of the comparator, and strides where these are wrong."""
    case = replace(of(torch.sin, torch.ones(3)), harness="accuracy", imports=())
    close = replace(case, comparator="close(0.5, 0.25)")
    assert "rtol=0.5, atol=0.25" in compile_form(close, wrong_result_signature("values"), []).text
    exact = replace(case, comparator="exact")
    assert "rtol=0.0, atol=0.0" in compile_form(exact, wrong_result_signature("values"), []).text
    text = compile_form(case, wrong_result_signature("stride"), []).text
    assert "check_stride=True" in text
    compile(text, "repro.py", "exec")
