"""Compares the results of a compiled graph with eager's.

Lives here: flattening of results, what kinds of differences there are, and the comparators, which
say when two tensors differ. Not here: what is run, and the evidence about eager (the minifier's
`eager_references`). Called by the replay of a wrong result and by the minifier's oracle.

A comparator is named by a short text, which is kept with a case:

    default               rounding is no error: see `_is_rounding`
    close(RTOL, ATOL)     as torch.testing.assert_close with these tolerances
    exact                 bit for bit, but that every NaN is the same
    layout                sizes, dtypes, strides and aliasing only
    MODULE:FUNCTION       called with (expected, got), two tensors; true means that they differ
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from torchreel.errors import UsageError
from torchreel.replay.accuracy.comparators import DEFAULT, tolerances
from torchreel.store.failures.signature import Signature, wrong_result_signature

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
# What a person has to know first; a difference of the values goes before one of their layout.
_KINDS = ("count", "type", "shape", "dtype", "values", "stride", "aliasing")


@dataclass(frozen=True)
class Difference:
    """An output in which two results differ."""

    kind: str
    output: int
    magnitude: int | None = None
    detail: str = ""

    def signature(self) -> Signature:
        """As the signature of a wrong result."""
        return wrong_result_signature(self.kind, self.output, self.magnitude)

    def __str__(self) -> str:
        return f"value {self.output} differs in its {self.kind}: {self.detail}"


def _nothing() -> Sequence[Sequence[object]]:
    return ()


@dataclass(frozen=True)
class Evidence:
    """More results of eager mode, by which an error is told from rounding and arbitrary values."""

    exact: Sequence[object] | None = None
    """The results in float64."""
    repoisoned: Sequence[object] | None = None
    """The results with other values in uninitialised memory: what differs there is arbitrary."""
    noisy: Callable[[], Sequence[Sequence[object]]] = field(default=_nothing)
    """Results with noise of the size of the rounding in every step; computed when first needed."""


NO_EVIDENCE = Evidence()


def tensors_of(result: object) -> list[object]:
    """The leaves of a result, gradients detached."""
    return [
        leaf.detach() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(result)
    ]


def compare(
    expected: Sequence[object], got: Sequence[object], reference: Sequence[object] | None = None
) -> Difference | None:
    """The first difference between eager's values and the compiled ones; None if there is none.

    `reference` are eager's values computed in float64, where that was possible.
    """
    found = differences(expected, got, Evidence(exact=reference))
    return found[0] if found else None


def differences(
    expected: Sequence[object],
    got: Sequence[object],
    evidence: Evidence = NO_EVIDENCE,
    comparator: str = DEFAULT,
) -> list[Difference]:
    """All differences in what was computed, the most telling kind first, then by output.

    Raises UsageError for a comparator that does not exist.
    """
    differ = _comparator(comparator)
    if len(expected) != len(got):
        return [Difference("count", min(len(expected), len(got)), None, "more or fewer values")]
    found = []
    for index, (one, other) in enumerate(zip(expected, got, strict=True)):
        difference = _compare_one(one, other, index, evidence, differ)
        found += [difference] if difference is not None else []
    return sorted(found, key=lambda item: (_KINDS.index(item.kind), item.output))


def layout_differences(
    inputs: Sequence[Sequence[object]], expected: Sequence[object], got: Sequence[object]
) -> list[Difference]:
    """Differences in strides, and in which inputs the outputs share memory with.

    `inputs` are those of eager and those of the compiled code, after the call.
    """
    found = []
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        if one.shape == other.shape and _strides(one) != _strides(other):
            found.append(Difference("stride", index, None, f"{one.stride()} and {other.stride()}"))
        shared, others = _shared(one, inputs[0]), _shared(other, inputs[1])
        if shared != others:
            found.append(Difference("aliasing", index, None, _told_sharing(shared, others)))
    return sorted(found, key=lambda item: (_KINDS.index(item.kind), item.output))


def _strides(value: torch.Tensor) -> list[int] | None:
    """Strides that a program could notice: of dimensions of one element, and of none, it can't."""
    if value.layout is not torch.strided or value.numel() == 0:
        return None
    return [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]


def _shared(value: torch.Tensor, inputs: Sequence[object]) -> int | None:
    """The first input whose memory a tensor lies in."""
    if value.layout is not torch.strided or value.numel() == 0:
        return None
    place = value.untyped_storage().data_ptr()
    for index, given in enumerate(inputs):
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            continue
        if given.numel() and given.untyped_storage().data_ptr() == place != 0:
            return index
    return None


def _told_sharing(one: int | None, other: int | None) -> str:
    def told(index: int | None) -> str:
        return "memory of its own" if index is None else f"the memory of input {index}"

    return f"{told(one)} and {told(other)}"


# Given eager's tensor, the compiled one, their number, and evidence: whether they differ.
_Differ = Callable[[torch.Tensor, torch.Tensor, int, Evidence], torch.Tensor | bool]


def _compare_one(
    one: object, other: object, index: int, evidence: Evidence, differ: _Differ
) -> Difference | None:
    if isinstance(one, torch.Tensor) is not isinstance(other, torch.Tensor):
        return Difference("type", index, None, f"{type(one).__name__} and {type(other).__name__}")
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        same = type(one) is type(other) and (one == other or one != one)
        return None if same else Difference("values", index, None, f"{one!r} and {other!r}")
    if one.shape != other.shape:
        return Difference("shape", index, None, f"{tuple(one.shape)} and {tuple(other.shape)}")
    if one.dtype != other.dtype:
        return Difference("dtype", index, None, f"{one.dtype} and {other.dtype}")
    return _compare_values(one, other, index, evidence, differ)


def _compare_values(
    one: torch.Tensor, other: torch.Tensor, index: int, evidence: Evidence, differ: _Differ
) -> Difference | None:
    if one.numel() == 0:
        return None
    one, other = plain(one), plain(other)
    again = _at(evidence.repoisoned, index, one)
    if again is not None:  # what depends on uninitialised memory is compared with nothing
        other = torch.where(_unequal(one, again), one, other)
    wrong = differ(one, other, index, evidence)
    if isinstance(wrong, bool):
        wrong = _unequal(one, other) if wrong else torch.zeros(1, dtype=torch.bool)
    if not wrong.any():
        return None
    return _difference("values", index, int(wrong.sum()), largest_error(one, other))


def _at(values: Sequence[object] | None, index: int, like: torch.Tensor) -> torch.Tensor | None:
    """The value at that place, if it is a tensor of the same size."""
    value = values[index] if values is not None and index < len(values) else None
    if not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return None
    return plain(value)


def _comparator(text: str) -> _Differ:
    """The comparator of that name."""
    if text == DEFAULT:
        return _beyond_rounding
    if text == "exact":
        return lambda one, other, index, evidence: _unequal(one, other)
    if text == "layout":
        return lambda one, other, index, evidence: False
    found = tolerances(text)
    if found is None:
        return _of_user(text)
    rtol, atol = found
    return lambda one, other, index, evidence: ~_is_close(one, other, rtol, atol)


def _of_user(text: str) -> _Differ:
    """A function of a module that the user has had imported; nothing is imported here."""
    module, _, name = text.partition(":")
    function = getattr(sys.modules.get(module), name, None)
    if not callable(function):
        raise UsageError(
            f"The comparator {text!r:.80} is not there: name {module!r} with --import."
        )
    return lambda one, other, index, evidence: bool(function(one, other))


def _beyond_rounding(
    one: torch.Tensor, other: torch.Tensor, index: int, evidence: Evidence
) -> torch.Tensor | bool:
    """Return a mask of the elements that differ by more than any order of rounding explains."""
    # A NaN where there is none in the other is a wrong value like any other: which of the two shows
    # depends on the invented inputs.
    rtol, atol = _TOLERANCE.get(one.dtype, (1e-3, 1e-3))
    wrong = ~_is_close(one, other, rtol, atol)
    if not wrong.any() or _is_rounding(one, other, index, evidence):
        return False
    return wrong


def _is_rounding(one: torch.Tensor, other: torch.Tensor, index: int, evidence: Evidence) -> bool:
    """Return whether a difference is as small as those that eager's own rounding makes.

    Either the compiled result is hardly further from the one in float64 than eager's is; or eager,
    with noise of the size of a rounding error in every step, comes as far from itself. The latter
    is Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997): it sees what a rounding error
    does beyond a branch, a comparison or an argmax, where there is no tolerance that could.
    """
    exact = _at(evidence.exact, index, one)
    if exact is not None:
        eager, compiled = largest_error(exact, one), largest_error(exact, other)
        if 0 < eager < math.inf and compiled <= _WORSE_THAN_EAGER * eager:
            return True
    runs = [_at(values, index, one) for values in evidence.noisy()]
    spread = max((largest_error(run, one) for run in runs if run is not None), default=0.0)
    return spread > 0 and largest_error(one, other) <= _WORSE_THAN_NOISE * spread


def _is_close(one: torch.Tensor, other: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    if not (one.is_floating_point() or one.is_complex()):
        return one == other
    return torch.isclose(other, one, rtol=rtol, atol=atol, equal_nan=True)


def _unequal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one != other) & ~((one != one) & (other != other))


def plain(value: torch.Tensor) -> torch.Tensor:
    """A tensor as dense memory of the CPU, without lazy bits."""
    value = value.to_dense() if value.layout is not torch.strided else value
    return value.detach().cpu().resolve_conj().resolve_neg()


def largest_error(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors of one size, where both are finite; else infinity.

    Equal infinities and NaNs in the same places are no difference.
    """
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    error = torch.where(_unequal(one, other), (one - other).abs(), 0.0)
    return float(error.nan_to_num(math.inf).max().item()) if error.numel() else 0.0


def _difference(kind: str, index: int, count: int, error: float) -> Difference:
    finite = 0 < error < math.inf
    magnitude = math.floor(math.log10(error)) if finite else None
    return Difference(kind, index, magnitude, f"{count} elements, by up to {error:.3g}")
