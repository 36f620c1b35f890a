"""Sparse tensors are described without their values, and made again in the same layout."""

from __future__ import annotations

import pytest
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats.tensors import sparse
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.synthetic import synthesise

DENSE = torch.eye(4)
TENSORS = {
    "coo": DENSE.to_sparse(),
    "coo, a dense dimension": torch.rand(4, 3, 2).to_sparse(2),
    "csr": DENSE.to_sparse_csr(),
    "csc": DENSE.to_sparse_csc(),
    "csr, batches": torch.ones(3, 4, 4).to_sparse_csr(),
    "bsr": DENSE.to_sparse_bsr((2, 2)),
    "bsc": DENSE.to_sparse_bsc((2, 1)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_sparse_tensor_is_made_again(name: str) -> None:
    given = TENSORS[name]
    description = Encoder().describe(given)
    assert isinstance(description, dict)
    assert not {"data", "values", "indices"} & set(description)
    made = synthesise(description, seed=0, hints={}, table={})
    assert isinstance(made, torch.Tensor)
    for found in (made, given):
        assert found.layout is given.layout
    assert (made.shape, made.dtype, made.dense_dim()) == (
        given.shape,
        given.dtype,
        given.dense_dim(),
    )
    assert sparse.describe(made) == sparse.describe(given)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": "sparse_nonsense"}, {"layout": "_mkldnn"}, {"dense_dim": "1"},
        {"dense_dim": -4}, {"dense_dim": 9}, {"size": [1 << 20, 1 << 20]}, {"blocks": [0, "x"]},
        {"layout": "sparse_bsr"},
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused(change: dict[str, object]) -> None:
    description = Encoder().describe(TENSORS["bsr"])
    assert isinstance(description, dict)
    with pytest.raises(UnsupportedError):
        synthesise(
            {**description, "blocks": None, **change},  # type: ignore[dict-item]
            seed=0, hints={}, table={},
        )  # fmt: skip
