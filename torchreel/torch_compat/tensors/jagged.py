"""Jagged tensors: rows of different lengths over one dense tensor, and the numbers of the lengths.

Lives here: `torch.nested._internal`.  Each tensor of offsets (or lengths) has a length of rows of
its own, which torch numbers in the order in which they come to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def is_jagged(cls: type) -> bool:
    """Return True for the class of jagged tensors, whose rows differ in length."""
    from torch.nested._internal.nested_tensor import NestedTensor

    return issubclass(cls, NestedTensor)


def next_row_length() -> int:
    """Return the number that the next length of rows of this process gets."""
    from torch.nested._internal import nested_tensor

    return int(nested_tensor._tensor_id_counter)


def set_next_row_length(number: int) -> None:
    """Have the lengths of rows of this process numbered from here on."""
    from torch.nested._internal import nested_tensor

    nested_tensor._tensor_id_counter = number


def row_length(tensor: Any) -> int | None:
    """Return the number of a jagged tensor's length of rows; None for one that is symbolic."""
    size = tensor._size[tensor._ragged_idx]
    return size.node.nested_int() if isinstance(size, torch.SymInt) else None


def layout_of(tensor: Any) -> tuple[int, torch.Tensor | None]:
    """Return the dimension in which the rows differ, and the dense tensor that it is a view of."""
    return tensor._ragged_idx, tensor._base


def view(
    values: torch.Tensor, parts: Mapping[str, torch.Tensor], dimension: int, number: int
) -> torch.Tensor:
    """Return a jagged view of `values`, with these offsets and lengths, as rows of one length.

    `parts` are those of `NestedTensor.__tensor_flatten__`; `number` is that of the length.
    """
    from torch.nested._internal import nested_tensor
    from torch.nested._internal.nested_int import NestedIntNode

    offsets, lengths = parts["_offsets"], parts.get("_lengths")
    source = offsets if lengths is None else lengths
    known: Any = nested_tensor._tensor_symint_registry
    if known.get(source) is None:
        make: Any = torch.SymInt
        known[source] = make(NestedIntNode(number, 1))
    found: torch.Tensor = torch._nested_view_from_jagged(
        values, offsets, nested_tensor._nt_view_dummy(), lengths, dimension,
        parts.get("_min_seqlen_tensor"), parts.get("_max_seqlen_tensor"),
    )  # fmt: skip
    return found
