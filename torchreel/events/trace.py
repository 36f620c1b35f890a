"""Events of what torch's own trace had said before the recording."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import EventType, Nest


class TraceStrings(EventType, frozen=True):
    """File names that torch's trace had numbered before this recording began."""

    kind = "trace.strings"

    names: Sequence[Nest]
    """Pairs of name and number, as records of kind `str` have them."""
