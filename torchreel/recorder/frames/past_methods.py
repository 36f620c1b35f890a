"""The reduce values of objects that are read past the methods of their classes.

Lives here: whose class runs code when it is asked, and what an object is made of by its members,
items and value.  Not here: how a reduce value is changed (`reduce_values`), and which objects are
read like that (`pickler`).
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodDescriptorType
from typing import Any

import torch

from torchreel.formats.frames.parts import (
    bare,
    bare_container,
    bare_partial,
    bare_tuple,
    bare_value,
    fill_plain,
    set_members,
    set_optimizer,
    set_plain,
)
from torchreel.recorder.frames import places
from torchreel.torch_compat import optimizers

STATES = ("__getstate__", "__reduce__", "__reduce_ex__")
"""The methods by which a class says what is pickled of its objects."""


def definition(cls: type, name: str) -> tuple[object, type]:
    """Return what a class has under a name, and the base that has it; nothing is asked for it."""
    for base in type.__getattribute__(cls, "__mro__"):
        members = type.__getattribute__(base, "__dict__")
        if name in members:
            return members[name], base
    return None, object


_HOW = (*STATES, "__getnewargs__", "__getnewargs_ex__")
_ASKED = ("__getattribute__", "__getattr__", "__class__")
"""Methods that pickle calls of an object, and by which it asks one for its attributes."""
_HARMLESS = places.KNOWN_ANYWHERE | {"numpy", "sympy", "mpmath", "networkx"}
"""Packages whose objects may say themselves how they are pickled: torch, and what it depends on."""
# An extension type's own say, in C, waits for nothing of the program's.
_OF_PYTHON = (FunctionType, property, classmethod, staticmethod, functools.partialmethod)


def answers_itself(cls: type) -> bool:
    """Return True if to pickle objects of a class runs code of the program or a library of its.

    That may wait for a lock which the thread that compiles has, raise what nothing here may
    swallow, take long, or keep the object for ever, as one does that hands out references.
    """
    iterated = ("items", "__iter__") if issubclass(cls, _CONTAINERS) else ()
    asked = (*_HOW, *_ASKED, *iterated)
    return any(_is_of_program(*definition(cls, name)) for name in asked)


def makes_itself(cls: type) -> bool:
    """Return True if a class of the program's says how its objects are made again."""
    return any(_is_of_program(*definition(cls, name)) for name in STATES[1:])


def _is_of_program(found: object, base: type) -> bool:
    if found is None or type(found) not in _OF_PYTHON:
        return False
    home = type.__getattribute__(base, "__dict__").get("__module__")
    if type(found) is FunctionType:  # which Python may have put into a class: a named tuple
        home = found.__module__
    return str(home).partition(".")[0] not in _HARMLESS


def members_of(obj: object) -> tuple[Any, ...] | None:
    """Return a reduce value that makes a module or optimizer of its members; None for all others.

    It ignores how the class pickles its objects: a parametrised module refuses to be pickled
    because its class is made at run time, which a bundle can hold.
    """
    is_optimizer = optimizers.is_optimizer(obj)
    if not issubclass(type(obj), torch.nn.Module) and not is_optimizer:
        return None
    wrapped = optimizers.wrapped_steps(type(obj)) if is_optimizer else []
    if wrapped:
        return bare, (type(obj),), (_members(obj), wrapped), None, None, set_optimizer
    slots = dict(_held(obj, [name for base in type(obj).__mro__ for name in slots_of(base)]))
    if slots:
        return bare, (type(obj),), (_members(obj), slots), None, None, set_plain
    return bare, (type(obj),), _members(obj), None, None, set_members


def plain_members_of(obj: object) -> tuple[Any, ...] | None:
    """Return a reduce value that makes an object of its members; None if there is more to it.

    For one that refuses to be pickled (accelerate's wrapper of a `forward` does, to warn of a
    model that is saved with it), or is to be made anew by its class: Dynamo looks at the members
    that it has.
    """
    cls = type(obj)
    slots = _all_slots(cls)
    own = [base for base in cls.__mro__ if base not in (object, tuple)]
    base: type = tuple if issubclass(cls, tuple) else object
    room = base.__basicsize__ + (2 + len(slots)) * _POINTER
    is_python = all(base.__flags__ & _HEAP_TYPE and "__module__" in vars(base) for base in own)
    if not is_python or cls.__basicsize__ > room or _makes_in_c(cls, base):
        return None
    made_of: tuple[Any, ...] = bare, (cls,)
    if issubclass(cls, tuple):
        made_of = bare_tuple, (cls, tuple(tuple.__iter__(obj)))  # type: ignore[arg-type]
    return *made_of, (_members(obj), dict(_held(obj, slots))), None, None, set_plain


def enum_member_of(obj: object) -> tuple[Any, ...] | None:
    """Return a reduce value that takes a member of an enumeration by its name; else None.

    Several flags together are no member, and made by their value.
    """
    cls = type(obj)
    if not issubclass(cls, Enum):
        return None
    name, value = (object.__getattribute__(obj, field) for field in ("_name_", "_value_"))
    if type.__getattribute__(cls, "_member_map_").get(name) is obj:
        return getattr, (cls, name)
    return cls, (value,)


def partial_of(obj: object) -> tuple[Any, ...] | None:
    """Return a reduce value for an object of the program's that is a `functools.partial`."""
    cls = type(obj)
    if not issubclass(cls, functools.partial):
        return None
    kept = (vars(functools.partial)[name].__get__(obj) for name in ("func", "args", "keywords"))
    return bare_partial, (cls, *kept), (_members(obj), {}), None, None, set_plain


def native_parts_of(obj: object) -> tuple[Any, ...] | None:
    """Return the reduce value that the type of Python's own beneath a class gives.

    An exception, a date, a number with decimals: only that type, in C, knows their state.
    """
    if _is_of_program(*definition(type(obj), "__getstate__")):
        return None  # which that type would ask
    for base in type.__getattribute__(type(obj), "__mro__")[:-1]:  # not of object itself
        members = type.__getattribute__(base, "__dict__")
        home = str(members.get("__module__", base.__module__))
        if home not in sys.stdlib_module_names:
            continue  # NumPy's scalars end the process when a subclass is asked
        for name, given in (("__reduce_ex__", (3,)), ("__reduce__", ())):  # 3: bytes as bytes
            if type(members.get(name)) is MethodDescriptorType:
                found = members[name](obj, *given)
                return found if type(found) is tuple else None
    return None


def container_members_of(obj: object) -> tuple[Any, ...] | None:
    """Return the same for an object of the program's that is a list, a dict, a set or a deque.

    It is read and filled by the methods of the built-in class, not by its own.
    """
    cls = type(obj)
    base = next((one for one in _CONTAINERS if issubclass(cls, one)), None)
    if base is None:
        return None
    if _makes_in_c(cls, base):
        return None
    state = (_members(obj), dict(_held(obj, _all_slots(cls))))
    items: list[Any] | None = None
    pairs: list[Any] | None = None
    if issubclass(base, dict):
        pairs = list(base.items(obj))
    else:
        items = list(base.__iter__(obj))
    limit = base.maxlen.__get__(obj) if base is collections.deque else None
    return bare_container, (cls, base, limit), (state, items, pairs), None, None, fill_plain


def items_of(reduced: Any) -> list[Any] | None:
    """Return the items in a reduce value of `container_members_of`; None for all others."""
    items: list[Any] | None = reduced[2][1] if reduced[0] is bare_container else None
    return items


def value_of(obj: object) -> tuple[Any, ...] | None:
    """Return the same for an object of the program's that is a text, a number or a frozen set."""
    cls = type(obj)
    base = next((one for one in _PLAIN_OF if issubclass(cls, one)), None)
    if base is None or _makes_in_c(cls, base):
        return None
    state = (_members(obj), dict(_held(obj, _all_slots(cls))))
    return bare_value, (cls, base, _PLAIN_OF[base](obj)), state, None, None, set_plain


_PLAIN_OF: dict[Any, Callable[[Any], object]] = {
    str: str.__str__, int: int.__pos__, float: float.__pos__, complex: complex.__pos__,
    bytes: lambda value: bytes(memoryview(value)), frozenset: frozenset.union,
}  # fmt: skip
"""By built-in type: how an object of a class beneath is read, past the methods of the class."""


def is_bare(obj: object) -> bool:
    """Return True for an object without members: all that it is good for is its identity."""
    return is_plain(obj) and not _members(obj) and not dict(_held(obj, _all_slots(type(obj))))


def is_plain(obj: object) -> bool:
    """Return True for an object that has nothing but members: no container, no number."""
    return not issubclass(type(obj), tuple) and plain_members_of(obj) is not None


def _members(obj: object) -> dict[str, Any]:
    return dict(dict(_held(obj, ["__dict__"])).get("__dict__", {}))


_CONTAINERS: tuple[Any, ...] = (
    collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque,
)  # fmt: skip
_HEAP_TYPE = 1 << 9
"""Of a class's flags: made at run time, not a static one of C (`Py_TPFLAGS_HEAPTYPE`)."""
_POINTER = 8


def _makes_in_c(cls: type, base: type) -> bool:
    """Return True if a type of C that is not one of `base` makes the objects of a class."""
    known = type.__getattribute__(base, "__mro__")
    return any(
        type(type.__getattribute__(one, "__dict__").get("__new__")) is BuiltinMethodType
        for one in type.__getattribute__(cls, "__mro__")
        if one not in known
    )


def _all_slots(cls: type) -> list[str]:
    """Return the names of the slots of a class and its bases; those of C types are their own."""
    mro = type.__getattribute__(cls, "__mro__")
    bases = [one for one in mro if one.__flags__ & _HEAP_TYPE or one is collections.defaultdict]
    return [name for base in bases for name in slots_of(base)]


def slots_of(cls: type) -> list[str]:
    """Return the names of the slots of a class itself, as they are for `getattr`."""
    return [name for name, value in vars(cls).items() if type(value) is MemberDescriptorType]


def _held(obj: object, names: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield those attributes that an object has, past the methods of its class."""
    for name in names:
        try:
            yield name, object.__getattribute__(obj, name)
        except AttributeError:
            continue
