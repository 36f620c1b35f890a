"""Compares the results of a compiled graph with eager's.

Lives here: flattening of results, what kinds of differences there are, and the comparators, which
say when two tensors differ. Not here: what is run, and what rounding is (`rounding`). Called by the
replay of a wrong result and by the minifier's oracle.

A comparator is named by a short text, which is kept with a case: `comparators` has the table. A
user's MODULE:FUNCTION is called with (expected, got), two tensors; true means that they differ.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch.utils import _pytree as pytree

from torchreel.errors import UsageError
from torchreel.replay.accuracy import comparators
from torchreel.replay.accuracy.comparators import BY_UP_TO, DEFAULT
from torchreel.replay.accuracy.rounding import (
    NO_EVIDENCE,
    Evidence,
    at,
    beyond_rounding,
    is_close,
    largest_error,
    plain,
    unequal,
)
from torchreel.store.failures.signature import Signature, wrong_result_signature

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
        """Return it as the signature of a wrong result."""
        return wrong_result_signature(self.kind, self.output, self.magnitude)

    def __str__(self) -> str:
        return f"value {self.output} differs in its {self.kind}: {self.detail}"


def tensors_of(result: object) -> list[object]:
    """Return the leaves of a result, gradients detached."""
    return [
        leaf.detach() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(result)
    ]


def compare(
    expected: Sequence[object], got: Sequence[object], reference: Sequence[object] | None = None
) -> Difference | None:
    """Return the first difference between eager's values and the compiled ones; None if there is
    none.

    `reference` are eager's values computed in float64, where that was possible.
    """
    found = differences(expected, got, Evidence(exact=reference))
    return found[0] if found else None


def differences(
    expected: Sequence[object],
    got: Sequence[object],
    evidence: Evidence = NO_EVIDENCE,
    comparator: str = DEFAULT,
    imports: Collection[str] = (),
) -> list[Difference]:
    """Return all differences in what was computed, the most telling kind first, then by output.

    `imports` are the modules that a function of the user's may be of.  Raises UsageError for a
    comparator that does not exist, UnsupportedError for a function of another module.  Subclasses
    are compared by what they hold: eager's and the compiled one's may be of two runs' classes, and
    know nothing of each other.
    """
    differ = _comparator(comparator, imports)
    if len(expected) != len(got):
        return [Difference("count", min(len(expected), len(got)), None, "more or fewer values")]
    found = []
    with torch._C.DisableTorchFunctionSubclass():
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            difference = _compare_one(one, other, index, evidence, differ)
            found += [difference] if difference is not None else []
    return sorted(found, key=lambda item: (_KINDS.index(item.kind), item.output))


def arbitrary_values(expected: Sequence[object], evidence: Evidence) -> list[int]:
    """Return the numbers of the results whose values depend on uninitialised memory.

    Their sizes, strides and dtypes are compared, and of their values only what does not.
    """
    found = []
    for index, one in enumerate(expected):
        again = at(evidence.repoisoned, index, one) if isinstance(one, torch.Tensor) else None
        if again is not None and isinstance(one, torch.Tensor) and unequal(plain(one), again).any():
            found.append(index)
    return found


def layout_differences(
    inputs: Sequence[Sequence[object]], expected: Sequence[object], got: Sequence[object]
) -> list[Difference]:
    """Return differences in strides, and in which inputs the outputs share memory with.

    `inputs` are those of eager and those of the compiled code, after the call.
    """
    found = []
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        if one.shape == other.shape and observable_strides(one) != observable_strides(other):
            found.append(Difference("stride", index, None, f"{one.stride()} and {other.stride()}"))
        shared, others = _shared(one, inputs[0]), _shared(other, inputs[1])
        if shared != others:
            found.append(Difference("aliasing", index, None, _sharing_text(shared, others)))
    return sorted(found, key=lambda item: (_KINDS.index(item.kind), item.output))


def identity_differences(expected: object, got: object) -> list[Difference]:
    """Return the outputs that alias an earlier output in one result only.

    Two outputs alias if they share memory or are one object. One difference is allowed: eager mode
    returns one object twice, and the compiled code two objects that share memory. The reverse is
    reported, because a later `resize_` or `requires_grad_` of one output would then change the
    other.
    """
    one, other = (pytree.tree_leaves(result) for result in (expected, got))
    found = []
    for index, pairs in enumerate(zip(one, other, strict=False)):
        for before, earlier in enumerate(zip(one[:index], other[:index], strict=False)):
            ours, theirs = (_relation(a, b) for a, b in zip(pairs, earlier, strict=True))
            if ours != theirs and (ours, theirs) != (_SAME, _SHARING):
                text = f"{ours} value {before} in eager mode, {theirs} it compiled"
                found.append(Difference("aliasing", index, None, text))
    return found


_SAME, _SHARING, _APART = "is", "shares memory with", "is apart from"


def _relation(one: object, other: object) -> str:
    if not _has_memory(one) or not _has_memory(other):
        return _APART
    if one is other:
        return _SAME
    same = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return _SHARING if same else _APART


def _has_memory(value: object) -> TypeGuard[torch.Tensor]:
    tensor = isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter)
    return tensor and value.layout is torch.strided and value.numel() > 0  # type: ignore[attr-defined]


def observable_strides(value: torch.Tensor) -> list[int] | None:
    """Return the strides that a program can notice, without dimensions of one element or none."""
    if value.layout is not torch.strided or value.numel() == 0:
        return None
    return [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]


def _shared(value: torch.Tensor, inputs: Sequence[object]) -> int | None:
    """Return the first input whose memory a tensor lies in."""
    if value.layout is not torch.strided or value.numel() == 0:
        return None
    place = value.untyped_storage().data_ptr()
    for index, given in enumerate(inputs):
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            continue
        if given.numel() and given.untyped_storage().data_ptr() == place != 0:
            return index
    return None


def _sharing_text(one: int | None, other: int | None) -> str:
    def memory(index: int | None) -> str:
        return "memory of its own" if index is None else f"the memory of input {index}"

    return f"{memory(one)} and {memory(other)}"


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
    again = at(evidence.repoisoned, index, one)
    if again is not None:  # what depends on uninitialised memory is compared with nothing
        other = torch.where(unequal(one, again), one, other)
    wrong = differ(one, other, index, evidence)
    if isinstance(wrong, bool):
        wrong = unequal(one, other) if wrong else torch.zeros(1, dtype=torch.bool)
    if not wrong.any():
        return None
    return _difference("values", index, int(wrong.sum()), largest_error(one, other))


DIFFER: dict[str, _Differ] = {
    DEFAULT: beyond_rounding,
    "exact": lambda one, other, index, evidence: unequal(one, other),
    "layout": lambda one, other, index, evidence: False,
}
"""True where two tensors differ, by the names of `comparators.COMPARATORS`."""


def _comparator(text: str, imports: Collection[str]) -> _Differ:
    """Return the function of a comparator."""
    found = comparators.comparator(text)
    if found.is_users:
        return _of_user(text, imports)
    if text not in DIFFER and isinstance(found.in_script, tuple) and not found.of:
        rtol, atol = found.in_script
        return lambda one, other, index, evidence: ~is_close(one, other, rtol, atol)
    return DIFFER[text]


def _of_user(text: str, imports: Collection[str]) -> _Differ:
    """Return a function of a module that the user has had imported; nothing is imported here."""
    module, name = comparators.users_function(text, imports)
    function = getattr(sys.modules.get(module), name, None)
    if not callable(function):
        raise UsageError(
            f"The comparator {text!r:.80} is not there: name {module!r} with --import."
        )
    return lambda one, other, index, evidence: bool(function(one, other))


def _difference(kind: str, index: int, count: int, error: float) -> Difference:
    finite = 0 < error < math.inf
    magnitude = math.floor(math.log10(error)) if finite else None
    return Difference(kind, index, magnitude, f"{count} elements, {BY_UP_TO} {error:.3g}")
