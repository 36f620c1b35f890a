"""What never reaches the disk: secrets, and where the user lives.

Lives here: the rules, and `RedactingWriter`, the one place on the way to a store where they are
applied, to the text of every column and blob.  Not here: which environment variables are recorded
at all (`environment`), tensor values (never).

A rule looks only where one of its anchors occurs: finding a few words in the half megabyte of a
checkpoint takes microseconds, a regular expression over all of it would cost more than the rest.
What a replay rests on (digests, names, targets, numbers) matches no rule.
"""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from torchreel.errors import UsageError
from torchreel.recorder.haystack import Haystack, Words
from torchreel.store.configs import ConfigEntry
from torchreel.store.jsontypes import json_text, parse_json

if TYPE_CHECKING:
    from torchreel.recorder.rows import AnyWriter

MODES = ("default", "all", "none")
REDACTED = b"<redacted>"
HOME = b"~"

SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|api_?key|access_?key|private|auth|cookie|_key$|^key$",
    re.IGNORECASE,
)
"""Names of variables, options and settings whose values are nobody's business."""

_SHORTEST_SECRET = 6
"""Characters: a shorter value ('1', 'true', 'none') would take half of the text with it."""

_COMMON = frozenset({"root", "user", "home", "torch", "python", "site-packages", "tests"})
"""Names of users that are names of directories as well."""

_MOST_LEARNED = 200
_MOST_SOURCE = 1 << 20
"""Bytes of a file that are looked through for secrets."""
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]{4,})@")
"""The password in an address."""

_Rule = tuple[bytes, bytes]
"""An anchor, and the pattern around it, which is compiled where the anchor is found."""
_compiled = cache(re.compile)
"""For the patterns that are hardly ever needed: the start of every program would pay for them."""


def _start(before: bytes = rb"\w") -> bytes:
    """Where a secret or a path may begin: not behind one of these characters.

    In JSON the first character of a line stands behind the `n` of an escape.
    """
    return rb"(?:(?<![%s])|(?<=\\[bfnrt]))" % before


_NOT_IN_ESCAPE = rb"(?<!(?<!\\)\\)"
"""What begins with any letter may not begin with that of an escape: half of it would be left."""

_KNOWN: tuple[_Rule, ...] = (
    (b"AKIA", _start() + rb"AKIA[0-9A-Z]{12,}"),
    (b"ASIA", _start() + rb"ASIA[0-9A-Z]{12,}"),
    (b"ghp_", _start() + rb"ghp_\w{16,}"),
    (b"gho_", _start() + rb"gho_\w{16,}"),
    (b"ghs_", _start() + rb"ghs_\w{16,}"),
    (b"github_pat_", _start() + rb"github_pat_\w{16,}"),
    (b"glpat-", _start() + rb"glpat-[\w-]{16,}"),
    (b"hf_", _start() + rb"hf_[A-Za-z0-9]{16,}"),
    (b"sk-", _start(rb"\w-") + rb"sk-[\w-]{16,}"),
    (b"xox", _start() + rb"xox[abprs]-[\w-]{10,}"),
    (b"AIza", _start() + rb"AIza[\w-]{30,}"),
    (b"eyJ", _start() + rb"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?"),
    (b"Bearer ", _start() + rb"Bearer +[\w.~+/=-]{8,}"),
    (b"Basic ", _start() + rb"Basic +[A-Za-z0-9+/]{12,}=*"),
    (b"://", rb"(?<=://)(?:[^/\s:@'\"\\]+:[^/\s@'\"\\]+|[\w.-]{16,})(?=@)"),
    (b"hooks.slack.com/", rb"(?<=hooks\.slack\.com/)[\w/-]{12,}"),
    (b"/api/webhooks/", rb"(?<=/api/webhooks/)\d+/[\w-]{12,}"),
    (b"-Signature=", rb"(?<=-Signature=)[\w%+/-]{16,}"),
    (b"sig=", rb"(?<=[?&]sig=)[\w%+/-]{16,}"),
    (b"-----BEGIN ", rb'-----BEGIN [A-Z ]*KEY-{5}(?s:.*?)(?:-----END [A-Z ]*KEY-{5}|\Z|(?="))'),
)  # fmt: skip
"""Secrets that say what they are."""

_VALUES: _Rule = (
    b"tensor(",
    rb"(?:(?<![\w.]tensor\()|(?<=\\ntensor\())(?<=tensor\()"
    rb"(?:\[[-+.,\d\seEinfaTrFulsjx\\\[\]]*\]"
    rb"|True|False|[-+]?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?)(?:[-+][\d.]+j)?)",
)
"""No secret, but data: values of a tensor in a message."""

_NAMES = (
    b"api_key", b"apikey", b"api-key", b"access_key", b"accesskey", b"accountkey",
    b"private_key", b"signing_key", b"encryption_key", b"auth_key", b"passw", b"passphrase",
    b"secret", b"token", b"credential", b"authorization", b"bearer", b"cookie", b"pwd",
)  # fmt: skip
"""What the name of a secret holds, in lower case, where it stands before its value."""

# What follows such a name: the rest of it, maybe a quote, a bracket, a type; a sign, and the value,
# quoted or bare.  In JSON, a quote of the text itself is escaped; a bare one is JSON's own and
# never crossed.
_TAIL = (
    rb"[\w-]{0,40}+(?:%s)?\]?(?::\s?[\w.\[\]| ]{1,40}?(?=\s?=))?\s{0,3}(?:[:=!]?=|=>|:)\s{0,3}"
    rb"(?:[\w.]{0,20}Secret\w{0,20}\(|\()?"
)
_QUOTED = rb"[rbuf]{0,2}(%s)((?:(?!\1)%s){1,2000}?)\1"
_BARE = rb"((?<=[=:])|(?<=: ))([^\s'\"\\,;()\[\]{}<>&]{4,})"

# The name as a string, and the value as the next one: an option of a command, a pair, a default.
_NEXT = rb"[\w-]{0,40}+(?:%s)\s{0,3},\s{0,3}(?:default\s?=\s?)?"

_JSON_QUOTE, _TEXT_QUOTE = rb"(?:\\+\"){3}|\\+\"|'{3}|'", rb"(?:\\*\"){3}|\\*\"|'{3}|'"
# An escaped quote of the source has its backslash escaped once more in JSON.
_JSON_CHARACTER = rb"(?:\\\\(?:'|\\\")|\\.|[^\n\\\"])"
_TEXT_CHARACTER = rb"(?:\\.|[^\n\\])"


class _Named:
    """How a value stands behind its name: after a sign, or as the next string."""

    def __init__(self, quote: bytes, character: bytes) -> None:
        self._quote, self._quoted = quote, _QUOTED % (quote, character)

    @cached_property
    def signed(self) -> re.Pattern[bytes]:
        return re.compile((_TAIL % self._quote) + b"(?:" + self._quoted + b"|" + _BARE + b")")

    @cached_property
    def following(self) -> re.Pattern[bytes]:
        return re.compile((_NEXT % self._quote) + self._quoted)


# What torch's readable graphs write behind the name of a value, be it of a weight `embed_tokens`.
_ANNOTATION = rb"[a-z]{1,4}\d\w*\[[^\]]*\](?:\[[^\]]*\])?(?:[a-z]+(?::\d+)?)?|Sym\([^'\"]*\)"

_IN_JSON = _Named(_JSON_QUOTE, _JSON_CHARACTER)
_IN_TEXT = _Named(_TEXT_QUOTE, _TEXT_CHARACTER)
_BEFORE = rb"['\"](-{0,2})[\w-]{0,40}\Z"
_NO_WORD = rb"[^A-Za-z_]"
_QUOTES = re.compile(rb"[\\'\"]")
_ESCAPED = re.compile(rb"[\\'\"\x80-\xff]")
"""What has several spellings: a quote, a backslash, and in torch's JSON all that is not ASCII."""
_RANDOM_IN_JSON = (re.compile(rb"'([\w+/=-]{20,200}+)'"), re.compile(rb"\\\"([\w+/=-]{20,200}+)\\"))
_RANDOM_IN_TEXT = (_RANDOM_IN_JSON[0], re.compile(rb"\"([\w+/=-]{20,200}+)\""))
_WORD = rb"[A-Za-z_.]+|\d+"
_TURNS = rb"[A-Za-z]\d|\d[A-Za-z]"

_IN_PATH = rb"\w.~-"
_PATH = (string.ascii_letters + string.digits + "_.~-/").encode()
_LONGEST_PATH = 4096
_HOMES = tuple(
    (home, _start(_IN_PATH) + home + rb"[^/\s'\":\\,;)]+") for home in (b"/home/", b"/Users/")
)

# Beyond the default, for `all`: source lines, text between quotes, directories.
_SOURCE_LINES = rb"(?m)(^[ \t]*File \"?[^\n]+\n)[ \t]+(?!File )[^\n]+\n?"
# A character of a line within a JSON string.
_IN_LINE = rb"(?:[^\\\"]|\\[^n])"
_SOURCE_LINES_IN_JSON = _NOT_IN_ESCAPE + rb"(\\n[ \t]*|\")(File %s++\\n)[ \t]+(?!File )%s++" % (
    _IN_LINE,
    _IN_LINE,
)
# What torch's readable graphs write above nodes of another line of the source, or of none.
_NO_LINE = rb"# No stacktrace found for following nodes"
_COMMENTS = rb"(?:\n[ \t]*)?\n[ \t]*(?:# File: [^\n]*|" + _NO_LINE + rb")"
_COMMENTS_IN_JSON = (
    _NOT_IN_ESCAPE + rb"(?:\\n[ \t]*)?\\n[ \t]*(?:# File: " + _IN_LINE + rb"*+|" + _NO_LINE + rb")"
)
# Behind a guard in torch's tree of them stand the line that it is for, and where that is.
_GUARDED_LINE = rb"(?<![ \t])[ \t]++# %s{0,2000}?[ \t]# [^#\"\\\n]{1,300}?:\d+ in [^\s\"\\]+"
# AOTAutograd's metadata has whole stacks, as Python spells text.
_STACKS = (
    rb"(?<=tangent_source_stack_traces=\[)"
    rb"(?:None|'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"|[\s,])++(?=\])"
)
_STACKS_IN_JSON = (
    rb"(?<=tangent_source_stack_traces=\[)"
    rb"(?:None|'(?:[^'\\\"]|\\\"|\\\\(?:\\\\|\\\"|[^\\]))*+'"
    rb"|\\\"(?:[^\\\"]|\\\\(?:\\\\|[^\\]))*+\\\"|\\n|[ ,])++(?=\])"
)
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STACK_TRACE = (
    rb'("(?:output_)?stack_traces?":|"loc":)(?:'
    + _TEXT
    + rb"|\[(?:(?:null|"
    + _TEXT
    + rb"),?)*+\])"
)
# In JSON never beyond the end of a text: an apostrophe in one goes with none in the next.
_STRINGS_IN_JSON = (rb"'[^'\"\n\\]{3,}'", rb"\\\"[^\"\n\\]{3,}\\\"")
_STRINGS_IN_TEXT = (rb"'[^'\n\\]{3,}'", rb"\"[^\"\n\\]{3,}\"")
# As `_start` has it, but looked for by its first slash: looking behind at each byte takes 50 times
# as long.
_DIRECTORIES = rb"/(?:(?<![\w.~)\]/-]/)|(?<=\\[bfnrt]/))[\w.@+~-]+/(?:[\w.@+~-]+/)+(?=[\w@+-])"


class Withheld(ValueError):
    """Bytes that are no text hold a secret: they are not stored."""


@dataclass(frozen=True)
class Rules:
    """How much is taken out: a mode of `MODES`, and the user's own regular expressions."""

    mode: str = "default"
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(
                f"There is no redaction {self.mode!r}: use {', '.join(MODES[:-1])} or {MODES[-1]}."
            )
        for pattern in self.patterns:
            try:
                re.compile(pattern.encode())
            except re.error as error:
                raise UsageError(f"{pattern!r} is no regular expression: {error}.") from error


class Redactor:
    """Takes secrets out of text, by the rules and by what this process knows to be one."""

    def __init__(
        self, rules: Rules, environ: Mapping[str, str] | None = None, argv: Sequence[str] = ()
    ) -> None:
        environ = os.environ if environ is None else environ
        self.rules = rules
        self.is_off = rules.mode == "none" and not rules.patterns
        by_default = rules.mode != "none"
        self._environ, self._argv = environ, argv
        self._looked: Mapping[Any, Any] | None = None
        self._secret: set[str] = set()
        self._values: tuple[bytes, ...] = ()
        self._paths = (*_own_paths(environ), *_HOMES) if by_default else ()
        anchors = (anchor for anchor, _ in (*_KNOWN, _VALUES, *self._paths))
        self._words = Words((*anchors, *_NAMES))
        self._patterns = tuple(re.compile(pattern.encode()) for pattern in rules.patterns)
        self._learned: dict[bytes, tuple[re.Pattern[bytes], re.Pattern[bytes]]] = {}
        self._short = lru_cache(4096)(self._text)
        self.look_again()

    def text(self, text: str) -> str:
        """`text` (of a column) without what is nobody's business."""
        return self._short(text) if len(text) < 400 else self._text(text)

    def json(self, value: Any) -> str:
        """The JSON text of a value, redacted; still JSON."""
        return self.data(json_text(value).encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def data(self, data: bytes) -> bytes:
        """The bytes of a blob, redacted.  Raises Withheld for a secret in what is no text."""
        if self.is_off:
            return data
        if not _is_text(data):
            if self._secrets(data, _IN_TEXT, ()).data != data:
                raise Withheld("a secret in bytes that are no text")
            return data
        return self._all(data, data[:1] in b"{[" and data[-1:] in b"}]")

    def _text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return self._all(data, False).decode("utf-8", "surrogatepass")

    def _all(self, data: bytes, is_json: bool) -> bytes:
        if self.rules.mode == "none":
            return _checked(data, self._own(data), is_json)
        quoted = _RANDOM_IN_JSON if is_json else _RANDOM_IN_TEXT
        hay = self._secrets(data, _IN_JSON if is_json else _IN_TEXT, quoted)
        hay = _applied(_VALUES, hay, REDACTED)
        _checked(data, hay.data, is_json)
        # Hardly a document is without paths, and they hold nothing that is JSON's own: to read it
        # once more would take as long as all the rest.
        for rule in self._paths:
            hay = _applied(rule, hay, HOME)
        if self.rules.mode == "all":
            return _checked(data, _everything(hay.data, is_json), is_json)
        return hay.data

    def _own(self, data: bytes) -> bytes:
        for pattern in self._patterns:
            data = pattern.sub(REDACTED, data)
        return data

    def _secrets(self, data: bytes, named: _Named, quoted: Sequence[re.Pattern[bytes]]) -> Haystack:
        data = self._own(data)
        for value in self._values:
            if value in data:
                data = data.replace(value, REDACTED)
        hay = Haystack(data, self._words)
        for rule in _KNOWN:
            hay = _applied(rule, hay, REDACTED)
        hay = _without_named(hay, named, self._learn)
        data = hay.data
        for pattern in quoted:
            data = pattern.sub(self._unless_random, data)
        # A list: the compiling thread may learn meanwhile.
        for value, patterns in list(self._learned.items()):
            if value in data or _ESCAPED.search(value):
                data = patterns[named is _IN_JSON].sub(REDACTED, data)
        return hay.changed(data)

    def _unless_random(self, match: re.Match[bytes]) -> bytes:
        """A quoted string that looks like a key: letters of both sorts and digits, well mixed."""
        text: bytes = match[1]
        whole: bytes = match[0]
        if text.islower() or text.isupper() or len(_compiled(_TURNS).findall(text)) < 4:
            return whole
        self._learn(text)
        return whole.replace(text, REDACTED)

    def look_again(self) -> None:
        """Look for secrets that the environment has got since, from a file of settings, say."""
        if self.rules.mode == "none":
            return
        # A dict beneath os.environ is compared in a microsecond; the mapping itself takes fifty.
        now: Mapping[Any, Any] = getattr(self._environ, "_data", self._environ)
        if now != self._looked:
            self._looked = dict(now)
            self._secret |= _secret_values(self._environ, self._argv)
            self._values = _spellings(self._secret)
            self._short.cache_clear()

    def learn(self, values: Iterable[str]) -> None:
        """Take these out from now on."""
        for value in values:
            self._learn(value.encode("utf-8", "surrogatepass"))

    def learn_from(self, file: str) -> None:
        """Take out what the source in that file gives the name of a secret."""
        with suppress(OSError), open(file, "rb") as source:
            text = source.read(_MOST_SOURCE)
            self._secrets(text, _IN_TEXT, _RANDOM_IN_TEXT)

    def _learn(self, value: bytes) -> None:
        """A secret that the source gives a name may come without it in bytecode, or in a message.

        One that could be a word of the language is known only between quotes.
        """
        if value in self._learned or len(value) < 4 or len(self._learned) >= _MOST_LEARNED:
            return
        if value.startswith(b"<") or value in (b"None", b"True", b"False"):
            return
        spelled = b"|".join(re.escape(text) for text in _respelled(value))
        found = in_json = b"(?:%s)" % spelled
        if len(value) < 8 or _compiled(_WORD).fullmatch(value):
            in_json = rb"(?<=')%s(?=')|(?<=\\\")%s(?=\\)" % (found, found)
            found = rb"(?<=['\"])%s(?=['\"])" % found
        self._learned[value] = re.compile(found), re.compile(in_json)
        self._short.cache_clear()


def _respelled(value: bytes) -> tuple[bytes, ...]:
    """A value as it was found, and as it is where its escapes are none, or are escaped again."""
    if not _ESCAPED.search(value):
        return (value,)
    found = {value}
    for _ in range(2):
        found |= {re.sub(rb"\\(['\"\\])", rb"\1", text) for text in found}
    plain = min(found, key=len).decode("utf-8", "surrogateescape")
    found |= {text.encode("utf-8", "surrogateescape") for text in _written(plain)}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _written(plain: str) -> set[str]:
    """A text as it is, as Python or JSON has it, and as JSON has that: of a graph's code, say."""
    once = {plain, repr(plain)[1:-1], *_in_json(plain)}
    return once.union(*map(_in_json, once))


def _in_json(text: str) -> set[str]:
    """Our JSON has any character as it is, torch's own only those of ASCII."""
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}


def _secret_values(environ: Mapping[str, str], argv: Sequence[str]) -> set[str]:
    """What this process was given under a name that says that it is secret."""
    values = {value for name, value in environ.items() if SECRET_NAME.search(name)}
    values |= {found for text in (*environ.values(), *argv) for found in _IN_URL.findall(text)}
    hidden = False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if hidden:
            values.add(argument)
        secret = argument.startswith("-") and SECRET_NAME.search(name) is not None
        if secret and equals:
            values.add(value)
        hidden = secret and not equals
    return {v for v in values if len(v) >= _SHORTEST_SECRET and not _is_setting(v)}


def _is_setting(value: str) -> bool:
    """A path, a word or a number is what a variable like SSH_AUTH_SOCK or TOKENIZERS_... holds."""
    if value.isdigit() or value.lower() in ("default", "enabled", "disabled"):
        return True
    return value.startswith(("/", "~", "./"))


def _spellings(values: set[str]) -> tuple[bytes, ...]:
    """Each value in every way it may be written; the longest first."""
    written = (text for value in values for text in _written(value))
    spelled = {text.encode("utf-8", "surrogatepass") for text in written}
    return tuple(sorted(spelled, key=lambda text: (-len(text), text)))


def _own_paths(environ: Mapping[str, str]) -> tuple[_Rule, ...]:
    """The home directory, and the user's name where it is a part of a path."""
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
    return tuple(rules)


def _rule(text: str, pattern: bytes) -> _Rule:
    data = text.encode("utf-8", "surrogatepass")
    return data, pattern.replace(b"%s", re.escape(data.removesuffix(b"/")))


def _applied(rule: _Rule, hay: Haystack, by: bytes) -> Haystack:
    """What `pattern.sub` gives, looking only around the anchor, which is in or before each match.

    A pattern that begins by looking behind is tried at each byte otherwise: 80 ms for a checkpoint.
    """
    anchor, pattern = rule
    if not hay.holds(anchor):
        return hay
    data, compiled = hay.data, _compiled(pattern)
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
    return hay.changed(b"".join([*parts, data[done:]])) if parts else hay


def _without_named(hay: Haystack, named: _Named, learn: Callable[[bytes], None]) -> Haystack:
    """The bytes without the values that stand behind the name of a secret."""
    data, parts, position = hay.data, [], 0
    present = [name for name in _NAMES if name in hay.found]
    spans = sorted({span for name in present for span in _spans(data, hay.lowered, name, named)})
    for start, end in spans:
        if start >= position:
            learn(data[start:end])
            parts += [data[position:start], REDACTED]
            position = end
    return hay.changed(b"".join([*parts, data[position:]])) if spans else hay


def _spans(data: bytes, lowered: bytes, name: bytes, named: _Named) -> list[tuple[int, int]]:
    found, at = [], lowered.find(name)
    while at >= 0:
        match = named.signed.match(data, at + len(name))
        if match is not None:
            group = 2 if match[2] is not None else 4
            if _is_secret(name, match):
                found.append(match.span(group))
        else:
            following = named.following.match(data, at + len(name))
            if following is not None and _is_next_secret(data, at, name, following[2]):
                found.append(following.span(2))
        at = lowered.find(name, at + len(name))
    return found


def _is_secret(name: bytes, match: re.Match[bytes]) -> bool:
    """Of a value behind a sign: between quotes it is one, unless torch wrote what it is."""
    if match[2] is not None:
        return _compiled(_ANNOTATION).fullmatch(match[2]) is None
    return _is_bare_secret(name, match[4])


def _is_next_secret(data: bytes, at: int, name: bytes, value: bytes) -> bool:
    """Of two strings in a row the first may be a name, or one of many words (`token` is one)."""
    before = _compiled(_BEFORE).search(data, max(0, at - 48), at)
    if before is None or value.startswith(b"-"):
        return False
    if before[1]:
        return True
    telling = name != b"token" or data[at : at + len(name)].isupper()
    return telling and len(value) >= 6 and _compiled(_NO_WORD).search(value) is not None


def _is_bare_secret(name: bytes, value: bytes) -> bool:
    """Without quotes it may be code: `token=tok`, `password=None`."""
    if value in (b"None", b"True", b"False"):
        return False
    has_digit = any(48 <= byte <= 57 for byte in value)
    return name.startswith(b"pass") or (len(value) >= 8 and has_digit and b"." not in value)


def _everything(data: bytes, is_json: bool) -> bytes:
    """For `all`: no source lines, no text between quotes, no directories."""
    if is_json:
        data = re.sub(_STACK_TRACE, rb'\1""', data)
        data = re.sub(_SOURCE_LINES_IN_JSON, rb"\1\2", data)
        left_out = (_COMMENTS_IN_JSON, _STACKS_IN_JSON, _GUARDED_LINE % _IN_LINE)
        strings = _STRINGS_IN_JSON
    else:
        data = re.sub(_SOURCE_LINES, rb"\1", data)
        left_out = (_COMMENTS, _STACKS, _GUARDED_LINE % rb"[^\n]")
        strings = _STRINGS_IN_TEXT
    for pattern in left_out:
        data = re.sub(pattern, b"", data)
    for pattern in strings:
        data = re.sub(pattern, _emptied, data)
    return re.sub(_DIRECTORIES, b"<path>/", data)


def _emptied(match: re.Match[bytes]) -> bytes:
    text: bytes = match[0]
    length = 2 if text[:1] == b"\\" else 1
    return text[:length] + REDACTED + text[-length:]


def _is_text(data: bytes) -> bool:
    """Whether these are not, say, a pickle."""
    return b"\x00" not in data[:4096] and data[:1] != b"\x80"


def _checked(before: bytes, after: bytes, is_json: bool) -> bytes:
    """What a rule made of a document; Withheld, if that is none any more."""
    if is_json and after != before:
        try:
            parse_json(after)
        except ValueError:
            raise Withheld("a rule of redaction would break the document") from None
    return after


_AS_THEY_ARE = frozenset(
    {
        "digest", "codec", "kind", "kinds", "stage", "status", "partition", "entry", "run",
        "signature_digest", "payload", "frame_source", "traceback", "text_digest", "backend",
        "compile_id", "target", "failure_class", "exit_signal",
    }
)  # fmt: skip
"""Columns of fixed words, digests, names of functions, and packed bytes."""


class RedactingWriter:
    """A writer of rows in front of another one: nothing passes but through the redactor."""

    def __init__(self, writer: AnyWriter, redactor: Redactor) -> None:
        self.connection: Any = writer.connection
        self._writer = writer
        self._redactor = redactor

    def blob(self, data: bytes) -> str:
        """See `store.writer.Writer`, here and below."""
        return self._writer.blob(self._redactor.data(data))

    def add(self, table_name: str, **columns: object) -> int:
        return self._writer.add(table_name, **self._columns(columns))

    def add_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> None:
        self._writer.add_many(table_name, [self._columns(row) for row in rows])

    def put(self, table_name: str, **columns: object) -> bool:
        return self._writer.put(table_name, **self._columns(columns))

    def update(self, table_name: str, id: int, **columns: object) -> None:
        self._writer.update(table_name, id, **self._columns(columns))

    def delete(self, table_name: str, id: int) -> None:
        self._writer.delete(table_name, id)

    def clear_losses(self, recording_id: int) -> None:
        self._writer.clear_losses(recording_id)

    def flush(self) -> None:
        self._writer.flush()

    def forget(self, digests: Iterable[str]) -> None:
        forget = getattr(self._writer, "forget", None)
        if forget is not None:
            forget(digests)

    def learn_from(self, file: str) -> None:
        """The source in that file may name secrets: they reach the disk no more from now on."""
        self._redactor.learn_from(file)

    def config(self, entries: Sequence[ConfigEntry]) -> int:
        redacted: Callable[[Any], str] = self._redactor.json
        return self._writer.config(
            [entry._replace(value=parse_json(redacted(entry.value))) for entry in entries]
        )

    def _columns(self, columns: Mapping[str, object]) -> dict[str, object]:
        return {
            name: value if name in _AS_THEY_ARE else self._column(value)
            for name, value in columns.items()
        }

    def _column(self, value: object) -> object:
        if isinstance(value, str):
            return self._redactor.text(value)
        if isinstance(value, (dict, list, tuple)):
            return self._redactor.json(value)
        return value
