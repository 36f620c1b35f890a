"""Objects that a module has, for frame bundles: kept as the place where the module has them.

Lives here: finding the place of a global, of a member of a global, and of a function beneath one.
Not here: how they are found again (`torchreel.formats.frames.parts`).  Nothing here changes an
object.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

import cloudpickle

KNOWN_ANYWHERE = frozenset(
    {"builtins", "torch", "torchreel", "cloudpickle", *sys.stdlib_module_names}
)
"""Top-level modules that a replay has anyway, of a version that the recording knows."""


def tables_of_torch(kinds: tuple[type, ...], least: int) -> dict[int, tuple[str, str]]:
    """Return the places of the containers in torch's modules that have so many items, by id."""
    return {
        id(held): (module, name)
        for module in [name for name in sys.modules if name.partition(".")[0] == "torch"]
        for name, held in list(_members(sys.modules[module]).items())
        if type(held) in kinds and len(held) >= least
    }


def is_known_anywhere(function: Any) -> bool:
    """Return True for a function of torch or Python, which a replay has anyway."""
    return str(getattr(function, "__module__", "")).partition(".")[0] in KNOWN_ANYWHERE


def of_function(function: FunctionType) -> tuple[str, tuple[str, ...], int] | None:
    """Return the place of a function in its module; None if it has none there.

    The place is the module, the names that lead to a member, and the number of functions beneath
    the function. The member may be a decorator's function, which has this one as its `__wrapped__`.
    It may also be bound, as `autograd.Function.apply` is bound to its class. Dynamo knows such
    functions by their identity.
    """
    from torchreel.formats.frames.parts import beneath

    module, name = function.__module__, function.__qualname__
    if type(module) is not str or module == "__main__" or _is_by_value(module):
        return None
    path = tuple(name.split("."))
    found: Any = sys.modules.get(module)
    for part in path:
        found = _members(found).get(part)
    chain = beneath(found)
    index = next((i for i, one in enumerate(chain) if one is function), None)
    return None if index is None else (module, path, len(chain) - 1 - index)


def _members(owner: Any) -> Any:
    if issubclass(type(owner), type):
        return type.__getattribute__(owner, "__dict__")
    return vars(owner) if type(owner) is type(sys) else {}


def _is_by_value(module: str) -> bool:
    """Return True for a module whose functions the program had cloudpickle take by value."""
    known = cloudpickle.list_registry_pickle_by_value()
    return any(module == name or module.startswith(f"{name}.") for name in known)


def of_singleton(obj: object) -> tuple[str, str] | None:
    """Return the module and the name of a global of torch or Python; None for any other object.

    Code compares such objects by their identity: `torch._dynamo.comptime.comptime`,
    `dataclasses.MISSING`.
    """
    home = type(obj).__module__
    if type(home) is not str or home.partition(".")[0] not in KNOWN_ANYWHERE:
        return None
    for name, value in list(vars(sys.modules.get(home, sys)).items()):
        if value is obj:
            return home, name
    return None


def is_mark(obj: object, reduced: object) -> bool:
    """Return True for an object without state, such as libraries use for "not given".

    Only its identity matters.
    """
    if type(reduced) is not tuple or any(part is not None for part in reduced[2:]):
        return False
    make, arguments = reduced[:2]
    bare: object = copyreg.__newobj__  # type: ignore[attr-defined]
    return make is bare and len(arguments) == 1


def of_binding(obj: Any) -> tuple[str, str] | None:
    """Return the place of a class that C++ defines for Python, or of a member of such an enum.

    None for any other object. The class may have another name in its module: `SDPBackend` of
    torch.nn.attention calls itself `_SDPBackend`. Dynamo knows its members by their identity.
    """
    cls: Any = obj if issubclass(type(obj), type) else type(obj)
    if type(cls).__name__ != _OF_PYBIND or (cls is not obj and _MEMBERS not in vars(cls)):
        return None  # an object of C++ may raise when it is asked for a name
    module, name = str(cls.__module__), str(cls.__qualname__)
    if getattr(sys.modules.get(module), name, None) is cls:
        place = module, name
    elif (found := in_modules(cls, {cls.__module__, "torch._C"})) is not None:
        place = found
    else:
        return None
    if cls is obj:
        return place
    name = getattr(obj, "name", "")
    is_member = type(name) is str and name != "" and getattr(cls, name, None) is obj
    return (place[0], f"{place[1]}.{name}") if is_member else None


_OF_PYBIND, _MEMBERS = "pybind11_type", "__members__"
"""The metaclass of such a class, and the attribute that only an enum has."""


def in_modules(obj: object, modules: Iterable[str]) -> tuple[str, str] | None:
    """Return the module and the name of a global that is this very object; None if there is none.

    It is for objects that can't be pickled, but that a module has: a lock, a `threading.local`, a
    `ContextVar`. The search covers these modules, and the members of objects whose classes they
    define.
    """
    for module in sorted({*modules} - {"__main__", ""}):
        for name, value in list(vars(sys.modules.get(module, sys)).items()):
            if value is obj:
                return module, name
            for inner, member in _members_defined_in(value, module):
                if member is obj:
                    return module, f"{name}.{inner}"
    return None


def in_tables(obj: object, module: str) -> tuple[str, str, str] | None:
    """Return the module, the name of a dict in it, and the key under which it holds an object."""
    if module == "__main__":
        return None
    for name, value in list(vars(sys.modules.get(module, sys)).items()):
        if type(value) is dict:
            for key, held in list(value.items()):
                if held is obj and type(key) is str:
                    return module, name, key
    return None


def _members_defined_in(value: object, module: str) -> list[tuple[str, object]]:
    """Return the members of an object whose class was defined in a module, past its own methods."""
    if type(value).__module__ != module:
        return []
    try:
        return list(object.__getattribute__(value, "__dict__").items())
    except AttributeError:  # it has slots
        return []


def check_name(obj: object, name: str) -> None:
    """Raise PicklingError unless the object is what its module has under its own name.

    pickle finds this out too late. If something has replaced a hook of Python's, for example,
    everything that leads to the hook would be left out with it.
    """
    module = getattr(obj, "__module__", None)
    if type(module) is not str:
        return  # pickle searches all modules for it
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not obj:
        raise pickle.PicklingError(f"{name} is another object in its module")


def own_name(obj: object) -> str | None:
    """Return the name of an object that knows its own name and is found under it; else None.

    A Triton kernel is such an object: it stands in the place of its function, and holds locks.
    """
    place = own_place(obj)
    return None if place is None else place[1]


def own_place(obj: object) -> tuple[str, str] | None:
    """Return the module and the name of such an object (see `own_name`); else None."""
    try:
        own = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    if type(own) is not dict:
        return None
    module, name = own.get("__module__"), own.get("__qualname__")
    if type(module) is not str or type(name) is not str or module == "__main__":
        return None
    return (module, name) if vars(sys.modules.get(module, sys)).get(name) is obj else None
