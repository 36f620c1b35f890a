"""Optimizers, and how torch changes their classes.

Lives here: telling one, and the wrapper around its `step`.
"""

from __future__ import annotations

import sys
from typing import Any


def is_optimizer(obj: object) -> bool:
    """Return True for an optimizer of torch, also one of a class of the program's."""
    found: Any = sys.modules.get("torch.optim.optimizer")
    return found is not None and issubclass(type(obj), found.Optimizer)


def has_wrapped_step(cls: type) -> bool:
    """Return True if torch has put its wrapper around the `step` of a class of optimizers.

    The `__init__` of an optimizer does; a class of the program's may not have called it.
    """
    classes = type.__getattribute__(cls, "__mro__")
    steps = (vars(base)["step"] for base in classes if "step" in vars(base))
    return bool(getattr(next(steps, None), "hooked", False))


def wrap_step(optimizer: Any) -> None:
    """Put torch's wrapper around the `step` of an optimizer's class, if there is none yet.

    Dynamo traces the wrapper with the step, and breaks the graph there under some versions.
    """
    optimizer._patch_step_function()
