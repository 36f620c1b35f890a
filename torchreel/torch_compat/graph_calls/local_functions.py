"""Functions that are defined within a function of torch, which Dynamo writes into graphs.

Lives here: from the qualified name of one to a function that does the same. It is made of the code
that the function around it holds, so it has to do without variables of that one. Which of them a
graph may call: `formats.allowed`.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType

MARK = ".<locals>."


def local_function(name: str) -> FunctionType | None:
    """Return a function of `module.Class.method.<locals>.name`; None where there is none.

    Its module has to be imported already.
    """
    around, mark, last = name.partition(MARK)
    module, outer = _walked(around)
    code = getattr(outer, "__code__", None)
    if not mark or not isinstance(code, CodeType):
        return None
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == last and not constant.co_freevars:
            made = FunctionType(constant, vars(sys.modules[module]), last)
            made.__module__ = module
            return made
    return None


def local_name(function: object) -> str:
    """Return the qualified name of such a function; '' for any other."""
    if not isinstance(function, FunctionType) or MARK not in function.__qualname__:
        return ""
    return f"{function.__module__}.{function.__qualname__}"


def _walked(name: str) -> tuple[str, object]:
    """Return the innermost imported module of a dotted name, and what the name stands for."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        if module in sys.modules:
            found: object = sys.modules[module]
            for part in parts[length:]:
                found = vars(found).get(part) if hasattr(found, "__dict__") else None
            return module, found
    return "", None
