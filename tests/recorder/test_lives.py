"""Tokens of tensors: what tells two apart that had one address, one after the other."""

from __future__ import annotations

import gc
import weakref

import torch

from torchreel.recorder.frames import lives


def test_a_tensor_has_one_token_while_it_lives() -> None:
    """Also once other tensors of its storage are there, which have others."""
    tensor = torch.ones(6, 6)
    first, view = lives.token(tensor), tensor[:2]
    assert lives.token(view) != first
    assert lives.token(tensor) == first


def test_a_tensor_at_the_address_of_one_that_is_gone_has_a_token_of_its_own() -> None:
    """An allocator gives the same address again at once, of the object and of the storage."""
    tokens, ids = set(), set()
    for _ in range(100):
        tensor = torch.ones(6, 6)
        tokens.add(lives.token(tensor))
        ids.add(id(tensor))
        del tensor
    assert len(tokens) == 100
    assert len(ids) < 100


def test_a_token_holds_neither_the_tensor_nor_its_memory() -> None:
    """It leaves no weak reference on the tensor either, which `swap_tensors` would refuse."""
    one, other = torch.ones(2), torch.zeros(2)
    assert lives.token(one) != lives.token(other)
    torch.utils.swap_tensors(one, other)
    watched = weakref.ref(one)
    storage = torch.multiprocessing.reductions.StorageWeakRef(one.untyped_storage())
    del one
    gc.collect()
    assert watched() is None
    assert storage.expired()


def test_storages_that_are_gone_are_let_go_of() -> None:
    """A long run has more tensors than the table may keep."""
    known = lives._Lives()
    held = [torch.ones(1) for _ in range(10)]
    numbers = [known.of(tensor) for tensor in held]
    for _ in range(2 * lives._MOST):
        known.of(torch.ones(1))
    assert len(known._known) <= lives._MOST + 1
    assert [known.of(tensor) for tensor in held] == numbers


def test_tensors_without_a_storage_have_their_ids() -> None:
    """A sparse tensor, and what is no tensor."""
    sparse = torch.eye(3).to_sparse()
    assert [lives.token(sparse), lives.token([])] != [0, 0]
    assert lives.token(sparse) == id(sparse)
