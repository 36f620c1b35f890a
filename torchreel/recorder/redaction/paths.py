"""Redacts home directories, and the user's name in paths.

Lives here: the rules for them, and replacing them in a text or in the text of a JSON document.
Hardly a document is without paths: unlike all other rules these work on the bytes as they are, also
between the escapes of JSON, and touch nothing that is JSON's own.  Called by `redactor`.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping
from functools import cache

from torchreel.patterns import lazy
from torchreel.recorder.redaction.level import HOME

Rule = tuple[bytes, bytes]
"""An anchor, and the pattern around it, which is compiled where the anchor is found."""
_compiled = cache(re.compile)

_COMMON = frozenset({"root", "user", "home", "torch", "python", "site-packages", "tests"})
"""Names of users that are names of directories as well."""


def _start(before: bytes = rb"\w") -> bytes:
    """Return a pattern for the start of a path: not after one of the characters of `before`.

    In JSON the first character of a line stands behind the `n` of an escape.
    """
    return rb"(?:(?<![%s])|(?<=\\[bfnrt]))" % before


_NOT_IN_ESCAPE = rb"(?<!(?<!\\)\\)"
"""A pattern that begins with any letter may not begin in an escape: half of it would be left."""
_IN_PATH = rb"\w.~-"
_PATH = (string.ascii_letters + string.digits + "_.~-/").encode()
_LONGEST_PATH = 4096
_QUOTES = lazy(rb"[\\'\"]")
HOMES = tuple(
    (home, _start(_IN_PATH) + home + rb"[^/\s'\":\\,;)]+") for home in (b"/home/", b"/Users/")
)


def rules_for(environ: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the home directory, and the user's name where it is a part of a path."""
    home = environ.get("HOME", "").rstrip("/")
    names = {environ.get("USER", ""), environ.get("LOGNAME", ""), os.path.basename(home)}
    rules = []
    # One with a character that JSON escapes could be replaced by halves.
    if len(home) > 2 and not _QUOTES.search(home.encode("utf-8", "surrogatepass")):
        rules.append(_rule(home, _start(rb"\w.~/-") + rb"%s(?![\w.-])"))
    for name in sorted(names - _COMMON):
        if len(name) > 2:
            # torch itself prints some paths by their last parts.
            start = _NOT_IN_ESCAPE + _start(_IN_PATH)
            rules.append(_rule(f"{name}/", start + rb"/?(?:[\w.-]+/){0,6}%s(?=/)"))
            rules.append(_rule(f"/{name}", _start(_IN_PATH) + rb"(?:/[\w.-]+){1,2}%s(?![\w.-])"))
            rules.append(_rule(f"torchinductor_{name}", rb"%s(?![\w.-])"))
    return (*rules, *HOMES)


def _rule(text: str, pattern: bytes) -> Rule:
    data = text.encode("utf-8", "surrogatepass")
    return data, pattern.replace(b"%s", re.escape(data.removesuffix(b"/")))


def replaced(rule: Rule, data: bytes, by: bytes = HOME) -> bytes:
    """Return the result of `pattern.sub`, with a search only around the anchor of each match.

    The anchor is in or before a match. A pattern that begins with a lookbehind is otherwise tried
    at each byte: 80 ms for a checkpoint.
    """
    anchor, pattern = rule
    compiled = _compiled(pattern)
    parts: list[bytes] = []
    done = tried = 0
    at = data.find(anchor)
    while at >= 0:
        run = data[max(tried, at - _LONGEST_PATH) : at]
        start, end = at - len(run) + len(run.rstrip(_PATH)), at + len(anchor) + 1
        matches = (compiled.match(data, place) for place in range(max(tried, start), end))
        match = next(filter(None, matches), None)
        if match is not None:
            parts += [data[done : match.start()], by]
            done = match.end()
        tried = max(tried, end) if match is None else done
        # An anchor that is only looked behind at may end what was replaced.
        at = data.find(anchor, max(at + 1, done - len(anchor)))
    return b"".join([*parts, data[done:]]) if parts else data
