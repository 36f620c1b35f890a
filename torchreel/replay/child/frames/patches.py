"""Puts members of modules and classes in place that the program had put there.

Lives here: doing so, and taking them out again for the next frame.  Not here: finding them
(`torchreel.recorder.frames.patches`).  They are code of the program's: only with trust.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from torchreel.recorder.frames.patches import CONSTANTS, Patch, state_of

_MISSING = object()
_DEEPEST = 8
"""Functions within the closures of functions, at most."""
_DATA = vars(os.environ)["_data"]
"""The variables of the environment, as Dynamo finds them."""
_before: list[Patch] = []
"""The members that the patches in force stand in place of."""
_undo: list[Callable[[], None]] = []
"""Functions that have containers of modules as they were."""


def take_out() -> None:
    """Have all members as they were before any patch: the next frame is loaded with these."""
    ruled = any(patch.ruled for patch in _before)
    while _before:
        owner, name, value, _ = _before.pop()
        _set(owner, name, value)
    while _undo:
        _undo.pop()()
    if ruled:
        _read_rules_again()


def undo_later(function: Callable[[], None]) -> None:
    """Call a function before the next frame is loaded."""
    _undo.append(function)


def is_like(owner: object, name: str, kind: str) -> bool:
    """Return True if an owner has an object of a type, by its name, which then stays.

    Others may refer to it, and what Dynamo read of it is kept by itself: so it has to have members,
    which a dtype has not, and be no member of an enumeration.
    """
    found = state_of(owner).get(name, _MISSING)
    if isinstance(found, (tuple, frozenset, Enum)) or _is_tensor(found) or not state_of(found):
        return False
    return _name_of(type(found)) == kind


def _is_tensor(value: object) -> bool:
    return "torch.Tensor" in map(_name_of, type(value).__mro__)


def _layout(tensor: Any) -> tuple[object, ...]:
    return (
        tensor.shape, tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad,
        tensor.stride() if "strided" in str(tensor.layout) else (),
    )  # fmt: skip


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def put(found: Iterable[Patch]) -> list[str]:
    """Put these in place; return the names of those that can't be set.

    Members that this process has just like that stay as they are.
    """
    refused = []
    for patch in found:
        owner, name, value, ruled = patch
        old = _get(owner, name)
        if _is_alike(old, value):
            continue
        try:
            _set(owner, name, value)
        except (AttributeError, TypeError):
            refused.append(name)
        else:
            _before.append(Patch(owner, name, old, ruled))
    if any(patch.ruled for patch in _before):
        _read_rules_again()
    return refused


def _get(owner: Any, name: str) -> object:
    return (os.environ if owner is _DATA else state_of(owner)).get(name, _MISSING)


def _set(owner: Any, name: str, value: object) -> None:
    """Set a member, past what a metaclass does about that, or a variable of the environment."""
    if owner is _DATA or type(owner) is threading.local:
        held: Any = os.environ if owner is _DATA else vars(owner)
        if value is _MISSING or (value is None and owner is _DATA):
            held.pop(name, None)
        else:
            held[name] = value
        return
    kind = type if isinstance(owner, type) else object
    if value is not _MISSING:
        kind.__setattr__(owner, name, value)
        return
    with contextlib.suppress(AttributeError):
        kind.__delattr__(owner, name)


def _read_rules_again() -> None:
    from torchreel.torch_compat.dynamo import rules

    rules.read_rules_again()


def _is_alike(old: object, new: object, depth: int = 0) -> bool:
    """Return True for the same object or constant, and for functions that are the same.

    So are those that a decorator of a library makes anew in each process, with what they hold.
    """
    if old is new or (type(old) is type(new) and type(new) in CONSTANTS and old == new):
        return True
    if type(old) is not type(new) or depth > _DEEPEST:
        return False
    if _is_tensor(new) and depth == 0:  # a module's own; in a function its identity counts
        return _layout(old) == _layout(new)
    if isinstance(old, tuple) and isinstance(new, tuple):
        pairs = zip(old, new, strict=False)
        return len(old) == len(new) and all(_is_alike(*pair, depth + 1) for pair in pairs)
    ours, theirs = _function(old), _function(new)
    if ours is None or theirs is None or ours.__code__ != theirs.__code__:
        return False
    return _is_alike(_held(ours), _held(theirs), depth + 1)


def _held(function: Any) -> tuple[object, ...]:
    """Return the contents of a function's closure (of an empty cell, nothing) and its defaults.

    An array among them may not be asked whether it equals another.
    """
    cells = (getattr(cell, "cell_contents", _MISSING) for cell in function.__closure__ or ())
    named = tuple(sorted((function.__kwdefaults__ or {}).items()))
    return (*cells, function.__defaults__, named)


def _function(value: object) -> Any:
    function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    return function if hasattr(function, "__code__") else None
