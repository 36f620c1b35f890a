"""Whether a compiled graph computed what eager computes.

Lives here: flattening of results, tolerances, the kind and size of a difference. Not here: what is
run. Called by the replay of a wrong result and by the minifier's oracle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from torchreel.store.signature import Signature, wrong_result_signature

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


@dataclass(frozen=True)
class Difference:
    """The first output in which two results differ."""

    kind: str
    output: int
    magnitude: int | None = None
    detail: str = ""

    def signature(self) -> Signature:
        """As the signature of a wrong result."""
        return wrong_result_signature(self.kind, self.output, self.magnitude)

    def __str__(self) -> str:
        return f"value {self.output} differs in its {self.kind}: {self.detail}"


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
    if len(expected) != len(got):
        return Difference("count", min(len(expected), len(got)), None, "more or fewer values")
    exact = reference if reference is not None and len(reference) == len(expected) else None
    for index, (one, other) in enumerate(zip(expected, got, strict=True)):
        found = _compare_one(one, other, index, exact[index] if exact is not None else None)
        if found is not None:
            return found
    return None


def _compare_one(one: object, other: object, index: int, exact: object) -> Difference | None:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        same = type(one) is type(other) and (one == other or one != one)
        return None if same else Difference("values", index, None, f"{one!r} and {other!r}")
    if one.shape != other.shape:
        return Difference("shape", index, None, f"{tuple(one.shape)} and {tuple(other.shape)}")
    if one.dtype != other.dtype:
        return Difference("dtype", index, None, f"{one.dtype} and {other.dtype}")
    return _compare_values(one, other, index, exact)


def _compare_values(
    one: torch.Tensor, other: torch.Tensor, index: int, exact: object
) -> Difference | None:
    if one.numel() == 0:
        return None
    one, other = _plain(one), _plain(other)
    if not (one.is_floating_point() or one.is_complex()):
        wrong = one != other
        error = (one.to(torch.float64) - other.to(torch.float64)).abs().max().item()
        return _difference("values", index, int(wrong.sum()), error) if wrong.any() else None
    # A NaN where there is none in the other is a wrong value like any other: which of the two shows
    # depends on the invented inputs.
    rtol, atol = _TOLERANCE.get(one.dtype, (1e-3, 1e-3))
    close = torch.isclose(other, one, rtol=rtol, atol=atol, equal_nan=True)
    if close.all() or _as_good_as_eager(one, other, exact):
        return None
    return _difference("values", index, int((~close).sum()), _largest(one, other))


def _plain(value: torch.Tensor) -> torch.Tensor:
    value = value.to_dense() if value.layout is not torch.strided else value
    return value.detach().cpu().resolve_conj().resolve_neg()


def _largest(one: torch.Tensor, other: torch.Tensor) -> float:
    wide = torch.complex128 if one.is_complex() else torch.float64
    return float((one.to(wide) - other.to(wide)).abs().nan_to_num(0.0).max().item())


def _as_good_as_eager(one: torch.Tensor, other: torch.Tensor, exact: object) -> bool:
    """Whether the compiled result is hardly further from the exact one than eager's is."""
    if not isinstance(exact, torch.Tensor) or exact.shape != one.shape:
        return False
    eager, compiled = _largest(exact, one), _largest(exact, other)
    return 0 < eager < math.inf and compiled <= _WORSE_THAN_EAGER * eager


def _difference(kind: str, index: int, count: int, error: float | None) -> Difference:
    finite = error is not None and 0 < error < math.inf
    magnitude = math.floor(math.log10(error)) if finite and error is not None else None
    size = f", by up to {error:.3g}" if error is not None else ""
    return Difference(kind, index, magnitude, f"{count} elements{size}")
