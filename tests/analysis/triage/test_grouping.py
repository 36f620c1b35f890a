"""Which failures are taken for one bug, and which are not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count, permutations

import pytest

from torchreel.analysis.triage.canonical_form import Form
from torchreel.analysis.triage.failures import SeenFailure, SmallestCase
from torchreel.analysis.triage.grouping import group, is_telling, words
from torchreel.analysis.triage.program_part import NO_PART, ProgramPart
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.failures import signature as signatures
from torchreel.store.failures.signature import Signature, crash_signature, wrong_result_signature

LOWERING = Signature(
    "exception", "lowering", "forward", ("LoweringException", "AssertionError"),
    ("torch._inductor.lowering:scatter",), "no such size",
)  # fmt: skip
GENERATED = Signature(
    "exception", "run", "", ("AssertionError",), ("torch._inductor.x:<generated>",), "expected N"
)
CRASH = crash_signature("run", "", "SIGSEGV")
WRONG = wrong_result_signature("values")
_numbers = count(1)


def case(*calls: str, shape: str = "", outline: str = "", is_minimal: bool = True) -> SmallestCase:
    made = " ".join(calls)
    form = Form(Counter(calls), outline or made, shape or made)
    return SmallestCase(len(calls), "call node", is_minimal, form)


def seen(
    signature: Signature,
    *graph: str,
    smallest: SmallestCase | None = None,
    run: str = "r",
    part: ProgramPart = NO_PART,
) -> SeenFailure:
    number = next(_numbers)
    return SeenFailure(
        f"{number}.db#1/0/0", signature, number, (run, number, 1), None, "2.13",
        Counter(graph), len(graph), smallest, part=part,
    )  # fmt: skip


def grouped(*failures: SeenFailure) -> list[set[int]]:
    """The groups, by the places of the failures; whatever order these come in."""
    found: set[frozenset[frozenset[int]]] = set()
    orders = list(permutations(failures))[:24]
    for order in orders:
        found.add(
            frozenset(
                frozenset(failures.index(failure) for failure in each.failures)
                for each in group(order)
            )
        )
    (only,) = found
    return sorted((set(each) for each in only), key=min)


# -- by signature ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "telling"),
    [
        (LOWERING, True),
        (replace(LOWERING, frames=()), True),
        (GENERATED, False),
        (replace(LOWERING, stage="run"), False),
        (CRASH, False),
        (WRONG, False),
    ],
)
def test_a_signature_is_telling_if_it_names_a_place(signature: Signature, telling: bool) -> None:
    assert is_telling(signature) == telling


def test_a_telling_signature_is_enough() -> None:
    other = replace(LOWERING, frames=("torch._inductor.lowering:gather",))
    assert grouped(seen(LOWERING, "a"), seen(LOWERING, "b"), seen(other, "a")) == [{0, 1}, {2}]


@pytest.mark.parametrize("signature", [CRASH, WRONG, GENERATED])
def test_any_other_needs_a_graph_that_is_alike(signature: Signature) -> None:
    failures = seen(signature, "a", "b"), seen(signature, "b", "a"), seen(signature, "a")
    assert grouped(*failures) == [{0, 1}, {2}]


def test_without_a_graph_the_ranks_of_one_run_are_one() -> None:
    assert grouped(seen(CRASH), seen(CRASH), seen(CRASH, run="other")) == [{0, 1}, {2}]


def test_a_failure_in_two_stores_counts_once() -> None:
    failure = seen(LOWERING, "a")
    copy = replace(failure, address="copy.db#1/0/0", smallest=case("a"))
    (found,) = group([failure, copy])
    assert [each.address for each in found.failures] == ["copy.db#1/0/0"]
    assert group([copy, failure]) == [found]


def test_of_a_report_the_program_s_part_decides() -> None:
    one, other = (ProgramPart((line,), is_reported=True) for line in ("if v0 :", "v0 ( )"))
    failures = (
        seen(LOWERING, "a", part=one), seen(LOWERING, "b", part=one),
        seen(LOWERING, "a", part=other),
    )  # fmt: skip
    assert grouped(*failures) == [{0, 1}, {2}]


def test_of_a_report_the_dtype_is_the_model_s() -> None:
    part = ProgramPart(("v0 ( v1 )",), is_reported=True)
    half, full = (replace(LOWERING, message=f"got {name}") for name in ("Half", "torch.float32"))
    assert grouped(seen(half, "a", part=part), seen(full, "b", part=part)) == [{0, 1}]
    assert grouped(seen(half, "a"), seen(full, "b")) == [{0}, {1}]


def test_a_report_that_says_nothing_needs_a_graph_that_is_alike() -> None:
    mute = ProgramPart(needs_graph=True, is_reported=True)
    failures = (
        seen(LOWERING, "a", part=mute), seen(LOWERING, "a", part=mute),
        seen(LOWERING, "b", part=mute),
    )  # fmt: skip
    assert grouped(*failures) == [{0, 1}, {2}]


def test_a_reduced_report_needs_one_shape() -> None:
    part = ProgramPart(("if v0 :",), is_reported=True)
    half, full = case("gt", shape="half"), case("gt", shape="float")
    failures = (
        seen(LOWERING, "x", smallest=half, part=part),
        seen(LOWERING, "y", smallest=half, part=part),
        seen(LOWERING, "x", smallest=full, part=part),
    )
    assert grouped(*failures) == [{0, 1}, {2}]


# -- by smallest case -----------------------------------------------------------------------------


def test_what_only_looks_alike_is_parted() -> None:
    one, other = case("scatter"), case("gather")
    failures = seen(LOWERING, smallest=one), seen(LOWERING, smallest=other)
    assert grouped(*failures) == [{0}, {1}]


def test_what_wobbles_is_joined_by_place_and_by_words() -> None:
    least = case("scatter")
    reworded = replace(LOWERING, message="another size")
    moved = replace(LOWERING, frames=("torch._inductor.lowering:helper",))
    assert grouped(seen(LOWERING, smallest=least), seen(reworded, smallest=least)) == [{0, 1}]
    assert grouped(seen(LOWERING, smallest=least), seen(moved, smallest=least)) == [{0, 1}]


def test_neither_place_nor_words_is_another_bug() -> None:
    other = replace(LOWERING, frames=("torch._inductor.ir:view",), message="no view")
    least = case("scatter")
    assert grouped(seen(LOWERING, smallest=least), seen(other, smallest=least)) == [{0}, {1}]


def test_another_exception_is_another_bug() -> None:
    other = replace(LOWERING, exception_types=("KeyError",))
    least = case("scatter")
    assert grouped(seen(LOWERING, smallest=least), seen(other, smallest=least)) == [{0}, {1}]


@pytest.mark.parametrize("signature", [CRASH, WRONG, GENERATED])
def test_what_is_not_telling_needs_one_shape(signature: Signature) -> None:
    half, full = case("to", shape="half"), case("to", shape="float")
    failures = (
        seen(signature, "x", smallest=half), seen(signature, "y", smallest=half),
        seen(signature, "x", smallest=full),
    )  # fmt: skip
    assert grouped(*failures) == [{0, 1}, {2}]


def test_a_larger_case_joins_the_only_one_within_it() -> None:
    small, large = case("scatter"), case("pool", "scatter", is_minimal=False)
    assert grouped(seen(LOWERING, smallest=small), seen(LOWERING, smallest=large)) == [{0, 1}]


def test_a_case_that_holds_two_joins_neither_and_them_not() -> None:
    failures = (
        seen(LOWERING, smallest=case("scatter")), seen(LOWERING, smallest=case("gather")),
        seen(LOWERING, smallest=case("gather", "scatter")),
    )  # fmt: skip
    assert grouped(*failures) == [{0}, {1}, {2}]


def test_a_crash_never_joins_by_what_is_within_it() -> None:
    failures = seen(CRASH, smallest=case("add")), seen(CRASH, smallest=case("add", "mul"))
    assert grouped(*failures) == [{0}, {1}]


def test_the_operator_that_generated_code_called_is_a_place_beside_the_calls() -> None:
    exponential = ProgramPart(("x",), needs_graph=True, operator="torch.ops.aten.exp.default")
    other = replace(exponential, operator="torch.ops.aten.log.default")
    small, large = case("conv", "exp"), case("conv", "exp", "mul", is_minimal=False)
    failures = (
        seen(GENERATED, smallest=small, part=exponential),
        seen(GENERATED, smallest=large, part=exponential),
        seen(GENERATED, "conv", "exp", "relu", part=exponential),
        seen(GENERATED, "exp", "relu", part=exponential),
        seen(GENERATED, "conv", "exp", "relu", part=other),
        seen(GENERATED, smallest=case("conv", "exp", "log"), part=other),
    )
    assert grouped(*failures) == [{0, 1, 2}, {3}, {4}, {5}]


# -- what was not reduced -------------------------------------------------------------------------


def test_an_unreduced_failure_joins_the_case_in_its_graph() -> None:
    scatter, gather = case("scatter"), case("gather")
    failures = (
        seen(LOWERING, "scatter", smallest=scatter), seen(LOWERING, "gather", smallest=gather),
        seen(LOWERING, "linear", "scatter"), seen(LOWERING, "linear"),
        seen(LOWERING, "scatter", "gather"),
    )  # fmt: skip
    assert grouped(*failures) == [{0, 2}, {1}, {3, 4}]


def test_an_unreduced_crash_joins_one_of_the_same_graph_only() -> None:
    failures = (
        seen(CRASH, "add", "linear", smallest=case("add")),
        seen(CRASH, "add", "linear"), seen(CRASH, "add", "conv"),
    )  # fmt: skip
    assert grouped(*failures) == [{0, 1}, {2}]


def test_a_failure_without_a_graph_goes_by_its_signature() -> None:
    failures = seen(LOWERING, smallest=case("checkpoint")), seen(LOWERING)
    assert grouped(*failures) == [{0, 1}]


# -- the rest -------------------------------------------------------------------------------------


def test_words_have_no_dtypes_and_nothing_that_is_quoted() -> None:
    one = "Float did not match 'c10::Half' at torch.float32"
    assert words(one) == words("bool  did not match 'int' at torch.bfloat16")
    assert words("operand must be f32, not vector<i8>") == words(
        "operand must be bf16, not vector<i64>"
    )
    assert words("floating point") == "floating point"


def test_the_name_of_a_group_does_not_change_with_what_is_in_it() -> None:
    first = seen(LOWERING, smallest=case("scatter"))
    alone, more = group([first]), group([first, seen(LOWERING, "scatter")])
    assert [each.id for each in alone] == [each.id for each in more]
    assert group([seen(LOWERING)])[0].id == group([seen(LOWERING), seen(LOWERING)])[0].id


def test_two_groups_of_one_case_have_two_names() -> None:
    other = replace(LOWERING, frames=("torch._inductor.lowering:gather",), message="something else")
    failures = [seen(each, smallest=case("scatter")) for each in (LOWERING, other)]
    groups = group(failures)
    assert len({each.id for each in groups}) == len(groups) == 2
    alone = [group([failure])[0].id for failure in failures]
    assert alone == [each.id.partition("-")[0] for each in groups]
    more = group([*failures, seen(other, "scatter")])
    assert {each.id for each in more} == {each.id for each in groups}


@pytest.mark.parametrize("signature", [LOWERING, CRASH])
def test_what_tells_a_failure_is_computed_once(
    monkeypatch: pytest.MonkeyPatch, signature: Signature
) -> None:
    def times(failures: int) -> int:
        asked = []

        def digest(value: bytes) -> str:
            asked.append(value)
            return digest_of(value)

        with monkeypatch.context() as patched:
            patched.setattr(signatures, "digest_of", digest)
            found = [seen(replace(signature), "add", smallest=case("add"))]
            found += [seen(replace(signature), "add") for _ in range(failures)]
            assert len(group(found)) == 1
        return len(asked)

    assert times(40) - times(20) == times(20) - times(0)
