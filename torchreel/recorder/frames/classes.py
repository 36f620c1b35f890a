"""Classes of the program in frame bundles, with what their guards see and cloudpickle leaves out.

Lives here: the qualified name of a class and the order of its members, as reduce values; and that a
class is left as it was.  Not here: all other objects (`bundles`).
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, get_origin


def with_members(cls: type, reduced: Any) -> Any:
    """Add to the reduce value of a class its `__qualname__`, and the order of its members.

    cloudpickle leaves the first out, and sorts the second; guards have both.
    """
    if len(reduced) < 3 or type(reduced[2]) is not tuple or type(reduced[2][0]) is not dict:
        return reduced
    function, arguments, (attributes, *others), *rest = reduced
    order = list(vars(cls))
    arguments = _with_order(cls, order, arguments, attributes)
    known = {name: attributes[name] for name in order if name in attributes}
    whole = {**known, **attributes, "__qualname__": cls.__qualname__}
    return function, arguments, (whole, *others), *rest


_METACLASSES = (type, abc.ABCMeta)
"""They look at no member of a new class but these, so that each other may be None until set."""
_LOOKED_AT = frozenset({"__slots__", "__orig_bases__"})


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
    members = {name: values.get(name) for name in body if name in values or name in attributes}
    return *arguments[:place], {**members, **values}, *arguments[place + 1 :]


def _is_watched(cls: type) -> bool:
    """Return True if something looks at each new class; `Generic` does, at its bases alone.

    `typing.NamedTuple` is a base that makes a class of its annotations.
    """
    named = vars(cls).get("__orig_bases__", ())
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
