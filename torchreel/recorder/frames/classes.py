"""Classes of the program in frame bundles, with what their guards see and cloudpickle leaves out.

Lives here: the qualified name of a class and the order of its members, as reduce values; and that a
class is left as it was.  Not here: all other objects (`bundles`).
"""

from __future__ import annotations

import abc
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ClassMethodDescriptorType, MemberDescriptorType
from typing import Any, Generic, get_origin

from torchreel.formats.frames.parts import new_class


def with_members(cls: type, reduced: Any) -> Any:
    """Add to the reduce value of a class its `__qualname__`, and the order of its members.

    cloudpickle leaves the first out, and sorts the second; guards have both.
    """
    if len(reduced) < 3 or type(reduced[2]) is not tuple or type(reduced[2][0]) is not dict:
        return reduced
    function, arguments, (members, *others), *rest = reduced
    # Those of private names in `__slots__`, which cloudpickle does not know by their other name.
    attributes = {k: v for k, v in members.items() if type(v) is not MemberDescriptorType}
    order = list(vars(cls))
    arguments = _with_order(cls, order, arguments, attributes)
    known = {name: attributes[name] for name in order if name in attributes}
    whole = {**known, **attributes, "__qualname__": cls.__qualname__}
    if type(cls) not in _METACLASSES or _is_watched(cls):
        function, arguments = new_class, (function, *arguments)
    return function, arguments, (whole, *others), *rest


_METACLASSES = (type, abc.ABCMeta)
"""They look at no member of a new class but these."""
_LOOKED_AT = frozenset({"__slots__", "__orig_bases__"})
_ABSENT = object()
_PLAIN = (bool, int, str, tuple, list, dict, set, frozenset, type(None))


def _with_order(
    cls: type, order: Sequence[str], arguments: tuple[Any, ...], attributes: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Add a class's members to those with which cloudpickle makes it, in their order.

    `type` adds `__dict__`, `__weakref__` and an empty `__doc__` after those of the class's body.
    """
    place = next((i for i, one in enumerate(arguments) if type(one) is dict), None)
    if place is None or type(cls) not in _METACLASSES or _is_watched(cls):
        return arguments
    added = {"__dict__", "__weakref__"} | ({"__doc__"} if cls.__doc__ is None else set())
    body = itertools.takewhile(lambda name: name not in added, order)
    values = {name: attributes[name] for name in _LOOKED_AT & {*attributes}} | arguments[place]
    members = {
        name: values[name] if name in values else _until_set(cls, name, attributes[name])
        for name in body
        if name in values or name in attributes
    }
    kept = {name: value for name, value in members.items() if value is not _ABSENT}
    return *arguments[:place], {**kept, **values}, *arguments[place + 1 :]


def _until_set(cls: type, name: str, value: object) -> object:
    """Return what stands for a member until the state of its class is set; _ABSENT for nothing.

    What leads to the state may use the class already: subclass it, make or hash an object, fill
    it.  So a special method is what it would be without the class's own; what no base has is
    absent, and loses its place in the order.
    """
    special = name.startswith("__") and name.endswith("__")
    special = special and not isinstance(value, _PLAIN)
    base = next((base for base in cls.__mro__[1:] if name in vars(base)), None)
    if base is None:
        return _ABSENT if special else None
    if base.__module__ == "builtins" or (special and _is_by_name(base)):
        found = vars(base)[name]
        # `object.__init_subclass__` is one, and can be pickled only as what it is bound to.
        return getattr(base, name) if type(found) is ClassMethodDescriptorType else found
    return _ABSENT if special else None


def _is_by_name(cls: type) -> bool:
    """Return True for a class that is pickled by its name: its members lead to no other one."""
    module = sys.modules.get(cls.__module__) if cls.__module__ != "__main__" else None
    return module is not None and vars(module).get(cls.__qualname__) is cls


def _is_watched(cls: type) -> bool:
    """Return True if something looks at each new class; `Generic` does, at its bases alone.

    `typing.NamedTuple` is a base that makes a class of its annotations.
    """
    named = vars(cls).get("__orig_bases__", ())
    if type(named) is not tuple:
        return True
    if not all(issubclass(type(one), type) or get_origin(one) for one in named):
        return True
    bases = (base for base in cls.__mro__[1:-1] if base is not Generic)
    return any("__init_subclass__" in vars(base) for base in bases)


@contextmanager
def leaving_no_slot_names(cls: type) -> Iterator[None]:
    """Take `__slotnames__` out of a class again, which to pickle an object of it puts there.

    Dynamo guards on the members of a class: a program would be compiled with another guard.
    """
    before = "__slotnames__" in vars(cls)
    try:
        yield
    finally:
        if not before and "__slotnames__" in vars(cls):
            type.__delattr__(cls, "__slotnames__")
