"""Passwords of servers: kept in the memory of this process, apart from the URLs that are shown.

Whatever takes a URL from a user takes it through `hidden`; only who connects, or starts a process
that will, asks for `full`. So no message, address or row of a store can hold one.
"""

from __future__ import annotations

import re

from torchreel.patterns import lazy_text

_known: dict[str, str] = {}
# As SQLAlchemy reads a URL: a password may hold a slash, a name of a user may not.
_OF_USER = lazy_text(r"(?<=://)([^:/@]*):[^@]*@")
_OF_QUERY = lazy_text(r"(?<=[?&])(?:ssl)?password=[^&#]*&?", re.IGNORECASE)


def hidden(target: str) -> str:
    """Return a URL without its password, which `full` then knows; a path as it is."""
    if "://" not in target:
        return target
    shown = _OF_USER.sub(r"\1@", target)
    if "?" in shown:
        shown = _OF_QUERY.sub("", shown).rstrip("?&")
    if shown != target:
        _known[shown] = target
    return shown


def full(target: str) -> str:
    """Return a URL with its password, where this process was given one."""
    return _known.get(target, target)
