"""The settings of redaction, and the marks that replace what was taken out.

Lives here: `Rules` and the levels.  Not here: what a level takes out (`redactor`, `strict`; the
table is in docs/redaction.md).  Used by the settings of a recording and by all of this package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchreel.errors import UsageError

MODES = ("default", "all", "none")
REDACTED = b"<redacted>"
HOME = b"~"
PATH = b"<path>"


class Withheld(ValueError):
    """Bytes that are no text hold a secret: they are not stored."""


@dataclass(frozen=True)
class Rules:
    """The level of redaction (one of `MODES`), and the user's own regular expressions."""

    mode: str = "default"
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(
                f"There is no redaction {self.mode!r}: use {', '.join(MODES[:-1])} or {MODES[-1]}."
            )
        for pattern in self.patterns:
            try:
                re.compile(pattern.encode())
            except re.error as error:
                raise UsageError(f"{pattern!r} is no regular expression: {error}.") from error
