"""Tells rounding from a wrong result, by evidence about eager.

Lives here: the tolerances, the evidence, and the judgement of one pair of tensors. Not here: how
the evidence is computed (the minifier's `eager_references`), other kinds of differences
(`comparison`, which calls this).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

# Relative and absolute: those of torch.testing, loosened by ten, because the compiler may fuse and
# reorder what is summed; a wrong result is off by far more.
_TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (3e-2, 3e-2),
    torch.float32: (1e-3, 1e-3),
    torch.float64: (1e-6, 1e-6),
    torch.complex64: (1e-3, 1e-3),
    torch.complex128: (1e-6, 1e-6),
}
# Against a float64 reference: the compiled result may be this many times as far off as eager's.
_WORSE_THAN_EAGER = 5.0
# Against eager with noise in every rounding: three runs show a third of what may happen, or more.
_WORSE_THAN_NOISE = 10.0
# What is larger than a wrong element by more than this can't excuse it by its own rounding.
_SAME_SCALE = 10.0


def _nothing() -> Sequence[Sequence[object]]:
    return ()


@dataclass(frozen=True)
class Evidence:
    """More results of eager mode, which separate an error from rounding and arbitrary values."""

    exact: Sequence[object] | None = None
    """The results in float64."""
    repoisoned: Sequence[object] | None = None
    """The results with other values in uninitialised memory: what differs there is arbitrary."""
    noisy: Callable[[], Sequence[Sequence[object]]] = field(default=_nothing)
    """Results with noise of the size of the rounding in every step; computed when first needed."""


NO_EVIDENCE = Evidence()


def beyond_rounding(
    one: torch.Tensor, other: torch.Tensor, index: int, evidence: Evidence
) -> torch.Tensor | bool:
    """Return a mask of the elements that differ by more than any order of rounding explains."""
    # A NaN where there is none in the other is a wrong value like any other: which of the two shows
    # depends on the invented inputs.
    wrong = ~is_close(one, other, *_tolerances(one))
    if not wrong.any() or _is_rounding(one, other, wrong, index, evidence):
        return False
    return wrong


def _tolerances(value: torch.Tensor) -> tuple[float, float]:
    return _TOLERANCE.get(value.dtype, (1e-3, 1e-3))


def _is_rounding(
    one: torch.Tensor, other: torch.Tensor, wrong: torch.Tensor, index: int, evidence: Evidence
) -> bool:
    """Return True if a difference is as small as those that eager's own rounding makes.

    Either the compiled result is hardly further from the one in float64 than eager's is; or eager,
    with noise of the size of a rounding error in every step, comes as far from itself. The latter
    is Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997): it sees what a rounding error
    does beyond a branch, a comparison or an argmax, where there is no tolerance that could.

    A result in float64 that is far from eager's proves nothing by itself: the graph may compute
    something else there (bits read as another dtype). Noise has to explain that distance as well.
    """
    near = _of_that_scale(one, other, wrong)
    exact = at(evidence.exact, index, one)
    if exact is not None and _is_no_worse(exact, one, other, near):
        known = _agree(exact, one, near) or _is_explained(exact, one, near, index, evidence)
        if known and _is_as_rare(one, wrong, [exact]):
            return True
    runs = _runs(one, index, evidence)
    explained = _is_explained(other, one, near, index, evidence)
    return explained and _is_as_rare(one, wrong, runs) and _breaks_down(one, other, runs)


def _agree(exact: torch.Tensor, one: torch.Tensor, near: torch.Tensor) -> bool:
    rtol, atol = _tolerances(one)
    same = torch.isclose(_wide(exact), _wide(one), rtol=rtol, atol=atol, equal_nan=True)
    return bool(same[near].all())


def _is_explained(
    value: torch.Tensor, one: torch.Tensor, near: torch.Tensor, index: int, evidence: Evidence
) -> bool:
    """Return True if noise moves eager's result at least about as far as `value` is from it."""
    spread = max((_spread(run, one, near) for run in _runs(one, index, evidence)), default=0.0)
    return spread > 0 and _finite_error(value, one, near) <= _WORSE_THAN_NOISE * spread


def _is_no_worse(
    exact: torch.Tensor, one: torch.Tensor, other: torch.Tensor, near: torch.Tensor
) -> bool:
    eager, compiled = (largest_error(exact[near], value[near]) for value in (one, other))
    return 0 < eager < math.inf and compiled <= _WORSE_THAN_EAGER * eager


def _runs(one: torch.Tensor, index: int, evidence: Evidence) -> list[torch.Tensor]:
    """Return eager's results with noise, where they are of the same size."""
    found = [at(values, index, one) for values in evidence.noisy()]
    return [run for run in found if run is not None]


def _spread(run: torch.Tensor, one: torch.Tensor, near: torch.Tensor) -> float:
    """Return the largest finite difference that noise makes; ulp(0) if only inf or NaN moved."""
    error = _finite_error(run, one, near)
    moved = bool(unequal(run, one)[near].any())
    return error or (math.ulp(0.0) if moved else 0.0)


def _of_that_scale(one: torch.Tensor, other: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that are not much larger than the wrong ones.

    Only such elements can show that rounding explains an error: the rounding of 1e6 says nothing
    about an error of a 1.
    """
    wide, difference = _wide(one).abs(), (_wide(one) - _wide(other)).abs()
    largest = torch.maximum(wide, difference)[wrong].nan_to_num(math.inf).max()
    return ~(wide > _SAME_SCALE * largest)


def _is_as_rare(one: torch.Tensor, wrong: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Return False for more wrong integers than rounding explains: any error of a boolean is 1."""
    if one.is_floating_point() or one.is_complex():
        return True
    moved = max((int(unequal(one, value).sum()) for value in others), default=0)
    return int(wrong.sum()) <= _WORSE_THAN_NOISE * moved


def _breaks_down(one: torch.Tensor, other: torch.Tensor, runs: Sequence[torch.Tensor]) -> bool:
    """Return False if an element becomes, or stays, no number where noise does not do that."""
    odd = ~(_wide(one) - _wide(other)).isfinite() & unequal(one, other)
    for run in runs:
        odd &= (_wide(run) - _wide(one)).isfinite() | ~unequal(run, one)
    return not bool(odd.any())


def _finite_error(one: torch.Tensor, other: torch.Tensor, near: torch.Tensor) -> float:
    """Return the largest difference of the elements that are numbers in both."""
    error = (_wide(one) - _wide(other)).abs()[near]
    return float(error[error.isfinite()].max()) if bool(error.isfinite().any()) else 0.0


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def is_close(one: torch.Tensor, other: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    if not (one.is_floating_point() or one.is_complex()):
        return one == other
    return torch.isclose(other, one, rtol=rtol, atol=atol, equal_nan=True)


def unequal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one != other) & ~((one != one) & (other != other))


def plain(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor as dense memory of the CPU, without lazy bits."""
    value = value.to_dense() if value.layout is not torch.strided else value
    return value.detach().cpu().resolve_conj().resolve_neg()


def largest_error(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two tensors of one size, where both are finite; else
    infinity.

    Equal infinities and NaNs in the same places are no difference.
    """
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    error = torch.where(unequal(one, other), (one - other).abs(), 0.0)
    return float(error.nan_to_num(math.inf).max().item()) if error.numel() else 0.0


def at(values: Sequence[object] | None, index: int, like: torch.Tensor) -> torch.Tensor | None:
    """Return `values[index]` if it is a tensor of the size of `one`; else None."""
    value = values[index] if values is not None and index < len(values) else None
    if not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return None
    return plain(value)
