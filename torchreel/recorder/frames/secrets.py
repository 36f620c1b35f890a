"""Finds secrets in a frame: text under a name that says it is one ("password").

Lives here: looking at names of variables, at their values, and at constants of the bytecode that go
into them.  Not here: what is done with what is found (`redaction`).  Called where a compile begins,
where an exception passes and where a frame bundle is made; a frame without telling names costs a
look at each name.
"""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from types import CellType, CodeType, FrameType, ModuleType
from typing import Any

from torchreel.recorder.redaction import SECRET_NAME
from torchreel.recorder.redaction.known import name_strength
from torchreel.store.failures.raised import lineage

_SHORTEST = 4
_LONGEST = 4096
_LEAST = 100_000
"""A smaller number is a size, a count or a switch."""
_DEEPEST = 4
_MOST = 50
"""Characters, levels and items: what is looked at of one value."""
_LIBRARY = os.path.dirname(os.__file__)
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_MADE = ("<frozen ", "<eval_with_key>")
"""Code that Python and torch made of text.  What has no file otherwise was typed into a prompt, a
notebook or a command line (`<stdin>`, `<string>`, `<input>`): it is the program's own."""
_STORES = frozenset({"STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"})


@lru_cache(4096)
def is_telling(name: str) -> bool:
    """Return True if the name says that its value is secret."""
    return SECRET_NAME.search(name) is not None


def of_frame(
    code: CodeType,
    scope: Mapping[str, Any],
    values: Mapping[str, Any],
    cells: Sequence[CellType],
) -> set[str]:
    """Return secrets among the globals, arguments and constants of a frame, and in its closure.

    A word under a name that may be one of a dict's keys is none in code of a library, which calls
    much a `key`.
    """
    found: set[str] = set()
    of_library = is_installed(code.co_filename)
    for name in filter(is_telling, code.co_names):
        found.update(_under(name, scope.get(name), of_library))
    for name in filter(is_telling, code.co_varnames):
        found.update(_under(name, _content(values.get(name)), of_library))
    for name, cell in zip(code.co_freevars, cells, strict=False):
        if is_telling(name):
            found.update(_under(name, _content(cell), of_library))
    found.update(of_code(code))
    if not of_library:
        found.update(_of_module(scope))
    return found


def _under(name: str, value: object, of_library: bool = False) -> Iterator[str]:
    """Yield the texts in a value under a telling name, but for words under the name of a model."""
    is_plain = name_strength.is_plain
    return (text for text in texts(value) if not is_plain(text, name, of_library=of_library))


def _of_module(scope: Mapping[str, Any]) -> Iterator[str]:
    """Yield secrets among all globals of a frame, and in the program's modules and classes in
    them.
    """
    yield from _named(scope)
    for value in list(scope.values()):
        if type(value) is ModuleType:
            file = vars(value).get("__file__")
            if type(file) is str and not is_installed(file):
                yield from _named(vars(value))
        elif type(value) is type:
            yield from _named(vars(value))


def _named(scope: Mapping[str, Any]) -> Iterator[str]:
    """Yield secrets under telling names."""
    for name, value in list(scope.items()):
        # A program may put anything there; a class of its own for a name would run its code.
        sure = name_strength.strength(name) if type(name) is str else name_strength.NOT
        if sure is not name_strength.NOT:
            yield from (text for text in texts(value) if name_strength.is_value(text, sure))


def of_error(error: BaseException) -> Iterator[tuple[set[str], str]]:
    """Yield secrets of each of the program's own frames that an exception came through, and its
    file.
    """
    running = _running()
    for found in lineage(error):
        traceback = found.__traceback__
        while traceback is not None:
            frame, traceback = traceback.tb_frame, traceback.tb_next
            code = frame.f_code
            if is_installed(code.co_filename):
                continue
            names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
            telling = list(filter(is_telling, names))
            # Python makes a dict of them, which keeps them alive as long as the frame runs.
            values = frame.f_locals if telling and id(frame) not in running else {}
            secrets = of_frame(code, frame.f_globals, values, ())
            for name in telling:
                secrets.update(_under(name, values.get(name)))
            yield secrets, code.co_filename


def messages(error: BaseException) -> Iterator[str]:
    """Yield the program's own messages in an exception and its causes and contexts.

    An exception that a library raised is left out, except for its notes.
    """
    for found in lineage(error):
        place = found.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        if place is None or not is_installed(place.tb_frame.f_code.co_filename):
            yield str(found)
            yield from texts(found.args)
        yield from texts(getattr(found, "__notes__", None))


def constants(
    code: CodeType, scope: Mapping[str, Any], values: Mapping[str, Any], cells: Sequence[CellType]
) -> Iterator[str]:
    """Yield the texts in the code of a frame, its arguments, its closure, and globals that it
    names.
    """
    yield from _texts_of_code(code)
    for name in code.co_names:
        yield from texts(scope.get(name), keys=True)
    for value in (*values.values(), *cells):
        yield from texts(_content(value), keys=True)


def _texts_of_code(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts_of_code(constant)
        else:
            yield from texts(constant)


def _running() -> set[int]:
    """Return the ids of the frames that this thread is in."""
    frame: FrameType | None = sys._getframe(1)
    found = set()
    while frame is not None:
        found.add(id(frame))
        frame = frame.f_back
    return found


@lru_cache(4096)
def is_installed(file: str) -> bool:
    """Return True if a file is part of Python or of a package: it is no secret."""
    if file.startswith("<"):
        return file.startswith(_MADE)
    torch = getattr(sys.modules.get("torch"), "__file__", None) or _LIBRARY
    return (
        "site-packages" in file
        or "dist-packages" in file
        or file.startswith((_LIBRARY + os.sep, _OURS + os.sep))
        or file.startswith(os.path.dirname(torch) + os.sep)
    )


def of_code(code: CodeType) -> Iterator[str]:
    """Yield constants that the code, or a function in it, puts under a telling name."""
    names = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    if any(map(is_telling, names)):
        value: object = None
        named = False
        pieces: list[object] = []
        for instruction in dis.get_instructions(code):
            compared = instruction.opname == "COMPARE_OP" and named and type(value) is int
            stored = instruction.opname in _STORES and is_telling(str(instruction.argval))
            if stored or compared:
                yield from _under(str(instruction.argval) if stored else "", value)
            if instruction.opname == "LOAD_CONST":
                value = instruction.argval
                pieces.append(value)
            elif instruction.opname == "BUILD_STRING":  # of a formatted string
                value, named = pieces, False
            else:
                if instruction.opname in _STORES or instruction.opname == "POP_TOP":
                    pieces = []
                value, named = None, is_telling(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from of_code(constant)


def texts(value: object, depth: int = 0, *, keys: bool = False) -> Iterator[str]:
    """Yield the strings in a value and in built-in collections; never calls other objects."""
    kind = type(value)
    if kind is str:
        text: str = value  # type: ignore[assignment]
        if _SHORTEST <= len(text) <= _LONGEST:
            yield text
    elif kind is int:
        if value >= _LEAST:  # type: ignore[operator]
            yield str(value)
    elif kind is bytes:
        if len(value) <= _LONGEST:  # type: ignore[arg-type]
            yield from texts(value.decode("latin-1"), depth)  # type: ignore[attr-defined]
    elif depth < _DEEPEST and kind is dict:
        if keys:
            yield from _texts_of(value, depth, keys)  # type: ignore[arg-type]
        yield from _texts_of(value.values(), depth, keys)  # type: ignore[attr-defined]
    elif depth < _DEEPEST and kind in (list, tuple, set, frozenset):
        yield from _texts_of(value, depth, keys)  # type: ignore[arg-type]


def _texts_of(items: Iterable[object], depth: int, keys: bool = False) -> Iterator[str]:
    # A copy of the first ones, as another thread may change it; of all it could take gigabytes.
    for item in list(islice(items, _MOST)):
        yield from texts(item, depth + 1, keys=keys)


def _content(value: object) -> object:
    """Return the content of a cell, None if empty; any other value as it is."""
    if type(value) is not CellType:
        return value
    try:
        return value.cell_contents
    except ValueError:
        return None
