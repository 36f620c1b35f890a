"""What may not excuse a wrong result: a reference that is none, and noise of something else.

Each of these wrong results passed as rounding once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import tests.minifier.planted_results  # registers the backends
from tests.minifier.real import case_from
from torchreel.minifier.oracle.child.eager_references import widened_inputs
from torchreel.minifier.oracle.child.graph_runner import run
from torchreel.minifier.oracle.protocol import ChildReport, Task
from torchreel.replay.accuracy.comparison import differences
from torchreel.replay.accuracy.rounding import Evidence
from torchreel.store.failures.signature import wrong_result_signature

assert tests.minifier.planted_results, "imported for its side effect"


def found(fn: Callable[..., Any], *inputs: object, backend: str) -> ChildReport:
    """What the oracle's child says of the graph of a function."""
    case = case_from(fn, *inputs, backend=backend)
    case = replace(case, harness="accuracy", imports=())
    return run(Task(case, wrong_result_signature("values"), 0.0, 0), lambda position: None)


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Writes to one input, and reads the other."""
    x.mul_(3)
    return y + 1


def test_inputs_that_share_memory() -> None:
    """A graph writes to one, and reads it in the other: so does the one in float64."""
    base = torch.arange(8.0)
    assert found(written, base[:6], base[2:], backend="planted_unshared").verdict == "same"
    assert found(written, base[:6], base[2:], backend="aot_eager").verdict == "none"


def test_an_input_that_overlaps_itself() -> None:
    """A write to one element is seen in another, in float64 as well."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        x[0].mul_(3)
        return x + 1

    given = torch.ones(3).expand(4, 3)
    assert found(fn, given, backend="planted_unshared").verdict == "same"


def test_bits_that_are_read_as_another_dtype() -> None:
    """In float64 those are other bits: what is computed of them is no reference."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.view(torch.int32).bitwise_and(0x7FFFFF).sum(-1).float()

    assert found(fn, torch.rand(4, 6), backend="planted_values").verdict == "same"


def test_widened_inputs_share_what_the_given_ones_share() -> None:
    """And have no wide form where that can't be."""
    base = torch.arange(8.0)
    made = widened_inputs([base[:6], base[2:], torch.ones(2, dtype=torch.int64)])
    assert made is not None
    one, other, whole = made
    assert isinstance(one, torch.Tensor)
    assert isinstance(other, torch.Tensor)
    assert isinstance(whole, torch.Tensor)
    assert (one.dtype, other.dtype, whole.dtype) == (torch.float64, torch.float64, torch.int64)
    one.zero_()
    assert other.tolist() == [0.0] * 4 + [6.0, 7.0]
    assert base.tolist() == list(range(8))
    assert widened_inputs([base, base.view(torch.int32)]) is None
    assert widened_inputs([base.requires_grad_(), base.detach()]) is None
    wide = widened_inputs([torch.ones(2, dtype=torch.complex64), torch.ones(2).conj()])
    assert wide is not None
    assert isinstance(wide[0], torch.Tensor)
    assert wide[0].dtype is torch.complex128


def tensors(*values: float, dtype: torch.dtype = torch.float32) -> list[object]:
    """Return one result."""
    return [torch.tensor(values, dtype=dtype)]


def test_large_elements_do_not_excuse_small_ones() -> None:
    """Each is as exact as its size."""
    eager, exact = tensors(1e7, 0.5), tensors(1e7 + 3, 0.5, dtype=torch.float64)
    assert differences(eager, tensors(1e7, 9.5), Evidence(exact=exact))
    noisy = Evidence(noisy=lambda: [tensors(1e7 + 3, 0.5)])
    assert differences(eager, tensors(1e7, 9.5), noisy)


def test_a_nan_of_the_noise_excuses_no_other_value() -> None:
    """It is no distance; the same NaN in the compiled result may be rounding."""
    noisy = Evidence(noisy=lambda: [tensors(float("nan"), 0.5)])
    assert differences(tensors(0.0, 0.5), tensors(0.0, 9.5), noisy)
    assert differences(tensors(0.0, 0.5), tensors(0.0, float("nan")), noisy)
    assert not differences(tensors(0.0, 0.5), tensors(float("nan"), 0.5), noisy)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_one_wrong_boolean_does_not_excuse_all(dtype: torch.dtype) -> None:
    """An error of a boolean is 1, however many there are."""
    eager = torch.zeros(100, dtype=dtype)
    moved, few = eager.clone(), eager.clone()
    moved[0], few[5] = 1, 1
    for evidence in (
        Evidence(exact=[moved], noisy=lambda: [[moved]]),
        Evidence(noisy=lambda: [[moved]]),
    ):
        assert differences([eager], [torch.ones(100, dtype=dtype)], evidence)
        assert not differences([eager], [few], evidence)
