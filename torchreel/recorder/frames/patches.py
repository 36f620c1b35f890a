"""Members of modules and classes that something else has put there: the program, or a library.

A bundle names modules and classes, and a replay imports them: they are as their source says.  But
programs change what they import (`torch.manual_seed = ...`, `modeling_llama.LlamaMLP = ...`), and
then Dynamo traces something else.

Lives here: finding such members.  Not here: keeping them (`bundles`), putting them back
(`torchreel.replay.child.patches`).  Nothing here calls a method of the program's objects.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torchreel.recorder.guard import fail_open

Patch = tuple[ModuleType | type, str, object]
"""A module or class, the name of a member, and what stands there."""
_NO_PATCHES = frozenset({"builtins", "torchreel", *sys.stdlib_module_names})
"""Top-level modules whose functions are tools, or at home everywhere."""


def patches(owners: Iterable[ModuleType | type]) -> list[Patch]:
    """Return the members of `owners` that seem to be from elsewhere, each with its owner and name.

    A replay compares each with what it has itself, so that one too many does no harm.
    """
    found: list[Patch] = []
    for owner in owners:
        with fail_open("members of a module", quiet=True):
            found += [(owner, name, value) for name, value in _foreign(owner)]
    return found


def _foreign(owner: ModuleType | type) -> Iterator[tuple[str, object]]:
    is_module = type(owner) is ModuleType
    members, home = members_of(owner), home_of(owner)
    top = home.partition(".")[0]
    for name, value in list(members.items()):
        if is_module and name.startswith("__"):
            continue  # what Dynamo puts there, as `__compiled_fn_1`
        function = _function(value)
        origin = None if function is None else home_of(function)
        if not origin or origin.partition(".")[0] in (top, *_NO_PATCHES):
            continue
        if is_module and _imported(home).get(name) == origin.partition(".")[0]:
            continue
        if _is_by_name(function, origin) or _is_of_program(origin):
            yield name, value


def members_of(owner: object) -> Mapping[str, object]:
    """Return the members of a module or class, past what a metaclass says of them; else {}."""
    if type(owner) is ModuleType:
        return vars(owner)
    return type.__getattribute__(owner, "__dict__") if issubclass(type(owner), type) else {}


def home_of(obj: Any) -> str:
    """Return the name of a module, or that of the module of a class or function."""
    if type(obj) is ModuleType:
        found = vars(obj).get("__name__")
    elif issubclass(type(obj), type):
        found = type.__getattribute__(obj, "__module__")
    else:
        found = obj.__module__
    return found if type(found) is str else ""


def qualname_of(obj: Any) -> str:
    """Return the qualified name of a class or function; '' for a module."""
    if type(obj) is ModuleType:
        return ""
    is_class = issubclass(type(obj), type)
    return str(type.__getattribute__(obj, "__qualname__") if is_class else obj.__qualname__)


def _function(value: object) -> Any:
    """Return the function or class that a member is, or is made of; None for any other object."""
    if type(value) is staticmethod or type(value) is classmethod:
        value = value.__func__
    elif type(value) is property:
        value = value.fget
    return value if type(value) is FunctionType or issubclass(type(value), type) else None


def _is_by_name(function: Any, module: str) -> bool:
    """Return True if a function or class is found under its own name."""
    found: Any = sys.modules.get(module)
    for part in qualname_of(function).split("."):
        found = members_of(found).get(part)
    return found is function


def _is_of_program(module: str) -> bool:
    """Return True for code that is not installed.

    What a library makes elsewhere without a name is nearly always the work of its decorators, which
    an import does again.
    """
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return isinstance(file, str) and not {"site-packages", "dist-packages"} & {*Path(file).parts}


@cache
def _imported(name: str) -> dict[str, str]:
    """Return the names that a module's own code imports, with the top-level module of each."""
    module = sys.modules[name]
    loader: Any = getattr(module.__spec__, "loader", None)
    code = loader.get_code(name) if hasattr(loader, "get_code") else None
    return dict(_imports(code, name.partition(".")[0])) if isinstance(code, CodeType) else {}


def _imports(code: CodeType, top: str) -> Iterator[tuple[str, str]]:
    origin = ""
    taken = False
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            origin = str(step.argval).partition(".")[0] or top
        elif step.opname == "IMPORT_FROM":
            taken = True
        elif taken and step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            yield str(step.argval), origin
            taken = False
