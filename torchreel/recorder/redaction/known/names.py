"""Values that stand behind a name which says that they are secret.

Lives here: the names, and the value that a text gives one: `password = 'x'`, `{"token": "x"}`,
`secret_number == 918273`, `--password x`, `api_keys=["x", "y"]`.  Not here: values of variables
(`frames.secrets`), tokens that say themselves what they are (`tokens`).  Called by `redactor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from torchreel.recorder.redaction.known import name_strength
from torchreel.recorder.redaction.literals import Literal, literal_at, literals

_compiled = cache(re.compile)

SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|bearer|(?:api|access)[-_. ]?key|private"
    r"|auth(?!or(?!i[sz])|en)|authen(?!tic$)|cookie|pwd|(?:^|[-_.])key$",
    re.IGNORECASE,
)
"""Names of variables, options and settings whose values are nobody's business."""

NAMES = (
    b"api_key", b"apikey", b"api-key", b"api key", b"access key", b"access_key", b"accesskey",
    b"access-key", b"accountkey",
    b"account_key", b"private_key", b"private-key", b"privatekey", b"signing_key",
    b"encryption_key", b"key-data", b"passw", b"passphrase", b"secret", b"token", b"credential",
    b"auth", b"bearer", b"cookie", b"pwd", b"sessionid", b"session_id", b"pgpass",
)  # fmt: skip
"""Parts of names of secrets, in lower case, where the name stands before its value."""

ALL = frozenset(NAMES)

# The rest of the name, maybe a quote and a bracket; a type; a sign; calls that the value goes into.
_REST = rb"(?P<rest>[\w-]{0,40}+)(?:\\*['\"])?[\])]?"
_ITEM = rb"(?:\[[\w\\'\"-]{1,40}\]){0,3}"
_TYPE = rb"(?P<type>:\s?[\w.\[\]| ,]{1,40}?(?=\s?=))?"
_SIGN = (
    rb"(?:[ \t]{0,4}(?P<sign>[=-]>|[:!=]?={1,2}|:|%3[Dd])|[ \t]+(?P<is>is(?: not)?|in))\s{0,4}"
    rb"(?:[|>][-+]?[ \t]*\n\s{1,20}|\s{0,80}case[ \t]+)?"  # a block of YAML, a pattern
)
_CALL = rb"(?P<call>(?:[\w.]{0,60}\()?)"
_SIGNED = _REST + _ITEM + _TYPE + _SIGN + _CALL
_BLANK = _REST + rb"[ \t]+(?=[^\s-])"
# The name as a string, and the value as the next one: an option of a command, a pair, a default.
_NEXT = rb"[\w-]{0,40}+\\*['\"]\s{0,3},\s{0,3}(?:default\s?=\s?)?"
# A pair that says which is which: `{"name": "DB_PASSWORD", "value": "x"}`.
_PAIRED = rb"[\w-]{0,40}+(?:\\*['\"])?[\s,]{1,40}\\*['\"]?(?i:value|val)\\*['\"]?\s?[:=]\s?"
# The value goes into a text with the name, or into a container of that name.
_FORMATTED = rb"[^'\"\n]{0,40}(?:%[sr]|\{\})[^'\"\n]{0,40}\\*['\"]\s{0,3}[,%]\s{0,3}\(?"
_CONTAINER = rb"[\w-]{0,40}\.(?:set|add|put|update|append)\("
_CALLED = rb"\w{0,40}?(?P<failure>Error|Exception|Warning)?\("
# `<password>x</password>`, with attributes or without.
_TAG = rb"<[\w:.-]{0,40}\Z"
_TAGGED = rb"[\w:.-]{0,40}+(?:\s[^<>\n]{0,100})?>\s{0,3}(?P<value>[^<>\s]{4,400})\s{0,3}</"
# Of a text alone, where what stands behind is no code: a query of an address, an option.
_QUERIED = rb"(?:[?&][\w.-]{0,40}|(?<![\w-])--[\w-]{0,40})\Z"
_BARE = rb"[^\s'\"\\,;()\[\]{}<>&|]{4,}"
_QUOTED_NAME = rb"['\"](-{0,2})[\w-]{0,40}\Z"
_OPTION = rb"(?<![\w-])-{1,2}[\w-]{0,40}\Z"
_COMPARED = rb"['\"]\s{0,3}(?:[!=]=|\b(?:not )?in\b)\s{0,3}[\w.\[\]'\"]{0,60}\Z"
# Between two strings that stand for one: pprint breaks long ones so, also within a name's line.
_SEAM = rb"(['\"])(?:\s+\1|\s*\n\s*['\"])(?=\S)"
# In prose some words may stand between: `the password was set to x1`, `# secret is x1`.
_PROSE = rb"[a-z]{0,3}\\*[`'\"]?:?[ \t]+(?:[a-z]{1,9}:?[ \t]+|->[ \t]+){0,3}?[`<]?"
_TOKEN_PROSE = rb"[ \t]+(?:(?:is|was)[ \t]+)?[`<]?"
_MIXED = rb"(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])[\w!@#$%^*?~+/=-]{6,200}+(?!\w*[\[(.:]\w)"
# What has digits and is none: `linear_1`, `conv2d`, `3rd`, `0xff`, `0/12`.
_NAME = (
    rb"(?:[A-Za-z]+_)+\d+|[A-Za-z]{1,7}\d{1,2}[a-z]?|\d+(?:st|nd|rd|th|ms|[kMG]i?B)"
    rb"|0x[\da-f]+|[\w-]+/\d+"
)
_GLUE = rb"\s*(?:\+\s*|\\\n\s*)?"
_NO_WORD = rb"[^A-Za-z_]"
_TYPES = (
    rb"(?i:str|bytes|int|float|bool|none|true|false|null|string|object|optional|any|secretstr|self)"
)

# What torch's readable graphs write behind the name of a value, be it of a weight `embed_tokens`.
ANNOTATION = (
    rb"[a-z]{1,4}\d\w{0,6}\[[^\]'\"]*\](?:\[[^\]'\"]*\])?(?:[a-z]{2,12}(?::\d+)?)?|Sym\([^'\"]*\)"
)
_NAME_BEFORE = rb"\w*\Z"
_INPUT = rb"[lL]_\w+_"
_DELETED = rb"[A-Za-z_]\w*(?:[ \t]=[ \t][A-Za-z_]\w*){0,200}[ \t]=[ \t]None\b"
_LONGEST_NAME = 400
_LONGEST = 4000
_LONGEST_LIST = 2000
_LEAST_DIGITS = 8
"""Digits that a number behind a name needs: `num_tokens = 128000` is a size."""
_LEAST_DIGITS_OF_PASSWORD = 4


def spans(text: bytes, places: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Yield the values of the names that begin at the given places (other words are skipped)."""
    for at, word in places:
        if word in ALL and not (word == b"auth" and _is_author(text, at)):
            yield from _values(text, at, word)


def _is_author(text: bytes, at: int) -> bool:
    return _compiled(rb"(?i:auth(?:or(?!i[sz])|entic))").match(text, at) is not None


def _values(text: bytes, at: int, word: bytes) -> Iterator[tuple[int, int]]:
    behind = at + len(word)
    signed = _compiled(_SIGNED).match(text, behind)
    if signed is not None and (
        signed["is"] is None or text[signed.end() : signed.end() + 1] in b"'\""
    ):
        yield from _signed(text, at, word, signed)
    else:
        yield from _next(text, at, word)
        yield from _given(text, behind)
        yield from _called(text, at, word)
        yield from _of_option(text, at, behind, word)
        yield from _said(text, behind, word)
        yield from _tagged(text, at, behind, word)
        yield from _paired(text, behind, word)
    compared = _compiled(_COMPARED).search(text, max(0, at - 72), at)
    if compared is not None and not (b"in" in compared[0][:8] and _is_count(text, at, word)):
        yield from _ending(text, compared.start())


def _signed(
    text: bytes, at: int, word: bytes, signed: re.Match[bytes]
) -> Iterator[tuple[int, int]]:
    """Yield the value after a sign: a string, a number, a list of them, or an unquoted value."""
    start, call = signed.end(), signed["call"]
    seam = _compiled(_SEAM).match(text, start)
    start = seam.end() if seam is not None else start
    literal = literal_at(text, start)
    one, sign = not _is_many(text, at, word), signed["sign"] or b""
    if signed["type"]:  # or the value itself: `auth_token: abcd1234 = expired`
        yield from _bare(text, signed.end("type") - len(signed["type"][1:].lstrip()), word, b":")
    if literal is None:
        if call and one:
            yield from _listed(text, start)
        elif text[start : start + 1] in (b"[", b"{") and one:
            yield from _listed(text, start + 1)
        if sign == b"=" and _compiled(_QUERIED).search(text, max(0, at - 48), at) is not None:
            yield from _spans_of(_BARE, text, start)
        elif call in (b"", b"("):
            yield from _unless_name(text, at, signed, _bare(text, start, word, sign))
    elif literal.is_number:
        bare = _compiled(_BARE).match(text, start)
        if bare is not None and bare.end() > literal.end:
            yield from _bare(text, start, word, sign)
        elif _has_digits(text, literal, word):
            yield literal.start, literal.end
    elif call in (b"", b"(") or one:
        name = "" if one else _name_around(text, at)
        for start, end in _strings(text, literal):
            if one or not name_strength.is_plain(text[start:end].decode("utf-8", "replace"), name):
                yield start, end
        if call:
            yield from _listed(text, literal.end)


def _strings(text: bytes, literal: Literal | None) -> Iterator[tuple[int, int]]:
    """Yield a string and those that are glued to it."""
    while literal is not None and not literal.is_number:
        inner, end = literal.inner, min(literal.inner_end, literal.inner + _LONGEST)
        if _compiled(ANNOTATION).fullmatch(text, inner, end) is None:
            yield inner, end
        glue = _compiled(_GLUE).match(text, literal.end)
        literal = literal_at(text, glue.end()) if glue is not None else None


def _listed(text: bytes, start: int, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the strings, and long numbers, up to the bracket that closes the one before `start`."""
    at, depth = start, 1
    end = len(text) if end is None else end
    for literal in literals(text, start, min(end, start + _LONGEST_LIST)):
        between = text[at : literal.start]
        for character in between:
            depth += (character in b"([{") - (character in b")]}")
            if depth == 0:
                return
        if literal.is_number:
            if literal.end - literal.start >= _LEAST_DIGITS:
                yield literal.start, literal.end
        elif literal.inner < literal.inner_end and not _is_key(text, literal):
            yield literal.inner, literal.inner_end
        at = literal.end


def _is_key(text: bytes, literal: Literal) -> bool:
    """Return True if this is the key of a dictionary: `{"bob": "x"}`."""
    return _compiled(rb"\s{0,3}:").match(text, literal.end) is not None


def _bare(text: bytes, start: int, word: bytes, sign: bytes) -> Iterator[tuple[int, int]]:
    """Yield a value without quotes, unless it is code (`token=tok`, `password=None`, `read()`)."""
    match = _compiled(_BARE).match(text, start)
    if match is None:
        return
    found, behind = match[0], text[match.end() : match.end() + 1]
    if found in (b"None", b"True", b"False") or _compiled(_TYPES).fullmatch(found):
        return
    has_digit = any(48 <= byte <= 57 for byte in found)
    if sign in (b"==", b"!=") and not has_digit:  # a comparison with a variable
        return
    is_code = behind in (b"(", b"[") or _compiled(rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+").fullmatch(
        found
    )
    if (word.startswith((b"pass", b"pwd")) and not is_code) or (
        len(found) >= 8 and has_digit and (b"." not in found or not is_code)
    ):
        yield match.span()


def _spans_of(pattern: bytes, text: bytes, start: int) -> Iterator[tuple[int, int]]:
    match = _compiled(pattern).match(text, start)
    if match is not None:
        yield match.span()


def _unless_name(
    text: bytes, at: int, signed: re.Match[bytes], found: Iterable[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """Leave out the values that are names of a graph's inputs and nodes.

    FX writes `l_token_0_ = L_token_0_` for an input, and `l_token_0_ = linear_1 = None` for a
    deletion.
    """
    deleted = _compiled(_DELETED)
    found = [span for span in found if deleted.match(text, span[0]) is None]
    before = _compiled(_NAME_BEFORE).search(text, max(0, at - _LONGEST_NAME), at)
    assert before is not None
    name, sign = text[before.start() : signed.end("rest")], (signed["sign"] or b"").strip()
    of_input = _compiled(_INPUT)
    if sign != b"=" or of_input.fullmatch(name) is None:
        return found
    return (span for span in found if of_input.fullmatch(text, *span) is None)


def _next(text: bytes, at: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield the second of two adjacent strings, if the first may be the name of a secret."""
    following = _compiled(_NEXT).match(text, at + len(word))
    before = _compiled(_QUOTED_NAME).search(text, max(0, at - 48), at)
    literal = literal_at(text, following.end()) if following is not None else None
    if literal is None or before is None:
        return
    found = text[literal.inner : literal.inner_end]
    telling = not _is_count(text, at, word)
    if literal.is_number:
        if telling and _has_digits(text, literal, word):
            yield literal.start, literal.end
    elif not found.startswith(b"-") and (
        before[1] or (telling and len(found) >= 6 and _compiled(_NO_WORD).search(found))
    ):
        yield literal.inner, literal.inner_end


def _of_option(text: bytes, at: int, behind: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield `--password x` of a command in one text; `password x1` of a .netrc."""
    blank = _compiled(_BLANK).match(text, behind)
    if blank is None:
        return
    literal = literal_at(text, blank.end())
    is_option = _compiled(_OPTION).search(text, max(0, at - 48), at) is not None
    is_sql = text[at : at + 9] == b"PASSWORD "  # SQL: ... PASSWORD 'x'
    if (is_option or is_sql) and literal is not None and not literal.is_number:
        yield from _strings(text, literal)
        return
    bare = _compiled(_BARE).match(text, blank.end())
    if bare is None:
        return
    mixed = _compiled(rb"[\d!@#$%^*?~+]").search(bare[0]) is not None
    if is_option or (mixed and word.startswith((b"pass", b"secret")) and not blank["rest"][4:]):
        yield bare.span()


def _said(text: bytes, behind: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield a secret in prose: `# password is x1`, `invalid token x1`, `the secret 'x1' ...`."""
    between = _compiled(_TOKEN_PROSE if word == b"token" else _PROSE).match(text, behind)
    if between is None:
        return
    start = between.end() + (text[between.end() : between.end() + 1] in (b"'", b'"'))
    found = _compiled(_MIXED).match(text, start)
    if found is None and word != b"token":  # more words may come before the one with digits
        found = _compiled(_PROSE + rb"['\"]?(?P<value>" + _MIXED + rb")").match(text, behind)
        start = found.start("value") if found is not None else start
        found = _compiled(_MIXED).match(text, start) if found is not None else None
    if found is not None and _compiled(_NAME).fullmatch(found[0]) is None:
        yield found.span()


def _called(text: bytes, at: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield `Token('x')`, `get_api_key("x")`; an exception is given prose, in which a value is
    mixed.
    """
    call = _compiled(_CALLED).match(text, at + len(word))
    if call is None or _is_many(text, at, word):
        return
    line = text.find(b"\n", call.end())  # behind a line that was cut off, others follow
    for start, end in _listed(text, call.end(), line if line >= 0 else len(text)):
        if call["failure"] is None or _compiled(_MIXED).fullmatch(text, start, end) is not None:
            yield start, end


def _given(text: bytes, behind: int) -> Iterator[tuple[int, int]]:
    """Yield `"password %s", "x"`; `cookies.set("x")`; `BasicAuth("user", "x")`."""
    formatted = _compiled(_FORMATTED).match(text, behind)
    if formatted is not None:
        yield from _strings(text, literal_at(text, formatted.end()))
    container = _compiled(_CONTAINER).match(text, behind)
    if container is not None:
        yield from _listed(text, container.end())


def _tagged(text: bytes, at: int, behind: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield the content of an element of XML with the name of a secret."""
    if _compiled(_TAG).search(text, max(0, at - 48), at) is not None:
        found = _compiled(_TAGGED).match(text, behind)
        if found is not None and (not _is_count(text, at, word) or len(found["value"]) >= 8):
            yield found.span("value")


def _paired(text: bytes, behind: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Yield the value that stands beside the name, under a name of its own."""
    between = _compiled(_PAIRED).match(text, behind)
    if between is None:
        return
    literal = literal_at(text, between.end())
    if literal is None or literal.is_number:
        yield from _bare(text, between.end(), word, b":")
    else:
        yield from _strings(text, literal)


def _ending(text: bytes, quote: int) -> Iterator[tuple[int, int]]:
    """Yield the string that ends at a quote, which a name is compared with."""
    start = text.rfind(text[quote : quote + 1], max(0, quote - _LONGEST_LIST), quote)
    if start >= 0 and b"\n" not in text[start:quote]:
        yield start + 1, quote


def _is_many(text: bytes, at: int, word: bytes) -> bool:
    """Return True if the name speaks of many tokens, or of making them: `tokens`, `tokenizer`."""
    return _is_count(text, at, word) and text[at + 5 : at + 6].lower() in (b"s", b"i", b"_")


def _name_around(text: bytes, at: int) -> str:
    """Return the whole name around a part of it."""
    before = _compiled(_NAME_BEFORE).search(text, max(0, at - _LONGEST_NAME), at)
    behind = _compiled(rb"\w*").match(text, at)
    assert before is not None
    assert behind is not None
    return text[before.start() : behind.end()].decode("utf-8", "replace")


def _is_count(text: bytes, at: int, word: bytes) -> bool:
    """Return True if the name may speak of tokens of a language."""
    return word == b"token" and not text[at : at + 5].isupper()


def _has_digits(text: bytes, literal: Literal, word: bytes) -> bool:
    digits = sum(48 <= byte <= 57 for byte in text[literal.start : literal.end])
    telling = word in (b"passw", b"secret", b"pwd", b"passphrase", b"credential")
    return digits >= (_LEAST_DIGITS_OF_PASSWORD if telling else _LEAST_DIGITS)
