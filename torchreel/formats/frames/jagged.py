"""Jagged tensors in frame bundles, of which the number of rows and their whole length are kept.

Where rows begin are values, which are not kept: a replay has rows of about the same length.  What
Dynamo sees is kept: the numbers of the lengths, and what a tensor is a view of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.formats.tensors.synthetic import with_autograd
from torchreel.torch_compat.tensors import fake_tensors, jagged

REFUSED = (
    "the frame has a jagged tensor of a form that can't be made again: where its rows begin are "
    "values, which were not kept, and Dynamo sees how it was made; replay it with --entry graph"
)


def taken_apart(tensor: Any) -> tuple[Any, ...]:
    """Return the arguments of `made` for a jagged tensor, with the dense tensor below it."""
    names, _ = tensor.__tensor_flatten__()
    parts = {name: getattr(tensor, name) for name in names}
    dimension, base = jagged.layout_of(tensor)
    values = parts.pop("_values")
    form, swapped = _form(values, base)
    number = None if fake_tensors.is_fake(parts["_offsets"]) else jagged.row_length(tensor)
    autograd: dict[str, Any] = {"requires_grad": tensor.requires_grad, "leaf": tensor.is_leaf}
    autograd["creation"] = fake_tensors.creation_of_view(tensor) if tensor._is_view() else ""
    numbers = {"row_length": number, "next": jagged.next_row_length()}
    below = {"view": values, "detached": base, "transposed": base}.get(form)
    return form, below, parts, dimension, {**numbers, "swapped": swapped}, autograd


def _form(values: torch.Tensor, base: torch.Tensor | None) -> tuple[str, tuple[int, int] | None]:
    """Return how a jagged tensor relates to the dense one that it is a view of.

    It is a 'view' of its own values, 'detached' from one, as `torch.nested.nested_tensor` is, or
    'transposed', with the two dimensions of the values that are exchanged; '' for any other.
    """
    if base is values:
        return "view", None
    if base is None or base.dim() != values.dim():
        return "", None
    if _place(base) == _place(values):
        return "detached", None
    for pair in itertools.combinations(range(base.dim()), 2):
        if _place(base.transpose(*pair)) == _place(values):
            return "transposed", pair
    return "", None


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def made(
    form: str,
    below: torch.Tensor | None,
    parts: Mapping[str, torch.Tensor],
    dimension: int,
    numbers: Mapping[str, Any],
    autograd: Mapping[str, Any],
) -> torch.Tensor:
    """Return a jagged tensor over the dense one below it.

    Raises UnsupportedError for a form that can't be made again.
    """
    number = numbers["row_length"]
    if below is None or number is None:
        raise UnsupportedError(REFUSED)
    pair = tuple(one + 1 for one in numbers["swapped"]) if form == "transposed" else ()
    if pair and dimension in pair:  # the rows lay in the other one before
        dimension = sum(pair) - dimension
    _spread(below.shape[dimension - 1], parts)
    with torch.set_grad_enabled(form != "detached" and not autograd["leaf"]):
        found = jagged.view(below, parts, dimension, number)
        found = found.transpose(*pair) if pair else found
    found = with_autograd(found.detach() if form == "detached" else found, autograd)
    if autograd["creation"]:
        fake_tensors.set_creation_of_view(found, autograd["creation"])
    jagged.set_next_row_length(int(numbers["next"] or 0))
    return found


def _spread(whole: int, parts: Mapping[str, torch.Tensor]) -> None:
    """Let rows begin in even distances."""
    with torch.no_grad():
        offsets = parts["_offsets"]
        count = max(offsets.numel() - 1, 1)
        places = [whole * row // count for row in range(offsets.numel())]
        offsets.copy_(torch.tensor(places, dtype=offsets.dtype))
        if (lengths := parts.get("_lengths")) is not None:
            lengths.copy_(offsets.diff())
