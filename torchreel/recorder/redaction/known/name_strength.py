"""The strength of names: how much one tells of its value, and which values that makes a secret.

Lives here: the names by which the source of a program is read (`syntax`).  Not here: the names that
a text is searched for (`names`), and what the environment, options and frames go by
(`names.SECRET_NAME`).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from torchreel.patterns import lazy_text

_SURE = lazy_text(
    r"(?i)token(?!s(?![a-z])|i[sz]|_?(?:type|ids?(?![a-z])|embed|len|count|mask|pos|idx|ind|class"
    r"|level|mix|kind|mode)|s_)"
    r"|secret|passw|passphrase|passcode|credential|api[_-]?key|access[_-]?key|account[_-]?key"
    r"|private[_-]?key|signing[_-]?key|encryption[_-]?key|auth(?!or(?!i[sz])|entic$)|cookie|bearer"
    r"|getpass|pwd|(?:^|_)(?:pw|creds?|jwt)(?=_|$)"
)
"""Of tokens, models have many that are no secret: `tokens`, `tokenizer`, `token_type_ids`."""
_MAYBE = lazy_text(
    r"(?i)(?:^|_)(?:key|pass|pin|otp|session|salt|nonce|signature|license|dsn|webhook|login"
    r"|private|csrf|seed_phrase|mnemonic)(?=_|$)|token|^secrets?$"
)
_FAILURE = lazy_text(r"(?:Error|Exception|Warning|Failure)$")
_NAME = lazy_text(r"-{0,2}[\w.:/-]{1,60}")
_NAME_OF_ONE = lazy_text(
    r"(?i)(?:--(?:[a-z]{1,20}-){0,3}|(?:[a-z]{1,20}[_.]){0,3})"
    r"(?:tokens?|secrets?|passwords?|passwd|api_?keys?|credentials?|auth|authorization|cookies?|pwd)"
)
_FORMAT = lazy_text(
    r"(?i)(?:token|secret|passw|api.?key|credential)\w*[^\w\n]{0,4}(?:%[sr]|\{\w*\}|$)"
)
_MIXED = lazy_text(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{6,}")
_OF_CODE = lazy_text(
    r"(?:[A-Za-z]+_)+\d+|[A-Za-z]{1,7}\d{1,2}[a-z]?|\w+:\d+|(?:[A-Za-z]\w*\.)+[A-Za-z]\w*"
    r"|[^\s/]*/\S*|[if]\d{1,2}(?:\[.*)?"
)
"""Words with digits that are none: `linear_1`, `cuda:0`, `model.layers.h2`, `data/x1.txt`."""
_WORD = lazy_text(r"[a-z]+(?:_[a-z]+)*")
_SHORTEST = 4


class Strength(IntEnum):
    """The grades of certainty with which a name marks its value as secret."""

    NOT = 0
    MAYBE = 1
    """The value is secret unless it may be a word."""
    SURE = 2
    """It is."""


NOT, MAYBE, SURE = Strength


@lru_cache(4096)
def strength(name: str) -> Strength:
    """Return the grade of certainty for the name of a variable, a function or a class."""
    if _SURE.search(name):
        return SURE
    return MAYBE if _MAYBE.search(name) else NOT


def strength_of_text(text: str) -> Strength:
    """Return the grade of certainty for a text that comes with a value: a key, or a format."""
    if _NAME.fullmatch(text):
        return strength(text)
    return SURE if _FORMAT.search(text) else NOT


def is_failure(name: str) -> bool:
    """Return True if a class is one of exceptions, which are given prose."""
    return _FAILURE.search(name) is not None


def is_name(text: str) -> bool:
    """Return True if a text is itself the name of a secret: `HF_TOKEN`, `--password`."""
    return _NAME_OF_ONE.fullmatch(text) is not None


def is_plain(text: str, name: str, *, of_library: bool = False) -> bool:
    """Return True if a text is a word, under a name as models have: `embed_tokens = "input_ids"`.

    In the code of a library also under `key`: `for key in ("logits", "loss")`.  Under a name that
    is sure a word is a secret too.
    """
    if strength(name) is not MAYBE or _WORD.fullmatch(text) is None:
        return False
    lower = name.lower()
    return "token" in lower or (of_library and "key" in lower.split("_"))


def is_value(text: str, strength: Strength) -> bool:
    """Return True if a text under a name is secret, and not itself the name of one."""
    if len(text) < _SHORTEST or is_name(text):
        return False
    if strength is SURE:
        return True
    return _MIXED.fullmatch(text) is not None and _OF_CODE.fullmatch(text) is None
