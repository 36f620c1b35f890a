"""Puts members of modules and classes in place that the program had put there.

Lives here: doing so, and taking them out again for the next frame.  Not here: finding them
(`torchreel.recorder.frames.patches`).  They are code of the program's: only with trust.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchreel.recorder.frames.patches import Patch

_MISSING = object()
_before: list[tuple[Any, str, object]] = []
"""The members that the patches in force stand in place of."""


def put(found: Iterable[Patch]) -> None:
    """Put these in place, of those before none.

    Members that this process has just like that stay as they are.
    """
    changed = bool(_before)
    while _before:
        owner, name, value = _before.pop()
        if value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    for owner, name, value in found:
        old = vars(owner).get(name, _MISSING)
        if not _is_alike(old, value):
            _before.append((owner, name, old))
            setattr(owner, name, value)
    if changed or _before:
        from torchreel.torch_compat import dynamo  # with torch, which the parent does without

        dynamo.read_rules_again()


def _is_alike(old: object, new: object) -> bool:
    """Return True for the same object, and for functions that are made by the same code."""
    if old is new:
        return True
    codes = [_code(one) for one in (old, new)]
    return type(old) is type(new) and codes[0] is not None and codes[0] == codes[1]


def _code(value: object) -> object:
    function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    return getattr(function, "__code__", None)
