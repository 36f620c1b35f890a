"""Regular expressions that are compiled when they are first used.

Lives here: `lazy` and `lazy_text`.  To compile one takes up to two milliseconds, which every
recorded program would pay seventy times, and hardly any is needed in most.  Used by modules that a
recorded program imports.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "split", "groups")


class _Lazy:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._made = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._made)
        # From now on these are attributes, and found at once.
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


def lazy(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """Return a pattern that is compiled when it is first used."""
    return cast(re.Pattern[bytes], _Lazy(pattern, flags))


def lazy_text(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return the same for text."""
    return cast(re.Pattern[str], _Lazy(pattern, flags))
