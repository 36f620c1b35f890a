"""Optimizers, and how torch changes their classes.

Lives here: telling one, and the wrapper around its `step`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def is_optimizer(obj: object) -> bool:
    """Return True for an optimizer of torch, also one of a class of the program's."""
    found: Any = sys.modules.get("torch.optim.optimizer")
    return found is not None and issubclass(type(obj), found.Optimizer)


def wrapped_steps(cls: type) -> list[int]:
    """Return the places, among the bases of a class, of those whose own `step` torch has wrapped.

    The `__init__` of an optimizer wraps that of its class; a class of the program's may not have
    called it, and a base is wrapped where there was an optimizer of its own.
    """
    bases = type.__getattribute__(cls, "__mro__")
    return [at for at, base in enumerate(bases) if _is_wrapped(base)]


def wrap_steps(cls: type, places: Sequence[int]) -> None:
    """Put torch's wrapper around the `step` of these bases of a class, where there is none yet.

    Dynamo traces the wrapper with the step, and breaks the graph there under some versions.
    """
    from torch.optim import Optimizer

    for base in [cls.__mro__[at] for at in sorted(places, reverse=True)]:
        if not _is_wrapped(base):
            base.step = Optimizer.profile_hook_step(base.step)  # type: ignore[attr-defined]
            base.step.hooked = True  # type: ignore[attr-defined]


def _is_wrapped(cls: type) -> bool:
    return bool(getattr(vars(cls).get("step"), "hooked", False))
