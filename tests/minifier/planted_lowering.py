"""A lowering with a bug: importing this module makes Inductor fail on a cosine."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch._inductor.lowering import lowerings

ORIGINAL = lowerings[torch.ops.aten.cos.default]


def broken(*args: Any, **kwargs: Any) -> NoReturn:
    """Instead of the real one."""
    raise NotImplementedError("planted: no lowering of a cosine")


lowerings[torch.ops.aten.cos.default] = broken


def repair() -> None:
    """Put the real one back."""
    lowerings[torch.ops.aten.cos.default] = ORIGINAL


def break_again() -> None:
    """Plant the bug again (the module is imported only once)."""
    lowerings[torch.ops.aten.cos.default] = broken
