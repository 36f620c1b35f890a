"""What Dynamo is not to see: the recorder's own frames.

A probe may run where Dynamo looks at every frame that begins: in eager code that a compiled
function calls.  It would count our frames as the program's, and compile them.

Lives here: the mark on our functions, by which Dynamo leaves them alone.  What they call in turn
(the store, Python's library) is not marked: `guard.fail_open` turns Dynamo off meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from torchreel.recorder import guard

_HERE = os.path.dirname(__file__)


def hide_recorder() -> None:
    """Have Dynamo leave out the functions of the recorder's modules, as far as they are loaded."""
    guard.set_eval_frame = _dynamo().set_eval_frame
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for function in _functions(vars(module), name):
                hide(function)


def hide(function: Callable[..., Any]) -> None:
    """Have Dynamo leave out a function and those that are defined in it."""
    dynamo = _dynamo()
    # Older versions of torch have no such mark; there Dynamo sees the recorder.
    if hasattr(dynamo, "set_code_exec_strategy"):
        skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT)
        for code in _codes(function.__code__):
            dynamo.set_code_exec_strategy(code, skip)


def _dynamo() -> Any:
    from torch._C._dynamo import eval_frame

    return eval_frame


def _functions(members: Any, module: str) -> Iterator[FunctionType]:
    for member in list(members.values()):
        if isinstance(member, type) and member.__module__ == module:
            yield from _functions(vars(member), module)
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if isinstance(member, (property, cached_property)):
            member = member.fget if isinstance(member, property) else member.func
        if isinstance(member, FunctionType) and _is_ours(member):
            yield member


def _is_ours(function: FunctionType) -> bool:
    """By its file: what a decorator makes of ours may be code that others use as well."""
    is_constructor = function.__module__.startswith("namedtuple_")
    return is_constructor or function.__code__.co_filename.startswith(_HERE)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
