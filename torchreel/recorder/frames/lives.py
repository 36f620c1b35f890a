"""The lives of storages in the recorded process, each with a number.

Two tensors of which one came after the other may have had one id, and one address of a storage.
Lives here: what tells them apart.  A weak reference to a storage keeps its address taken, and not
its memory.  One to the tensor itself would be seen by the program: `torch.utils.swap_tensors`
refuses a tensor that has any.
"""

from __future__ import annotations

import itertools
from typing import Any

_BITS = 64
"""Of an id."""
_MOST = 4096
"""Storages that are kept before those that are gone are looked for, at first."""


class _Lives:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}
        """By address: torch's weak reference, and the number."""
        self._numbers = itertools.count(1)
        self._most = _MOST

    def of(self, tensor: Any) -> int:
        """Return the number of the life of a tensor's storage; 0 where it has none."""
        import torch
        from torch.multiprocessing import reductions

        from torchreel.torch_compat.tensors.fake_tensors import storage_of

        storage = storage_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if storage is None:
            return 0
        found = self._known.get(storage[0])
        if found is None:
            self._forget()
            weak: Any = reductions.StorageWeakRef
            found = self._known[storage[0]] = (
                weak(torch.Tensor.untyped_storage(tensor)),
                next(self._numbers),
            )
        return found[1]

    def _forget(self) -> None:
        """Let go of the storages that are gone, once there are many."""
        if len(self._known) >= self._most:
            known = [*self._known.items()]
            self._known = {key: item for key, item in known if not item[0].expired()}
            self._most = max(_MOST, 2 * len(self._known))


_lives = _Lives()


def token(tensor: object) -> int:
    """Return a number that no other object of the process has had as a tensor of its storage.

    A parameter's is its id: it may get another storage (`parameter.data = ...`), and lives as long
    as its module.
    """
    import torch

    life = 0 if isinstance(tensor, torch.nn.Parameter) else _lives.of(tensor)
    return id(tensor) | life << _BITS
