"""The kind of a finding: a path, a name, a secret, a number. For people to sort by, no more."""

from __future__ import annotations

import getpass
import re
import socket
from functools import cache

from torchreel.recorder.redaction.level import Rules
from torchreel.recorder.redaction.redactor import Redactor
from torchreel.sharing.audit.walk import KEY, LINE, Leaf

# A text may have millions of characters: none is looked at twice for the same beginning.
_PATH = re.compile(
    r"(?:^|[\s\"'=(:])(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@+-]|(?<![\w.-])[\w.-]++/[\w.-]++/|\.py\b"
)
_SOURCE = re.compile(
    r"^\s*(?:def|class|import|from|return|if|for|with|@|#)\b|^\s*#|\w\([^()]*+\)|\w = "
)
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MOST = 20_000
"""The number of characters of a text that are looked at: more would only be slower."""


def kind_of(leaf: Leaf) -> str:
    """Return the kind of a finding."""
    if not isinstance(leaf.value, str):
        return "time or process" if leaf.place[-1].endswith(("_ns", "pid", "seconds")) else "number"
    text = leaf.value[:_MOST]
    if _is_secret(text):
        return "secret"
    if leaf.place[0] == "environment":
        return "environment"
    words = set(re.findall(r"[\w.-]+", text))
    if words & _user():
        return "user"
    if words & _host():
        return "host"
    if _PATH.search(text):
        return "path"
    if leaf.place[-1] in ("f", "c") or 'Float("' in text:
        return "number"
    if leaf.place[-1] == LINE and _SOURCE.search(text):
        return "source text"
    return "name" if leaf.place[-1] == KEY or _NAME.fullmatch(text) else "text"


@cache
def _redactor() -> Redactor:
    return Redactor(Rules(), {})


def _is_secret(text: str) -> bool:
    return len(text) >= 12 and _redactor().text(text) != text


@cache
def _user() -> frozenset[str]:
    try:
        return frozenset({getpass.getuser()} - {"root", "user"})
    except (KeyError, OSError):  # no entry in the list of users
        return frozenset()


@cache
def _host() -> frozenset[str]:
    name = socket.gethostname()
    return frozenset({name, name.partition(".")[0]} - {"", "localhost"})
