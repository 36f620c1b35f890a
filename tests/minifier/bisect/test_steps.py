"""Steps: their spelling, and the cases that they make."""

from __future__ import annotations

import pytest
from torch._inductor.compiler_bisector import (
    BACKENDS,
    BisectSubsystem,
    CompilerBisector,
    ConfigChange,
)

from tests.minifier.hand_made import chain
from torchreel.errors import UsageError
from torchreel.minifier.bisect.results import Bisection, StepResult
from torchreel.minifier.bisect.steps import LADDER, PARTS, BisectStep, applied, parse_step
from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.child.bisector import held_back


@pytest.mark.parametrize(
    "text",
    ["aot_eager", "inductor:lowerings", "inductor:lowerings:3",
     "aot_eager_decomp_partition:decomposition:0", "inductor:inductor.fallback_random=True"],
)  # fmt: skip
def test_a_step_is_what_its_spelling_says(text: str) -> None:
    assert str(parse_step(text)) == text


@pytest.mark.parametrize(
    "text", ["", "triton", "aot_eager:lowerings", "inductor:", "inductor:lowerings:-2",
             "inductor:os.system=1", "inductor:inductor.x=__import__('os')"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_step(text)


def test_the_parts_are_those_of_torch() -> None:
    """Crossref changes what is run, not which part of the compiler does."""
    assert [name for name in BACKENDS if name != "aot_eager_decomp_partition_crossref"] == [*LADDER]
    modules = {"aot_eager_decomp_partition": "functorch", "inductor": "inductor"}
    for backend, parts in PARTS.items():
        found = []
        for part in BACKENDS[backend]:
            if isinstance(part, ConfigChange):
                found.append(f"{modules[backend]}.{part.config_field}={part.config_value}")
            elif isinstance(part, BisectSubsystem):
                found.append(part.name)
        assert [*parts] == found


def test_a_step_goes_into_the_case_and_its_digest() -> None:
    case = chain(["relu", "sin"])
    digests = {
        applied(parse_step(text), case).digest
        for text in ("aot_eager", "inductor:lowerings", "inductor:lowerings:0",
                     "inductor:inductor.fallback_random=True")
    }  # fmt: skip
    assert len({case.digest, *digests}) == 5
    made = applied(parse_step("inductor:lowerings:2"), case)
    assert Case.from_bytes(made.to_bytes()).digest == made.digest
    assert applied(BisectStep(), case) is case


def test_torch_is_told_what_to_leave_out_and_no_longer_when_it_is_over() -> None:
    before = CompilerBisector.disable_subsystem
    with held_back({"backend": "inductor", "part": "lowerings", "limit": 1}) as holder:
        asked = [
            CompilerBisector.disable_subsystem("inductor", "lowerings", lambda n=n: f"node {n}")
            for n in range(4)
        ]
        assert not CompilerBisector.disable_subsystem("inductor", "post_grad_passes")
    assert asked == [False, False, True, True]
    assert holder.left_out == "node 2"
    assert CompilerBisector.disable_subsystem == before
    with held_back(None) as nothing:
        assert not CompilerBisector.disable_subsystem("inductor", "lowerings")
    assert nothing.left_out == ""


def test_a_bisection_is_kept_as_data() -> None:
    tried = (
        StepResult(BisectStep("aot_eager"), False, "none"),
        StepResult(BisectStep("inductor"), True, "same", "x"),
    )
    found = Bisection("inductor", "lowerings", 3, "aten.scatter", "a = b", tried, 7, True, 12)
    assert Bisection.from_json(found.to_json()) == found
    assert str(found.passing) == "inductor:lowerings:2"
    assert found.failing.variables()["TORCH_BISECT_MAX"] == "3"
