"""Regular expressions that are compiled when they are first used.

Lives here: `lazy`.  To compile one takes half a millisecond, which the start of every recorded
program would pay fifty times, and hardly any is needed in most.  Used by all of this package.
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
    """A pattern that is compiled when it is first used."""
    return cast(re.Pattern[bytes], _Lazy(pattern, flags))


def lazy_text(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The same for text."""
    return cast(re.Pattern[str], _Lazy(pattern, flags))
