"""The text of bytecode, without what the program holds in its globals.

Lives here: constants that name what they are, and torch's own text of bytecode, cut.  Not here: the
events (`probes.output_graph`, `probes.trace`).

Dynamo loads any object as a constant.  For a function that it makes again, that is the dictionary
of all globals of its module, whose text is the text of every object in there.
"""

from __future__ import annotations

import dis
import enum
import re
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    ModuleType,
    NoneType,
)

from torchreel.recorder.probes.guards import type_name


def printable(code: CodeType) -> CodeType:
    """Return code whose constants print without running the program's code, or showing its data."""
    constants = tuple(map(_constant, code.co_consts))
    if all(new is old for new, old in zip(constants, code.co_consts, strict=True)):
        return code
    return code.replace(co_consts=constants)


class _Printed:
    """Stands for a constant, and prints as its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _constant(value: object) -> object:
    """Return a constant itself, or what names it where its text is not Python's or torch's own."""
    import torch

    kind = type(value)
    if kind in (tuple, frozenset):
        items = [_constant(item) for item in value]  # type: ignore[attr-defined]
        same = all(new is old for new, old in zip(items, value, strict=True))  # type: ignore[call-overload]
        return value if same else kind(items)
    if kind in _PRINTS_ITSELF or isinstance(
        value, torch.dtype | torch.device | torch.layout | torch.memory_format
    ):
        return value
    if kind is dict and type(name := value.get("__name__")) is str:  # type: ignore[attr-defined]
        return _Printed(f"<globals of {name}>")
    if isinstance(value, enum.Enum):
        return _Printed(f"<{type_name(kind)}.{value.name}>")
    return _Printed(f"<{type_name(kind)}>")


_PRINTS_ITSELF: frozenset[type] = frozenset(
    (
        NoneType, bool, int, float, complex, str, bytes, EllipsisType, CodeType, FunctionType,
        BuiltinFunctionType, ModuleType, type,
    )
)  # fmt: skip
"""Types of constants whose text Python writes, and which show nothing but themselves."""


_START = re.compile(
    r"\s*(?:\d+\s+)?(?:-->\s+)?(?:(?:>>|L\d+:)\s+)?(?:\d+\s+)?(?P<name>[A-Z][A-Z_]+)\b"
)
"""The beginning of a line of an instruction, from Python 3.11 (with offsets) to 3.14 (without)."""
_GLOBALS = re.compile(r"\(<globals of [\w.]+>\)$", re.MULTILINE)
_DICTIONARY = re.compile(r"(.*\bLOAD_CONST\s+(?:\d+ )?\()\{", re.DOTALL)


def without_globals(text: str) -> str:
    """Return a text of bytecode that torch wrote, in which no dictionary shows what it holds."""
    text = _GLOBALS.sub("(<dict>)", text)
    if "({" not in text:
        return text
    lines: list[str] = []
    cutting = False
    for line in text.splitlines(keepends=True):
        found = _START.match(line)
        if (
            cutting
            and not line.startswith("ExceptionTable")
            and (found is None or found["name"] not in dis.opmap)
        ):
            continue  # a text of several lines goes on
        dictionary = _DICTIONARY.match(line)
        cutting = dictionary is not None
        lines.append(line if dictionary is None else f"{dictionary[1]}<dict>)\n")
    return "".join(lines)
