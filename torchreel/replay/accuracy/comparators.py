"""The names of comparators, without torch: what a command line and a stored case may say.

What each does is in `comparison`.
"""

from __future__ import annotations

import re

from torchreel.errors import UsageError

DEFAULT = "default"
BY_UP_TO = "by up to"
"""Stands in the description of numbers that differ, before the largest difference."""
_CLOSE = re.compile(r"close\(\s*(\d[\d.eE+-]*)\s*,\s*(\d[\d.eE+-]*)\s*\)")
_USERS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def tolerances(text: str) -> tuple[float, float] | None:
    """RTOL and ATOL of `close(RTOL, ATOL)`; None for any other comparator.

    Raises UsageError for what is no comparator.
    """
    if text in (DEFAULT, "exact", "layout") or _USERS.fullmatch(text):
        return None
    if match := _CLOSE.fullmatch(text):
        return float(match[1]), float(match[2])
    raise UsageError(
        f"There is no comparator {text!r:.80}: use default, close(RTOL, ATOL), exact, layout, or "
        "MODULE:FUNCTION with --import MODULE."
    )
