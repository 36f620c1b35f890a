"""Makes the Triton kernels of a program anew, from their source in the event log.

A kernel is code: `define` runs it, and is called for a store that is trusted alone.  Not here:
joining the kernels to a checkpoint (`replay.imposed.kernels`).
"""

from __future__ import annotations

import importlib
import linecache
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json

_IMPORTABLE = ("triton", "math")
_MOST_DEEP = 16
_ALWAYS: Mapping[str, Json] = {
    "triton": ["module", "triton"],
    "tl": ["module", "triton.language"],
}
"""The meanings of these in a kernel where the event log does not say."""


_CROOKED = (AttributeError, LookupError, NameError, SyntaxError, TypeError, ValueError)
"""The errors of a row, or of a source, that is not what a recorder writes."""


def define(rows: Json) -> set[int]:
    """Make kernels, under the numbers that nodes call them by; returns those numbers.

    Runs code of the store.  Raises UnsupportedError for a kernel that can't be made here.
    """
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table as table

    defined = set()
    for row in rows if isinstance(rows, list) else ():
        try:
            number, kernel = row["number"], _described(row)
            constants = {name: _value(form) for name, form in row["constants"].items()}
            table.id_to_kernel[number] = kernel
            table.kernel_to_id[kernel] = number
            table.constant_args[row["constants_number"]] = constants
        except (
            AttributeError,
            LookupError,
            NameError,
            SyntaxError,
            TypeError,
            ValueError,
        ) as error:
            raise UnsupportedError(
                f"a Triton kernel can't be made of its source: {type(error).__name__}: {error}"
            ) from error
        defined.add(number)
    return defined


def _described(row: Mapping[str, Any]) -> Any:
    place = _PLACE.search(str(row["function"]))
    file, line = (place[1], int(place[2])) if place else ("", 1)
    kernel = _kernel(str(row["name"]), str(row["source"]), row["names"], file, line)
    return _tuned(kernel, row["configurations"], row["key"]) if row["configurations"] else kernel


_PLACE = re.compile(r"\((.+):(\d{1,6})\)$")
_CONFIGURATION = re.compile(r"(\w+): ([^,]+)(?:, |$)")
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")


def _tuned(kernel: Any, configurations: Sequence[object], key: Sequence[str]) -> Any:
    """Return a kernel with the configurations that Triton printed: 'BLOCK: 128, num_warps: 4'."""
    import triton

    found = []
    for text in configurations:
        values = {name: _printed(value) for name, value in _CONFIGURATION.findall(str(text))}
        options = {name: values.pop(name) for name in _OPTIONS if name in values}
        found.append(triton.Config(values, **options))
    return triton.autotune(configs=found, key=list(key))(kernel)


def _printed(text: str) -> object:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        return int(text)
    except ValueError:
        return float(text) if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) else text


def _kernel(
    name: str, source: str, names: Mapping[str, Json], file: str = "", line: int = 1, deep: int = 0
) -> Any:
    """Return the kernel of a source text, which is run as if it stood in a line of a file.

    Generated code names both.
    """
    import triton

    if deep > _MOST_DEEP:
        raise UnsupportedError(
            f"Triton kernels call each other more than {_MOST_DEEP} levels deep."
        )
    space = {key: _meaning(key, form, deep) for key, form in {**_ALWAYS, **names}.items()}
    file = file or f"<triton kernel {name} {len(linecache.cache)}>"
    _show(file, line, source)
    exec(compile("\n" * (line - 1) + source, file, "exec"), space)
    return triton.jit(space[name])


def _show(file: str, line: int, source: str) -> None:
    """Let Python find a source in its line of a file: Triton reads it from there."""
    known = linecache.cache.get(file)
    before: list[str] = list(known[2]) if known is not None and len(known) == 4 else []
    mine = source.splitlines(keepends=True)
    before += ["\n"] * (line - 1 - len(before))
    before[line - 1 : line - 1 + len(mine)] = mine
    linecache.cache[file] = (sum(map(len, before)), None, before, file)


def _meaning(name: str, form: Json, deep: int) -> Any:
    match form:
        case ["module", str(module)] if _is_importable(module):
            return importlib.import_module(module)
        case ["attribute", str(module), str(attribute)] if _is_importable(module):
            return getattr(importlib.import_module(module), attribute)
        case ["value", bool() | int() | float() | str() as value]:
            return value
        case ["constexpr", bool() | int() | float() | str() as value]:
            import triton.language as tl

            return tl.constexpr(value)
        case ["kernel", str(source), dict() as names]:
            return _kernel(name, source, names, deep=deep + 1)
    raise UnsupportedError(
        f"A Triton kernel uses {name!r:.60}, and the store does not say what it is."
    )


def _is_importable(module: str) -> bool:
    return module.partition(".")[0] in _IMPORTABLE


def _value(form: Json) -> Any:
    """Return the argument that `formats.triton_names` wrote."""
    return _meaning("an argument", form, 0) if isinstance(form, list) else form
