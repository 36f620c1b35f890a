"""Puts members of modules and classes in place that the program had put there.

Lives here: doing so, and taking them out again for the next frame.  Not here: finding them
(`torchreel.recorder.frames.patches`).  They are code of the program's: only with trust.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from torchreel.recorder.frames.patches import CONSTANTS, Patch, state_of

_MISSING = object()
_DEEPEST = 8
"""Functions within the closures of functions, at most."""
_before: list[Patch] = []
"""The members that the patches in force stand in place of."""


def take_out() -> None:
    """Have all members as they were before any patch: the next frame is loaded with these."""
    ruled = any(patch.ruled for patch in _before)
    while _before:
        owner, name, value, _ = _before.pop()
        _set(owner, name, value)
    if ruled:
        _read_rules_again()


def put(found: Iterable[Patch]) -> list[str]:
    """Put these in place; return the names of those that can't be set.

    Members that this process has just like that stay as they are.
    """
    take_out()
    refused = []
    for patch in found:
        owner, name, value, ruled = patch
        old = state_of(owner).get(name, _MISSING)
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


def _set(owner: Any, name: str, value: object) -> None:
    """Set a member, past what a metaclass does about that."""
    kind = type if isinstance(owner, type) else object
    if value is not _MISSING:
        kind.__setattr__(owner, name, value)
        return
    with contextlib.suppress(AttributeError):
        kind.__delattr__(owner, name)


def _read_rules_again() -> None:
    from torchreel.torch_compat import dynamo  # with torch, which the parent does without

    dynamo.read_rules_again()


def _is_alike(old: object, new: object, depth: int = 0) -> bool:
    """Return True for the same object or constant, and for functions that are the same.

    So are those that a decorator of a library makes anew in each process, with what they hold.
    """
    if old is new or (type(old) is type(new) and type(new) in CONSTANTS and old == new):
        return True
    if type(old) is not type(new) or depth > _DEEPEST:
        return False
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
