"""Hides the recorder's own frames from Dynamo.

A probe may run where Dynamo looks at every frame that begins: in eager code that a compiled
function calls.  It would count our frames as the program's, and compile them.

Lives here: the mark on our functions, by which Dynamo leaves them alone.  What they call in turn
(the store, Python's library) is not marked: `failing_open.fail_open` turns Dynamo off meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from types import CodeType, FunctionType
from typing import Any

from torchreel.recorder import failing_open

_OURS = ("torchreel.recorder", "torchreel.torch_compat")
"""Packages with code that runs where an attach point is called, or its module is imported."""
_FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), name.rpartition(".")[2]) + os.sep
    for name in _OURS
)


def hide_recorder() -> None:
    """Have Dynamo leave out the functions of the recorder's modules, as far as they are loaded."""
    failing_open.set_eval_frame = _dynamo().set_eval_frame
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS):
            for function in _functions(vars(module), name):
                hide(function)


def hide(function: Callable[..., Any]) -> None:
    """Have Dynamo leave out a function and those that are defined in it."""
    mark = _mark()
    for code in _codes(function.__code__):
        mark(code)


@cache
def _mark() -> Callable[[CodeType], object]:
    """Return Dynamo's function that marks a code object to be skipped; looked up once."""
    dynamo = _dynamo()
    # Older versions of torch have no such mark; there Dynamo sees the recorder.
    if not hasattr(dynamo, "set_code_exec_strategy"):
        return lambda code: None
    skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT)
    return lambda code: dynamo.set_code_exec_strategy(code, skip)


def _dynamo() -> Any:
    from torch._C._dynamo import eval_frame

    return eval_frame


def _functions(members: Any, module: str) -> Iterator[FunctionType]:
    for member in list(members.values()):
        kind = type(member)
        if kind is staticmethod or kind is classmethod:
            member = member.__func__
        elif kind is property or kind is cached_property:
            member = member.fget if kind is property else member.func
        if isinstance(member, FunctionType):
            if _is_ours(member):
                yield member
        elif isinstance(member, type) and member.__module__ == module:
            yield from _functions(vars(member), module)


def _is_ours(function: FunctionType) -> bool:
    """Judge by its file: what a decorator makes of ours may be code that others use as well."""
    is_constructor = function.__module__.startswith("namedtuple_")
    return is_constructor or function.__code__.co_filename.startswith(_FOLDERS)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
