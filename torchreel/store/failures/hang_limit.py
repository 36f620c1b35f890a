"""The time limit of a hang: the seconds after which the recording counted a compile as hung.

Lives here: reading this limit from a failure. Not here: the option that overrides it (`RunLimits`).
Called by `minify`, by `export` for the scripts, and by `replay`.
"""

from __future__ import annotations

import re

# For a hang whose recording does not say how long it waited.
_UNKNOWN = 30.0
_SECONDS = re.compile(r"after ([0-9]{1,9}(?:\.[0-9]{1,9})?) s")


def recorded_limit(message: str) -> float:
    """Return the seconds after which a compile counted as hung, by the message of its failure."""
    found = _SECONDS.search(message)
    return float(found[1]) if found is not None else _UNKNOWN
