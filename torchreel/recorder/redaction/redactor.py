"""Takes secrets out of texts, JSON documents and other bytes, before they reach the disk.

Lives here: `Redactor`, which puts the rules together.  What a level takes out is in a table in
docs/redaction.md; the rules are in `known` (secrets by form, name or value), `paths`, and `strict`
(the level `all`).

One search finds all words that a rule begins with.  Where none occurs, as in most of what is
written, nothing else is done; in a JSON document, only the strings around them are looked at, each
as the text that it stands for.
"""

from __future__ import annotations

import linecache
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from torchreel.patterns import lazy, lazy_text
from torchreel.recorder.redaction import documents, paths
from torchreel.recorder.redaction.known import name_strength, names, tokens
from torchreel.recorder.redaction.known.names import SECRET_NAME
from torchreel.recorder.redaction.known.values import KnownValues, Where
from torchreel.recorder.redaction.level import REDACTED, Rules, Withheld
from torchreel.recorder.redaction.literals import unescaped
from torchreel.recorder.redaction.words import Words
from torchreel.store.documents.jsontypes import json_text

if TYPE_CHECKING:
    from torchreel.recorder.redaction.strict import Strict

_compiled = cache(re.compile)

_SHORTEST_SECRET = 6
"""Characters: a shorter value ('1', 'true', 'none') would take half of the text with it."""
_LEAST_DIGITS = 8
"""Digits that a secret number needs: `MAX_TOKENS=128000` is a size."""
_MOST_SOURCE = 1 << 20
"""Bytes of a file that are looked through for secrets."""
_IN_URL = lazy_text(r"://[^/\s:@]*:([^/\s@]{4,})@")
"""The password in an address."""

_GRAPH = b'"op":"placeholder"'
_TEXT_INPUT = b'"k":"str"'
_TENSOR = b"tensor("
_ADDRESS, _LONGEST_ADDRESS = b"://", 512
_TENSOR_VALUES = (
    rb"(?<![\w.])tensor\((\[[-+.,\d\seEinfaTrFulsjx\\\[\]]*\]"
    rb"|True|False|[-+]?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?)(?:[-+][\d.]+j)?)"
)
"""No secret, but data: values of a tensor in a message."""

_MIXED = lazy(rb"(?:'|\")([\w+/=-]{20,200}+)(?:'|\\*\")")
_MIXED_IN_JSON = (
    lazy(rb"'([\w+/=-]{20,200}+)'"),
    lazy(rb"\\\"([\w+/=-]{20,200}+)\\"),
)
"""The same where a document has it: a bare quote is JSON's own."""
_HEX = rb"[0-9a-fA-F-]{32,200}"
_OF_CODE = (
    rb"(?i)(?:hash|digest|sha|checksum|uuid|commit|md5|crc|fingerprint|cache_key)[\w\]'\" ]*"
    rb"[=:(,]\s*\\*['\"]?\Z"
)
"""Text before a number in hex that identifies code or a file."""
_LONG, _MUCH_ENTROPY = 32, 4.5
"""Characters, and bits: what detect-secrets takes for a key in base64."""
_DIGIT = lazy(rb"\d")
_TURNS = rb"[A-Za-z]\d|\d[A-Za-z]"
_RUNS = lazy(rb"[^\x00-\x08\x0e-\x1f\x7f]{4,}")
"""The texts in a pickle, in which a length in bytes of control stands before each."""
_LARGE = 20_000
_BETWEEN_STRINGS = lazy(rb"['\"]\s*(?:\+\s*|\\\n\s*)?[rRbBfFuU]{0,2}['\"]")
_PLACE = lazy_text(r"\{[^{}]*\}")
_NO_VALUE = lazy(
    rb"[\w-]{0,60}+(?:\"|[^\w\s'\"\\\[\])(=:!,.-]|\.(?!(?:set|add|put|update|append)\())"
)
"""A name that no value follows: it ends its string, is part of a path, goes on with a dot."""


class Redactor:
    """Takes secrets out of text, by the rules and by the secrets that this process knows."""

    def __init__(
        self, rules: Rules, environ: Mapping[str, str] | None = None, argv: Sequence[str] = ()
    ) -> None:
        environ = os.environ if environ is None else environ
        self.rules = rules
        self.is_off = rules.mode == "none" and not rules.patterns
        self.is_strict = rules.mode == "all"
        self._by_default = rules.mode != "none"
        self._environ, self._argv = environ, argv
        self._looked: Mapping[Any, Any] | None = None
        self._paths = paths.rules_for(environ) if self._by_default else ()
        self._path_words = {anchor.lower() for anchor, _ in self._paths}
        self._words = Words((*tokens.FORMS, *names.NAMES, _TENSOR, *self._path_words))
        self._patterns = tuple(re.compile(pattern.encode()) for pattern in rules.patterns)
        self._known = KnownValues()
        self._version = 0
        self._short = lru_cache(4096)(self._text_as_of)
        self.look_again()
        if self._by_default:
            for argument in argv:  # `{"password": "x"}` gives its value a name
                self._without_secrets(argument.encode("utf-8", "surrogatepass"))
                self._learn_glued(argument)
            for option, program in pairwise(argv):
                if option == "-c":  # a program that is in no file
                    self._learn_program(program)

    def text(self, text: str) -> str:
        """Return `text` (of a column) without secrets."""
        return self._short(text, self._version) if len(text) < 400 else self._text(text)

    def without_secrets(self, text: str) -> str:
        """Return `text` without secrets, and else as it is, at the level `all` too."""
        data = text.encode("utf-8", "surrogatepass")
        data = self._without_secrets(data) if self._by_default else self._own(data)
        return data.decode("utf-8", "surrogatepass")

    def _text_as_of(self, text: str, version: int) -> str:
        """Return a text redacted by the secrets of `version`: another thread may learn more."""
        return self._text(text)

    def _forget_texts(self) -> None:
        self._version += 1
        self._short.cache_clear()

    def json(self, value: Any) -> str:
        """Return the JSON text of a value, redacted; still JSON."""
        if isinstance(value, str):
            return json_text(self.text(value))
        return self.data(json_text(value).encode("utf-8", "surrogatepass")).decode(
            "utf-8", "surrogatepass"
        )

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a blob, redacted.

        Raises Withheld for a secret in bytes that are no text.
        """
        if self.is_off:
            return data
        if not _is_text(data):
            # Of bytes between two texts, half would be taken for the end of the first.
            if any(self._without_secrets(run) != run for run in _RUNS.findall(data)):
                raise Withheld("a secret in bytes that are no text")
            return data
        return self._all(data, documents.looks_like_one(data))

    def look_again(self) -> None:
        """Look for secrets that the environment has got since, from a file of settings, say."""
        if not self._by_default:
            return
        # A dict beneath os.environ is compared in a microsecond; the mapping itself takes fifty.
        now: Mapping[Any, Any] = getattr(self._environ, "_data", self._environ)
        if now != self._looked:
            self._looked = dict(now)
            new = [
                self._known.add(value, _place_of(value), lasting=True)
                for value in _secret_values(self._environ, self._argv)
            ]
            if any(new):
                self._forget_texts()

    def learn(self, values: Iterable[str]) -> None:
        """Redact these from now on."""
        if max([self._known.add(value) for value in values], default=False):
            self._forget_texts()

    def learn_texts(self, messages: Sequence[str], constants: Iterable[str]) -> None:
        """Learn, for the level `all`, texts of the program's exceptions and code."""
        if self.is_strict:
            new = self.strict.learn((*messages, *constants))
            said = (text for text in messages if " " in text.strip())
            if max([new, *(self._known.add(text, Where.ANYWHERE) for text in said)]):
                self._forget_texts()

    def learn_from(self, file: str) -> None:
        """Redact the values that the source in that file gives to names of secrets."""
        source = _source(file)
        if source:
            self._without_secrets(source)
            self._learn_program(source.decode("utf-8", "replace"))

    def _learn_glued(self, argument: str) -> None:
        """Learn a secret that stands right behind its option: -pSECRET."""
        value = argument[2:].encode("utf-8", "surrogatepass")
        if argument[:1] == "-" != argument[1:2] and self._without_secrets(value) == REDACTED:
            self.learn([argument[2:]])

    def _learn_program(self, source: str) -> None:
        from torchreel.recorder.redaction.known.syntax import texts

        found = texts(source)
        self.learn(found.secret)
        self.learn_texts((), found.others)
        for text in found.others:  # one may hold another with a name in it
            self._without_secrets(text.encode("utf-8", "surrogatepass"))

    def _text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return self._all(data, False).decode("utf-8", "surrogatepass")

    def _all(self, data: bytes, may_be_document: bool) -> bytes:
        if not self._by_default:
            return self._by_patterns(data, may_be_document)
        places = self._words.places(data)
        if may_be_document:
            data = self._document(data, places)
        else:
            data = self._without_secrets(data, places)
        found = {word for _, word in places if word in self._path_words}
        if found:
            for rule in self._paths:
                if rule[0].lower() in found:
                    data = paths.replaced(rule, data)
        if self.is_strict:
            data = self.strict.document(data) if may_be_document else self.strict.text(data)
        return data

    @cached_property
    def strict(self) -> Strict:
        """Return the rules that the level `all` adds."""
        from torchreel.recorder.redaction.strict import Strict

        return Strict()

    def _document(self, data: bytes, places: Sequence[tuple[int, bytes]]) -> bytes:
        """Return a JSON document, redacted in the strings around the found words."""
        if self._patterns:
            data = self._by_patterns(data, True)
            places = self._words.places(data)
        if _TEXT_INPUT in data:
            self._learn_inputs_of(data)
        hits = {at for at, word in places if self._may_begin(data, at, word)}
        hits.update(self._known.places(data))
        for pattern in _MIXED_IN_JSON:
            hits.update(m.start() for m in pattern.finditer(data) if _is_random(data, m))
        if not hits:
            return data
        if _GRAPH in data:
            self.keep_words_of(data)
        # To read a large one takes as long as all the rest; ours begin so.
        if not (len(data) > _LARGE and data[1:2] in b'"\n') and not documents.is_document(data):
            return self._without_secrets(data)
        try:
            return documents.rewritten(data, sorted(hits), self._string)
        except ValueError:  # no document after all
            return self._without_secrets(data)

    def _learn_inputs_of(self, data: bytes) -> None:
        """Learn a text that an exported program is given, under the name of a secret."""
        from torchreel.formats.graphs import public_texts

        with suppress(ValueError):
            inputs = public_texts.text_inputs(orjson.loads(data))
            self.learn(text for name, text in inputs if SECRET_NAME.search(name))

    def keep_words_of(self, data: bytes) -> None:
        """Keep the words that the compiler needs of a graph document, in any context."""
        from torchreel.formats.graphs import public_texts

        with suppress(ValueError):
            words = public_texts.words(data, orjson.loads(data))
            cleared = self._known.clear(words)
            if self.is_strict:
                self.strict.clear(words)
            if cleared:
                self._forget_texts()

    def _may_begin(self, data: bytes, at: int, word: bytes) -> bool:
        """Return False if the bytes behind a word of a document show that no secret is there."""
        if word in names.ALL:
            return _NO_VALUE.match(data, at + len(word)) is None
        if word == _TENSOR:
            return data[at + len(word)] in b"[-+0123456789TFni"
        if word == _ADDRESS:
            return data.find(b"@", at, at + _LONGEST_ADDRESS) >= 0
        return word not in self._path_words

    def _string(self, text: bytes) -> bytes:
        """Return a string of a document, which may be the text of another one."""
        if documents.is_document(text):
            return self._document(text, self._words.places(text))
        return self._without_secrets(text)

    def _by_patterns(self, data: bytes, may_be_document: bool) -> bytes:
        """Remove matches of the user's own patterns.  Raises Withheld for a broken document."""
        if may_be_document and any(p.search(data) for p in self._patterns):
            everywhere = (match.start() + 1 for match in re.finditer(rb'"(?:[^"\\]|\\.)*+"', data))
            if documents.is_document(data):
                data = documents.rewritten(data, everywhere, self._own)
                own = self._own(data)
                if own != data and not documents.is_document(own):
                    raise Withheld("a rule of redaction would break the document")
                return own
        return self._own(data)

    def _own(self, data: bytes) -> bytes:
        for pattern in self._patterns:
            data = pattern.sub(REDACTED, data)
        return data

    def _without_secrets(
        self, text: bytes, places: Sequence[tuple[int, bytes]] | None = None
    ) -> bytes:
        """Return a text without values that are known, have a known form, or a telling name."""
        before = text
        text = self._own(text)
        if self.is_strict:
            text = self.strict.without_constants(text)
        if places is None or text is not before:
            places = self._words.places(text)
        found = self._found(text, places)
        if not found:
            return text
        # Once more: a secret that stood right before another, or within its name, hides it.
        text = _without(text, found)
        return _without(text, self._found(text, self._words.places(text)))

    def _found(self, text: bytes, places: Sequence[tuple[int, bytes]]) -> set[tuple[int, int]]:
        """Return the spans of secrets in a text, and learn the secrets that have a name.

        Every rule gets the whole text. If known secrets were taken out before, a longer secret that
        contains one would lose its form.
        """
        named = {
            (start, end)
            for start, end in (*names.spans(text, places), *_random(text))
            if not self._is_cleared(text[start:end])
        }
        by_context = set(tokens.found_by_context(text, places))
        for value in _joined(text, named):
            self._learn(value)
        for start, end in by_context:
            self._learn(text[start:end])
        formed = (*tokens.spans(text, places), *_values(text, places))
        return named.union(by_context, formed, self._known.spans(text))

    def _is_cleared(self, found: bytes) -> bool:
        return self._known.is_cleared(unescaped(found))

    def _learn(self, found: bytes) -> None:
        """Learn a value, which may come again without its name: in bytecode, or in a message."""
        value = unescaped(found)
        if name_strength.is_name(value):  # `credentials=("token", "x")`: it is in other places, too
            return
        # Of a formatted string the pieces are what is in the code.
        pieces = _PLACE.split(value) if "{" in value else ()
        if max([self._known.add(text.strip()) for text in (value, *pieces)]):
            self._forget_texts()


def _source(file: str) -> bytes:
    """Return the source in a file, or the text typed into a notebook or a prompt."""
    with suppress(OSError), open(file, "rb") as source:
        return source.read(_MOST_SOURCE)
    typed = linecache.cache.get(file, ())
    return "".join(typed[2]).encode("utf-8", "surrogatepass") if len(typed) > 2 else b""


def _without(text: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= done:
            parts += [text[done:start], REDACTED]
        done = max(done, end)
    return b"".join([*parts, text[done:]])


def _joined(text: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield each found string, and the joined text of strings next to one another."""
    whole, before = b"", 0
    for start, end in sorted(spans):
        if start >= end:
            continue
        if whole and _BETWEEN_STRINGS.fullmatch(text, before, start):
            whole += text[start:end]
            yield whole
        else:
            whole = text[start:end]
        before = end
        yield text[start:end]


def _values(text: bytes, places: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, int]]:
    for at, word in places:
        if word == _TENSOR:
            match = _compiled(_TENSOR_VALUES).match(text, at)
            if match is not None:
                yield match.span(1)


def _random(text: bytes) -> Iterable[tuple[int, int]]:
    """Return the spans of the strings that look like a key."""
    return (match.span(1) for match in _MIXED.finditer(text) if _is_random(text, match))


def _is_random(text: bytes, match: re.Match[bytes]) -> bool:
    """Return True if a text looks like a key: both cases and digits, well mixed, or hex."""
    found = match[1]
    if _DIGIT.search(found) is None:
        return False
    if _compiled(_HEX).fullmatch(found):
        before = text[max(0, match.start() - 48) : match.start()]
        return _compiled(_OF_CODE).search(before) is None
    return not found.islower() and not found.isupper() and _is_mixed(found)


def _is_mixed(text: bytes) -> bool:
    """Return True if letters and digits alternate or, in a long text, few characters repeat."""
    if len(_compiled(_TURNS).findall(text)) >= 4:
        return True
    return len(text) >= _LONG and _entropy(text) >= _MUCH_ENTROPY


def _entropy(text: bytes) -> float:
    """Return the entropy of its characters, in bits (Shannon, 1948)."""
    counts = (text.count(byte) for byte in set(text))
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def _secret_values(environ: Mapping[str, str], argv: Sequence[str]) -> set[str]:
    """Return the values that this process got under names of secrets, or as passwords in URLs."""
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
    """Return True for a path, a word or a size, as in SSH_AUTH_SOCK or TOKENIZERS_..."""
    if value.isdigit():
        return len(value) < _LEAST_DIGITS
    return value.lower() in ("default", "enabled", "disabled") or _is_path(value)


def _is_path(value: str) -> bool:
    """Return True for a path that leads somewhere; a key in base64 may begin like one."""
    folder = os.path.dirname(os.path.expanduser(value))
    is_relative = value.startswith(("./", "../"))
    return is_relative or (folder[:1] == "/" and folder != "/" and os.path.isdir(folder))


def _place_of(value: str) -> Where:
    return Where.WHOLE if value.isdigit() else Where.ANYWHERE


def _is_text(data: bytes) -> bool:
    """Return True if these bytes are a text, and not a pickle for example."""
    return b"\x00" not in data[:4096] and data[:1] != b"\x80"
