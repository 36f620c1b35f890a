"""Describes an input that a compile had, as `torchreel guards --input` takes it.

Lives here: reading it from the guards and the symbols.  Not here: the grammar (`inputs`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.guard_check.check import guards_of
from torchreel.analysis.guard_check.inputs import abbreviated, contiguous
from torchreel.analysis.shapes import shape_events, symbol_table
from torchreel.errors import TorchreelError
from torchreel.events.guards import Guard
from torchreel.events.shape_env import ShapeEnvCreate
from torchreel.store import queries

_ARGUMENT = re.compile(r"L\['(?P<name>\w+)'\]")
_CHECK = "check_tensor("
_DEVICES = {"CPU": "", "CUDA": "cuda", "XPU": "xpu", "MPS": "mps", "Meta": "meta"}


def example_input(log: CompileEventLog) -> str | None:
    """Return a description of an argument of the compile, a tensor if there is one; None where no
    guard says what an argument was.
    """
    return next(_arguments(log), None)


def _arguments(log: CompileEventLog) -> Iterator[str]:
    found = [
        (match["name"], name.name, guard)
        for name, guard in guards_of(log)
        if (match := _ARGUMENT.fullmatch(guard.expression))
    ]
    sizes = queries.readable(log.store, lambda: _sizes(log), {}) if found else {}
    for name, _, guard in found:
        for code in guard.code:
            described = _tensor(name, code, sizes) if code.startswith(_CHECK) else None
            if described is not None:
                yield f"{name}: {described}"
    for name, type_, guard in found:
        value = _value(name, guard) if type_ in ("EQUALS_MATCH", "CONSTANT_MATCH") else None
        if value is not None:
            yield f"{name}: {value}"


def _sizes(log: CompileEventLog) -> Mapping[str, str]:
    """Return the sizes that the symbols had, by the expressions that read them."""
    if not log.of(ShapeEnvCreate.kind):
        return {}
    try:
        symbols = symbol_table(shape_events(log)).symbols.values()
    except TorchreelError:
        return {}
    return {source: str(row.hint) for row in symbols for source in row.sources}


def _tensor(name: str, code: str, sizes: Mapping[str, str]) -> str | None:
    """Return the tensor that `check_tensor(...)` asks for; None where a size is unknown."""
    try:
        call = ast.parse(code, mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        _, class_, keys, dtype, *_ = map(ast.unparse, call.args)
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        wanted = list(named["size"])
    except (SyntaxError, ValueError, RecursionError, MemoryError, KeyError, TypeError):
        return None
    size = [
        sizes.get(f"L['{name}'].size()[{at}]", "") if length is None else str(length)
        for at, length in enumerate(wanted)
    ]
    if not all(length.isdecimal() for length in size):
        return None
    words = [f"{abbreviated(dtype)}[{', '.join(size)}]", _device(keys, named.get("device"))]
    stride = named.get("stride")
    if (
        isinstance(stride, list)
        and None not in stride
        and tuple(stride) != contiguous(tuple(map(int, size)))
    ):
        words.append(f"strides {stride}")
    flag = "parameter" if class_ == "Parameter" else "requires_grad"
    words.append(flag if named.get("requires_grad") else "")
    return " ".join(filter(None, words))


def _device(keys: str, index: object) -> str:
    """Return the device of a set of dispatch keys; '' for the CPU."""
    first = re.match(r"DispatchKeySet\((\w+)", keys)
    name = _DEVICES.get(first[1], "") if first else ""
    return name if not name or index is None else f"{name}:{index}"


def _value(name: str, guard: Guard) -> str | None:
    """Return the constant that a guard compares an argument with."""
    start = f"L['{name}'] == "
    for code in guard.code:
        if code.startswith(start):
            try:
                return repr(ast.literal_eval(code.removeprefix(start)))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return None
