"""The table of comparators, without torch: what a command line and a stored case may say.

Lives here: their names, what each says, and how a script says it. Not here: what each does to two
tensors (`comparison`). Whoever has to know of a comparator asks this table: the command line, the
export, `share`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchreel.errors import UnsupportedError, UsageError

Tolerances: TypeAlias = tuple[float, float]
"""RTOL and ATOL, as `torch.testing.assert_close` takes them."""
InScript: TypeAlias = Tolerances | Literal["by dtype"]
"""The tolerances of a script; by dtype: those of what is returned, more for a less exact dtype."""


@dataclass(frozen=True)
class Comparator:
    """A rule by which two tensors differ."""

    differ_when: str
    """The end of the sentence "values differ when ..."."""
    in_script: InScript | None
    """The tolerances with which a script says the same; None if a script cannot say it."""
    of: str = ""
    """The function of torch that a script applies to each tensor before, as `torch.sign`."""
    is_users: bool = False
    """True for a function of the user's program: a script calls it for the values, and has the
    tolerances for all else."""


DEFAULT = "default"
BY_UP_TO = "by up to"
"""Stands in the description of numbers that differ, before the largest difference."""
COMPARATORS = {
    DEFAULT: Comparator("they are further apart than rounding explains", "by dtype"),
    "exact": Comparator("any bit does, but that of a NaN", (0.0, 0.0)),
    "layout": Comparator("never: only the rest counts", "by dtype"),
}
"""The comparators that are a name alone. Besides these there are two patterns."""
_CLOSE = re.compile(r"close\(\s*(\d[\d.eE+-]*)\s*,\s*(\d[\d.eE+-]*)\s*\)")
_USERS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
FORMS = ", ".join(["close(RTOL, ATOL)", *COMPARATORS]) + ", or MODULE:FUNCTION"
"""The ways to name a comparator, for people."""


def comparator(text: str) -> Comparator:
    """Return the comparator of that name. Raises UsageError for what is no comparator."""
    if text in COMPARATORS:
        return COMPARATORS[text]
    if match := _CLOSE.fullmatch(text):
        return Comparator("they are further apart than that", (float(match[1]), float(match[2])))
    if _USERS.fullmatch(text):
        return Comparator("the function says so of two tensors", "by dtype", is_users=True)
    raise UsageError(f"There is no comparator {text!r:.80}: use {FORMS} with --import MODULE.")


def in_script(text: str) -> tuple[InScript, str]:
    """Return the tolerances of a comparator in a script, and what is applied to each tensor before.

    Raises UnsupportedError for a comparator that a script cannot express.
    """
    found = comparator(text)
    if found.in_script is None:
        raise UnsupportedError(f"a script has no form for the comparator {text!r:.80}")
    return found.in_script, found.of
