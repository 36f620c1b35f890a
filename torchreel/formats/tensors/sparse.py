"""Sparse tensors as data: what describes one besides its sizes, and one made of that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json

_BLOCKS = (torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, *_BLOCKS)
_MOST = 1 << 24
"""Elements of a dense tensor that a sparse one is made of, at most."""


def describe(tensor: torch.Tensor) -> dict[str, Json]:
    """Return the dimensions that are dense, and the sizes of the blocks; nothing of the values."""
    if tensor.layout not in LAYOUTS:
        return {}
    found: dict[str, Json] = {"dense_dim": tensor.dense_dim()}
    if tensor.layout in _BLOCKS:
        found["blocks"] = list(tensor.values().shape[tensor.values().dim() - 2 :])
    return found


def options_of(description: Mapping[str, Json], size: Sequence[int]) -> dict[str, Any]:
    """Return the arguments of `to_sparse` that make such a tensor of a dense one of its size.

    Raises UnsupportedError where the description does not say enough, or that would be too large.
    """
    if math.prod(size) > _MOST:
        raise UnsupportedError(f"a sparse tensor of size {list(size)} is too large to be made")
    layout = getattr(torch, str(description.get("layout")), None)
    dims, blocks = description.get("dense_dim"), description.get("blocks")
    if layout not in LAYOUTS or not isinstance(dims, int):
        raise UnsupportedError(
            f"no {description.get('layout')!s:.60} tensor can be made of what was recorded of it"
        )
    if layout is torch.sparse_coo:
        return {"sparse_dim": len(size) - dims}
    options: dict[str, Any] = {"layout": layout, "dense_dim": dims}
    if isinstance(blocks, list):
        options["blocksize"] = tuple(size for size in blocks if type(size) is int)
    return options


def make(description: Mapping[str, Json], dense: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor as it is described, made of a dense one of its size.

    Raises UnsupportedError where that can't be.
    """
    options = options_of(description, dense.shape)
    sparse_dim = options.pop("sparse_dim", None)
    try:
        return dense.to_sparse(sparse_dim) if sparse_dim is not None else dense.to_sparse(**options)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        layout = description.get("layout")
        raise UnsupportedError(f"no {layout!s:.60} tensor can be made: {error!s:.200}") from error
