"""The process group of a program, and one without communication in its place.

Lives here: the world of a distributed program as two numbers, and the fake process group of torch's
own tests.  Not here: DTensor and other wrappers (`formats.tensors`).
"""

from __future__ import annotations

import sys
from typing import Any

import torch


def world() -> list[int] | None:
    """Return the rank of this process and the number of ranks; None without a process group."""
    found: Any = sys.modules.get("torch.distributed")
    if found is None or not found.is_available() or not found.is_initialized():
        return None
    return [found.get_rank(), found.get_world_size()]


def impose_world(rank: int, size: int) -> None:
    """Make a default process group that sends nothing, where this process has none.

    What is traced with it is what any other group would have traced, for a compile runs no
    collective.  Raises ValueError for a rank that is none of `size`.
    """
    if not torch.distributed.is_available() or torch.distributed.is_initialized():
        return
    # Registers the backend 'fake'.
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
