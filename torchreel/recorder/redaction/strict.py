"""The level `all`: no string and no number of the program, but what the compiler itself needs.

Lives here: what is kept of a JSON document, a setting, a command line.  What is kept of a text is
in `strict_text`, the same in a table in docs/redaction.md.  Not here: secrets by their name or
form, which are gone before.  Called by `redactor` and `writer`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from torchreel.patterns import lazy_text
from torchreel.recorder.redaction import documents, strict_text, words_of_torch
from torchreel.recorder.redaction.known.values import KnownValues, Where
from torchreel.recorder.redaction.level import REDACTED

_MARK = REDACTED.decode()
_STACKS_OF = frozenset(
    {"stack_trace", "stack_traces", "output_stack_trace", "output_stack_traces", "loc"}
)
_OF_SHAPES = frozenset({"shape_env", "env", "ranges", "expr", "expression", "symbols"})
"""Keys of facts about shapes: numbers there are sizes."""
_SETTING = {"key", "module", "portable", "value"}
_SCALAR = ["source", "type", "expr", "value"]
"""Fields of an event: a number of the program, and its symbol if it has one."""
_CONTAINERS = frozenset({"t", "d", "slice", "size"})
"""Tags of the portable form of values that hold values; all others say what a text stands for."""
_LITERAL = {"literal"}
"""Tag of an argument of a custom operator (`formats.operators`)."""
_GUARDED, _CONSTANT = {"key"}, {"k", "v"}
_OPTIONS = "options"
"""Values that the program gives its backend."""
_ANNOTATIONS = "custom"
"""Member of a node's `meta`: `torch.fx.traceback.annotate`."""
_KEYS = frozenset({"job_id", "pgo_extra_read_key", "pgo_extra_write_key", "cache_key"})
"""Settings by which jobs share what they learn, in torch's dumps, and a key made of one."""
_HASH = lazy_text(r"\w*")
_PROSE = lazy_text(r"['\"]|[A-Za-z]{2,} |[=!<>]=|\n")
_HEAD, _BETWEEN, _TAIL = b"[\n", b",\n", b"\n]"


class Strict:
    """Redacts texts and documents as the level `all` does."""

    def __init__(self) -> None:
        self._constants = KnownValues()
        self._settings: set[str] = set()
        self._string = lru_cache(4096)(self._string_of)

    def learn(self, texts: Iterable[str]) -> bool:
        """Learn texts of code and messages, to redact them in prose; return True if any is new."""
        new = [self._constants.add(text, where) for text in texts if (where := _place(text))]
        if any(new):
            self._string.cache_clear()
        return any(new)

    def clear(self, words: Iterable[str]) -> None:
        """Leave these from now on: the compiler needs them."""
        if self._constants.clear(words):
            self._string.cache_clear()

    def without_constants(self, data: bytes) -> bytes:
        """Return a text without the texts of the program, before one of them loses a part."""
        data = strict_text.without_stacks(data)
        return self._constants.removed_from(data) if b" " in data else data

    def text(self, data: bytes, *, numbers: bool = True) -> bytes:
        """Return a text without strings, numbers, lines of source and directories."""
        return strict_text.text(self._constants.removed_from(data), numbers=numbers)

    def document(self, data: bytes) -> bytes:
        """Return a JSON document without them; any other bytes as text."""
        if data.startswith(_HEAD) and data.endswith(_TAIL):  # events: a document a line
            lines = data.removeprefix(_HEAD).removesuffix(_TAIL).split(_BETWEEN)
            if all(map(documents.is_document, lines)):
                return _HEAD + _BETWEEN.join(map(self.document, lines)) + _TAIL
        if not documents.is_document(data):
            return self.text(data)
        value = json.loads(data.decode("utf-8", "surrogatepass"))
        found = _Walk(self).document(value)
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")

    def string(self, value: str, numbers: bool) -> str:
        """Return a string of a document; `numbers` says whether those in prose are taken out."""
        return _MARK if value in self._settings else self._string(value, numbers)

    def _string_of(self, value: str, numbers: bool) -> str:
        data = value.encode("utf-8", "surrogatepass")
        if documents.is_document(data):
            return self.document(data).decode("utf-8", "surrogatepass")
        if not _PROSE.search(value):
            return strict_text.text(data, numbers=False).decode("utf-8", "surrogatepass")
        return self.text(data, numbers=numbers).decode("utf-8", "surrogatepass")

    def setting(self, module: str, value: Any) -> Any:
        """Return a setting of torch: text is kept if torch's own module of settings has its
        words.
        """
        if isinstance(value, str):
            if words_of_torch.words_of(module).issuperset(re.findall(r"\w+", value)):
                return value
            self._settings.add(value)
            return _MARK
        if isinstance(value, list):
            return [self.setting(module, item) for item in value]
        if isinstance(value, dict):
            return {name: self.setting(module, item) for name, item in value.items()}
        return value


def _place(constant: str) -> Where | None:
    """Return the places where a text of the program's code is taken out; None for a plain word."""
    if re.search(r"\W", constant):
        return Where.ANYWHERE if len(constant) >= 6 else None
    return Where.WHOLE if len(constant) >= 6 and re.search(r"\d", constant) else None


class _Walk:
    """One document, from the top; different keys of one dictionary stay different."""

    def __init__(self, strict: Strict) -> None:
        self._strict = strict
        self._keys: dict[str, str] = {}

    def document(self, value: Any) -> Any:
        """Return the whole document."""
        fields = value.get("fields") if isinstance(value, dict) else None
        if fields == _SCALAR:
            value = {**value, "data": [self._scalar(*row) for row in value["data"]]}
        return self._value(value, "", not (isinstance(fields, list) and fields[:1] == ["env"]))

    @staticmethod
    def _scalar(source: Any, kind: Any, expr: Any, number: Any) -> list[Any]:
        """Redact a number without a symbol: it is the program's alone."""
        return [source, kind, expr, _MARK if expr is None else number]

    def _value(self, value: Any, key: str, numbers: bool) -> Any:
        if isinstance(value, str):
            if key in _KEYS and (key != "cache_key" or not _HASH.fullmatch(value)):
                return _MARK
            return "" if key in _STACKS_OF else self._strict.string(value, numbers)
        if isinstance(value, list):
            if key in _STACKS_OF and all(item is None or isinstance(item, str) for item in value):
                return ""
            return [self._value(item, key, numbers) for item in value]
        return self._mapping(value, numbers) if isinstance(value, dict) else value

    def _mapping(self, value: Mapping[str, Any], numbers: bool) -> Any:
        if value.keys() == _SETTING:
            return {**value, "value": self._strict.setting(str(value["module"]), value["value"])}
        if "target" in value and "op" in value and "args" in value:
            return self._node(value, numbers)
        if value.keys() == _LITERAL:
            return {"literal": _argument(value["literal"])}
        if value.keys() == _GUARDED and isinstance(value["key"], str):  # of `"key" in dict`
            return {"key": self._key(value["key"])}
        if value.keys() == _CONSTANT:  # an argument of an export that is no tensor
            return {**value, "v": _without_strings(value["v"])}
        if value.get("source") == "DictGetItemSource" and isinstance(value.get("index"), str | int):
            value = {**value, "index": self._key(value["index"])}
        return {
            self._name(name, numbers): self._member(name, item, numbers)
            for name, item in value.items()
        }

    def _member(self, name: str, item: Any, numbers: bool) -> Any:
        if name == _OPTIONS:
            return _without_strings(item)
        if name == _ANNOTATIONS and isinstance(item, dict):
            return self._annotation(item)
        return self._value(item, name, numbers and name not in _OF_SHAPES)

    def _annotation(self, value: Any) -> Any:
        """Return what the program notes at a node: other texts stay others."""
        if isinstance(value, str):
            return self._key(value)
        if isinstance(value, list):
            return [self._annotation(item) for item in value]
        if isinstance(value, dict):
            return {tag: self._annotation(item) for tag, item in value.items()}
        return value

    def _name(self, name: str, numbers: bool) -> str:
        """Return a key of an object: a name, or an expression with quotes in it."""
        is_text = any(character in name for character in "'\" ")
        return self._strict.string(name, numbers) if is_text else name

    def _node(self, node: Mapping[str, Any], numbers: bool) -> dict[str, Any]:
        """Return a node, redacted: all text in a call of an operator of the program goes."""
        from torchreel.formats.graphs import public_texts

        found = {
            name: item if name in ("args", "kwargs") else self._value(item, name, numbers)
            for name, item in node.items()
        }
        target = str(node["target"])
        if node["op"] == "call_function" and not public_texts.computes(target):
            found["args"] = [_argument(item) for item in node["args"]]
            kwargs = node.get("kwargs") or {}
            found["kwargs"] = {name: _argument(item) for name, item in kwargs.items()}
        return found

    def _key(self, key: object) -> str:
        """Return a pseudonym for a key of the program's dictionary, the same for the same key."""
        return self._keys.setdefault(repr(key), f"<redacted {len(self._keys) + 1}>")


def _argument(value: Any) -> Any:
    """Return an argument in its portable form, without its strings."""
    if isinstance(value, str):
        return _MARK if value else value
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if isinstance(value, dict) and value.keys() <= _CONTAINERS:
        return {tag: _argument(item) for tag, item in value.items()}
    return value


def _without_strings(value: Any) -> Any:
    if isinstance(value, str):
        return _MARK if value else value
    if isinstance(value, list):
        return [_without_strings(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_strings(item) for name, item in value.items()}
    return value


# -- columns ------------------------------------------------------------------------------------

_NUMBER_OR_SWITCH = r"-?\d{1,6}|(?i:true|false|on|off|yes|no|)|<\w+>"


def arguments(argv: Sequence[str]) -> list[str]:
    """Return a command line: the names of the interpreter, of the program and of its options."""
    found = [argument.rpartition("/")[2] for argument in argv[:1]]
    for before, argument in itertools.pairwise(argv):
        name, equals, _ = argument.partition("=")
        if re.fullmatch(r"--[A-Za-z][\w-]{0,40}|-[A-Za-z]", name):
            found.append(f"{name}={_MARK}" if equals else name)
        elif re.match(r"-[A-Za-z]", name):  # its value without a space: -psecret
            found.append(f"{name[:2]}{_MARK}")
        elif before == argv[0] and argument.endswith(".py"):
            found.append(argument.rpartition("/")[2])
        else:
            found.append(_MARK)
    return found


def variable(value: str) -> str:
    """Return the value of an environment variable: a number, a switch, or nothing."""
    return value if re.fullmatch(_NUMBER_OR_SWITCH, value) else _MARK
