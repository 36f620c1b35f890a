"""The values that may leave, by where they stand.

Lives here: one question, may this value stand at this place? Whatever no rule allows is a finding;
so a table, a key or a kind of blob that nobody thought of is one. Not here: what a finding is of
(`finding_kinds`), where the values come from (`walk`).
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torchreel
from torchreel.sharing import words_of_torch
from torchreel.sharing.audit.walk import KEY, LINE, Leaf
from torchreel.sharing.pseudonyms import FORM

_PLAIN_INTEGER = 16
_NUMBERS = "numbers"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FLOAT = re.compile(r"-?0x[0-9a-f]+\.?[0-9a-f]*p[+-]?\d+|-?inf|nan")
_COMPILE = re.compile(r"\d{1,4}/\d{1,4}")
_SYMBOL = re.compile(r"(?:zuf|zf|uf|zs|s|u|f|i|b|t|n)\d{1,6}")
_DEVICE = re.compile(r"(?:cpu|cuda|meta|xpu|mps|hpu)(?::\d{1,3})?")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TARGET = re.compile(r"(?:op|packet|hop|fn):[\w.]+")
_VERSION = re.compile(
    r"\d{1,4}(?:\.\d{1,4}){1,3}(?:(?:\.dev|a|b|rc)\d{1,8})?(?:\+(?:cpu|cu\d{2,4}|xpu|rocm[\d.]+))?"
)
_MACHINES = ("x86_64", "aarch64", "arm64", "AMD64")
_OPERAND = r"(?:-?\d{1,19}|[A-Za-z_]\w*|\$-?\w+|\"[^\"]*\")"
_EXPRESSION = re.compile(rf"\s*+(?:{_OPERAND}\s*+)?+(?:[(),]\s*+(?:{_OPERAND}\s*+)?+)*+", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_LONG_NUMBER = re.compile(r"\d{5}|\d+(?:[.\s-]\d+){3}")
"""A number that may be one of a person or a machine: telephone, card, IP address."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|complex\([^a-z]*\)|-?inf|nan")
# Keys whose values are names that a program gives.
_NAMES = frozenset({
    "name", "frame_name", "frame_file", "cwd", "argv", "local_name", "global_name", "member",
    "file", "run", "target:placeholder", "target:get_attr", "target:call_module", "n", "function",
    "qualname", "nn_module_stack", "source_fn_stack", "stack_trace", "frame_source",
})  # fmt: skip
# Objects whose keys are names that a program gives.
_NAMED = frozenset({"attributes", "modules", "original_names", "name_counts", "operators"})
_OWN_NAMES = frozenset({"output", "shared", "SIZE", "STRIDE", "STORAGE_OFFSET"})
_TIMES = ("started_ns", "ended_ns", "time_ns", "pushed_ns", "pid", "seconds", "rank")
# Whole numbers here are the user's own, or may be.
_WITH_NUMBERS = ("args", "kwargs", "data", "v", "literal", "value")
# Where tensors lie, and how large they are: that leaves in any event.
_OF_TENSORS = (
    "size", "stride", "offset", "storage", "storage_size", "object", "unreplaced", "hint", "expr",
    "blocks", "dense_dim",
)  # fmt: skip


def allows(leaf: Leaf, declared: frozenset[str]) -> bool:
    """Return True if a value may stand where it does.

    `declared` are numbers of which the bundle says that the failure needs them.
    """
    value = leaf.value
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return _allows_text(leaf, value, declared)
    if leaf.place[-1] in _TIMES:
        return value == 0 or leaf.place[0] == "verdicts"
    if isinstance(value, float):
        return leaf.place[0] in ("reductions", "verdicts") or _plain(value, declared)
    return _allows_integer(leaf, value, declared)


def _plain(number: float, declared: frozenset[str]) -> bool:
    known = number in (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1.5) or number != number
    return known or abs(number) == float("inf") or repr(number) in declared


def _allows_integer(leaf: Leaf, value: int, declared: frozenset[str]) -> bool:
    if leaf.place[0] != "blob" or not any(step in _WITH_NUMBERS for step in leaf.place):
        return True
    if leaf.place[-1] in _OF_TENSORS:
        return True
    small = abs(value) <= _PLAIN_INTEGER or abs(value) >= 2**63 - 1
    return small or abs(value) in leaf.sizes or str(value) in declared


def _allows_text(leaf: Leaf, text: str, declared: frozenset[str]) -> bool:
    place, last = leaf.place, leaf.place[-1]
    if text == "" or _is_pseudonym(text):
        return True
    if not text.isascii():  # what follows knows the words of torch
        return False
    if place[0] == "schema":
        return last != LINE and text in _schema_names()
    if place[0] == "environment":
        return _allows_environment(leaf, text)
    if last == LINE:
        return False
    if last == KEY:
        return _allows_key(place[-2], text)
    if last in ("f", "c"):
        return bool(_FLOAT.fullmatch(text)) and _plain(float_of(text), declared)
    if last in _NAMES:
        return text in _OWN_NAMES
    if last in ("message", "frames", "exception_types", "exception_type"):
        return _is_of_torch(text) and not has_long_number(text)
    if last == "needed":
        return bool(_NUMBER.fullmatch(text))
    if last == "device":
        return bool(_DEVICE.fullmatch(text))
    if _INTEGER.fullmatch(text):
        return abs(int(text)) <= _PLAIN_INTEGER or text in declared or abs(int(text)) in leaf.sizes
    return _is_form(text, declared) or _is_word(place, text)


def _is_form(text: str, declared: frozenset[str]) -> bool:
    """Return True for a digest, an address, a target or an expression."""
    if _DIGEST.fullmatch(text) or _COMPILE.fullmatch(text) or _SYMBOL.fullmatch(text):
        return True
    if _TARGET.fullmatch(text):
        return all(_is_known(part) for part in text.partition(":")[2].split("."))
    return _is_expression(text, declared) or _is_schema(text)


def _is_word(place: Sequence[str], text: str) -> bool:
    """Return True for a word of torch's or torchreel's; in a call, for an option of torch's."""
    if any(step in ("args", "kwargs", "literal") for step in place):
        tagged = place[-1] in ("dtype", "layout", "memory_format", "type", "fn", "op", "k")
        named = tagged or place[-1].startswith("target")
        return (
            (named and all(map(_is_known, text.split("."))))
            or text in words_of_torch.options()
            or _is_equation(text)
        )
    return len(text) < 200 and bool(text) and all(map(_is_known, text.replace(":", ".").split(".")))


def _is_pseudonym(text: str) -> bool:
    parts = text.split(".")
    if len(parts) > 4:
        return False
    named = [part for part in parts if FORM.fullmatch(part)]
    return len(named) == len(parts) or (
        len(parts) == 3 and parts[2] == "default" and len(named) == 2
    )


def _allows_key(owner: str, text: str) -> bool:
    if owner in _NAMED:
        return False  # a pseudonym is allowed anywhere
    if owner == "ambient":
        return text in _ambient_names()
    if owner == "symbols":
        return bool(_SYMBOL.fullmatch(text))
    return all(map(_is_known, text.split(".")))


def _allows_environment(leaf: Leaf, text: str) -> bool:
    if leaf.place[-1] == "key":
        return text in ("torch", "python", "machine")
    if leaf.row == "machine":
        return text in _MACHINES
    return leaf.row in ("torch", "python") and bool(_VERSION.fullmatch(text))


def _is_known(part: str) -> bool:
    """Return True for a word of torch, Python or torchreel, or a number."""
    if FORM.fullmatch(part) or (len(part) < 3 and part.isdigit() and int(part) <= _PLAIN_INTEGER):
        return True
    return part in words_of_torch.words().names or part in own_words() or hasattr(builtins, part)


def _is_of_torch(text: str) -> bool:
    """Return True if each word of a message is in torch's own texts, or is a pseudonym."""
    return not unknown_words(text)


def has_long_number(text: str) -> bool:
    """Return True for a number in a text that may be one of a person or a machine."""
    return _LONG_NUMBER.search(text) is not None


def unknown_words(text: str) -> list[str]:
    """Return the words of a text that are neither torch's nor pseudonyms."""
    said = words_of_torch.words().words
    return [
        word
        for word in _WORD.findall(text)
        if word.lower() not in said and not _is_known(word) and len(word) > 1
    ]


def _is_expression(text: str, declared: frozenset[str]) -> bool:
    from torchreel.formats import symbols

    if not _EXPRESSION.fullmatch(text):
        return False
    bare, known = text, symbols.function_names()
    for quoted in re.findall(r'"([^"]*)"', text):
        if not _FLOAT.fullmatch(quoted) or not _plain(float_of(quoted), declared):
            return False
        bare = bare.replace(f'"{quoted}"', "")
    for constant in re.findall(r"\$-?\w+", bare):
        if constant not in symbols.constant_names():
            return False
        bare = bare.replace(constant, "")
    return all(_SYMBOL.fullmatch(word) or word in known for word in _IDENTIFIER.findall(bare))


_TYPES = frozenset({
    "Tensor", "int", "float", "bool", "str", "complex", "SymInt", "SymFloat", "SymBool", "Scalar",
    "Device", "ScalarType", "Layout", "MemoryFormat", "Generator", "None", "True", "False", "a",
    "b", "c", "d", "e", "Any", "Dict",
})  # fmt: skip


def _is_schema(text: str) -> bool:
    head, bracket, rest = text.partition("(")
    if not bracket or not all(map(_is_pseudonym, head.replace("::", ".").split("."))):
        return False
    numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", rest)
    if not all(abs(float(one)) <= _PLAIN_INTEGER and float(one) * 2 % 1 == 0 for one in numbers):
        return False
    return all(word in _TYPES or FORM.fullmatch(word) for word in _IDENTIFIER.findall(rest))


def _is_equation(text: str) -> bool:
    from torchreel.errors import UnsupportedError
    from torchreel.sharing.constructed.arguments import equation

    try:
        return equation(text) == text
    except UnsupportedError:
        return False


def float_of(text: str) -> float:
    """Return the float that a text in hex stands for; for any other text, a float that stays."""
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return 0.1234567


@cache
def own_words() -> frozenset[str]:
    """Return the names and one-word texts in torchreel's own modules."""
    return words_of_torch.names_below(Path(torchreel.__file__).parent)


@cache
def _ambient_names() -> frozenset[str]:
    from torchreel.formats.checkpoints.ambient import STATE

    return frozenset({*STATE, "dispatch_below", "compiled_autograd"})


def is_of_schema(text: str) -> bool:
    """Return True for a rest of SQLite's own list of tables, of which it writes entries twice."""
    return bool(_schema_entry().fullmatch(text))


@cache
def _schema_entry() -> re.Pattern[str]:
    names = "|".join(sorted(map(re.escape, _schema_names()), key=len, reverse=True))
    return re.compile(rf".{{0,3}}(?:table|index)(?:{names})+.{{0,2}}")


@cache
def _schema_names() -> frozenset[str]:
    from torchreel.store.schema import metadata

    columns = {column.name for table in metadata.tables.values() for column in table.c}
    return frozenset({*metadata.tables, *columns, "alembic_version", "version_num"})
