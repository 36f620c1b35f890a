"""Tells whether an exception comes from the sandbox, and says it in a sentence.

An operation that the sandbox denies fails as one that the system denies: with EPERM or EACCES. The
two can't be told apart, so a confined process takes each for a denial. Then neither a recorded
PermissionError nor one of the sandbox's own can pass for the failure that is looked for.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from torchreel.sandbox.confinement import is_confined

_NUMBERS = (errno.EPERM, errno.EACCES)
# What is raised by C++ code, or says what a compiler printed, has only the text.
_TEXTS = tuple(os.strerror(number) for number in _NUMBERS)
_MOST = 300


def denied(errors: Iterable[BaseException]) -> str:
    """Return a sentence on the first denial by the sandbox among exceptions; '' for none."""
    if not is_confined():
        return ""
    found = (
        denial(
            type(error).__name__, error.errno if isinstance(error, OSError) else None, str(error)
        )
        for error in errors
    )
    return next(filter(None, found), "")


def denial(type_name: str, number: int | None, text: str) -> str:
    """Return a sentence if an exception of a confined process is the sandbox's denial; else ''."""
    if number not in _NUMBERS and not any(known in text for known in _TEXTS):
        return ""
    return (
        f"the sandbox denied what the store's graph led to ({type_name}: "
        f"{' '.join(text.split()):.{_MOST}}). If you trust who made the store, add --trust."
    )
