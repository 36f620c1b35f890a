"""Secrets that say what they are: tokens with a known beginning, keys in armour, passwords of URLs.

Lives here: looking for them around the words that they begin with.  Most come from a table that is
generated from the rules of gitleaks (`gitleaks_table`); here stands what that does not know.
Called by `redactor`, with the places that its one search for all words has found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from torchreel.recorder.redaction.known.gitleaks_table import TABLE

_compiled = cache(re.compile)
"""A pattern is compiled where its beginning is found: the start of every program would pay."""

_OWN: tuple[tuple[str, bytes], ...] = (
    # Shorter than gitleaks wants them, or of its siblings.
    ("AKIA", rb"AKIA[0-9A-Z]{12,}"), ("ASIA", rb"ASIA[0-9A-Z]{12,}"),
    ("ghp_", rb"ghp_\w{16,}"), ("gho_", rb"gho_\w{16,}"), ("ghs_", rb"ghs_\w{16,}"),
    ("ghu_", rb"ghu_\w{16,}"), ("ghr_", rb"ghr_\w{16,}"),
    ("github_pat_", rb"github_pat_\w{16,}"), ("hf_", rb"hf_[A-Za-z0-9]{16,}"),
    ("sk-", rb"(?<![\w-])sk-[\w-]{16,}"), ("xox", rb"xox[abeoprs]-[\w-]{10,}"),
    ("xapp-", rb"xapp-[\w-]{16,}"), ("SG.", rb"SG\.[\w-]{10,}\.[\w-]{10,}"),
    ("pypi-", rb"pypi-[\w-]{16,}"), ("sq0", rb"sq0[a-z]{3}-[\w-]{20,}"),
    ("hvs.", rb"hvs\.[\w-]{10,}"), ("hvb.", rb"hvb\.[\w-]{10,}"),
    ("eyJ", rb"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?"),
    # Of other services.
    ("ya29.", rb"ya29\.[\w-]{10,}"), ("1//0", rb"1//0[\w-]{20,}"),
    ("GOCSPX-", rb"GOCSPX-[\w-]{16,}"), ("whsec_", rb"whsec_[\w+/=-]{16,}"),
    ("dckr_pat_", rb"dckr_pat_[\w-]{16,}"), ("tskey-", rb"tskey-[\w-]{16,}"),
    ("wandb_v1_", rb"wandb_v1_\w{16,}"), ("r8_", rb"r8_[A-Za-z0-9]{30,}"),
    ("gsk_", rb"gsk_[A-Za-z0-9]{30,}"), ("nvapi-", rb"nvapi-[\w-]{30,}"),
    ("LS0tLS1CRUdJTi", rb"LS0tLS1CRUdJTi[\w+/=]+"), (":AA", rb"\b\d{8,10}(:AA[\w-]{33})"),
    # In a header, an address, a file of keys.
    ("Bearer ", rb"Bearer +([\w.~+/=-]{8,})"),
    ("Basic ", rb"Basic +((?=\S*[\d=])[A-Za-z0-9+/]{8,}=*)"),
    ("curl ", rb"curl [^\n]{0,200}?(?:-u|--user)[ =]?['\"]?([^\s'\":]+:[^\s'\"]{3,})"),
    ("mysql", rb"mysql\w*[^\n]{0,200}? -p([^\s'\"-][^\s'\"]{3,})"),
    ("Digest ", rb"Digest +((?:\w{1,20}=(?:\\*['\"][^'\"\n]{0,400}?\\*['\"]|[\w./-]{1,400})"
                rb"(?:, ?)?){2,20})"),
    ("://", rb"://([^/\s:@'\"\\]*:[^/\s@'\"\\]+|[\w.-]{16,}|(?=[A-Za-z.-]*\d)[\w.-]{10,})(?=@)"),
    ("hooks.slack.com/", rb"hooks\.slack\.com/([\w/-]{12,})"),
    ("/api/webhooks/", rb"/api/webhooks/(\d+/[\w-]{12,})"),
    ("Signature=", rb"Signature=['\"]?([\w%+/=-]{6,})"), ("sig=", rb"(?<=[?&])sig=([\w%+/-]{6,})"),
    ("key=", rb"(?<=[?&])key=([\w%+/-]{6,})"),
    ("pin=", rb"[pP][iI][nN]=['\"]?(\d{4,12})\b"), ("pin:", rb"[pP][iI][nN]: ?['\"]?(\d{4,12})\b"),
    ("pin ", rb"PIN (?:is |was |code )?['\"]?(\d{4,12})\b"),
    ("-----BEGIN ", rb"-----BEGIN [A-Z ]*KEY(?: BLOCK)?-{5}"
                    rb"(?s:.*?)(?:-----END [A-Z ]*KEY(?: BLOCK)?-{5}|\Z)"),
    ("-----BEGIN PGP MESSAGE", rb"-----BEGIN PGP MESSAGE(?s:.*?)(?:-----END PGP MESSAGE-{5}|\Z)"),
)  # fmt: skip
_INSIDE = frozenset({b":aa", b"://", b"signature=", b"hooks.slack.com/", b"/api/webhooks/"})
"""Words that may follow a letter."""


def _table() -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for text, pattern in _OWN:
        found.setdefault(text.lower().encode(), []).append(pattern)
    for _, prefix, characters, least in TABLE:
        name = "(?=[^\\s'\"]*\\d)" if least > 16 else ""
        pattern = f"{re.escape(prefix)}{name}[{characters}]{{{least},}}".encode()
        found.setdefault(prefix.lower().encode(), []).append(pattern)
    return found


FORMS = _table()
"""Patterns by the word in lower case that they begin with."""


def spans(text: bytes, places: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of secrets at the given places of words, in any order."""
    return (match.span(1 if match.re.groups else 0) for match in _matches(text, places))


def found_by_context(text: bytes, places: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Yield the secrets that only the text before identifies: elsewhere they say nothing."""
    for match in _matches(text, places):
        if match.re.groups:
            start, end = match.span(1)
            yield max(start, text.rfind(b":", start, end) + 1), end  # of a user and a password


def _matches(text: bytes, places: Iterable[tuple[int, bytes]]) -> Iterator[re.Match[bytes]]:
    for at, word in places:
        if word not in FORMS or (word not in _INSIDE and _follows_letter(text, at)):
            continue
        for pattern in FORMS[word]:
            start = max(0, at - 10) if word == b":aa" else at
            match = (
                _compiled(pattern).search(text, start, at + 4096)
                if word == b":aa"
                else (_compiled(pattern).match(text, at))
            )
            if match is not None:
                yield match


def _follows_letter(text: bytes, at: int) -> bool:
    before = text[at - 1 : at] if at else b""
    return before.isalnum() or before == b"_"
