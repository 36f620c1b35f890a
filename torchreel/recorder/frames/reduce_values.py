"""Changes of a reduce value: how pickle is told to make an object again.

Lives here: the marks and tokens that an object is made with, and how it is filled.  Not here: which
objects get which (`pickler`), and what runs while they are made again (`formats.frames.parts`).
"""

from __future__ import annotations

import collections
import copyreg
import sys
from enum import Enum
from types import (
    CodeType,
    FunctionType,
)
from typing import Any

import torch

from torchreel.formats.frames.parts import (
    bare,
    bare_partial,
    bare_tuple,
    bare_value,
    fill,
    made,
    set_marked,
)
from torchreel.recorder.frames import places
from torchreel.recorder.frames.past_methods import STATES, definition, slots_of
from torchreel.torch_compat import optimizers
from torchreel.torch_compat.dynamo import rules

_OF_CODE = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize",
    "co_flags", "co_code", "co_consts", "co_names", "co_varnames", "co_filename", "co_name",
    "co_qualname", "co_firstlineno", "co_linetable", "co_exceptiontable", "co_freevars",
    "co_cellvars",
)  # fmt: skip
"""The arguments of `CodeType`, in their order."""


def without_known_globals(function: FunctionType, reduced: Any) -> Any:
    """Return the reduce value of a function of torch or Python without its globals.

    Its module has them, and loading would overwrite them with the bundle's.
    """
    scope = function.__globals__
    name = scope.get("__name__")
    top = name.partition(".")[0] if isinstance(name, str) else ""
    if top not in places.KNOWN_ANYWHERE or vars(sys.modules.get(str(name), sys)) is not scope:
        return reduced
    make, arguments, (state, slots), *rest = reduced
    return make, arguments, (state, {**slots, "__globals__": {}}), *rest


def with_marks(obj: object, reduced: Any) -> Any:
    """Return the reduce value of a function or class with its marks for Dynamo (`allow_in_graph`).

    The marks are kept by id, beside the object: they would be lost with it.
    """
    marks = rules.dynamo_marks(obj)
    if not marks or type(reduced) is not tuple or len(reduced) != 6:
        return reduced
    *made_of, state, items, pairs, setter = reduced
    return *made_of, (state, setter, marks), items, pairs, set_marked


def with_token(obj: object, reduced: Any) -> Any:
    """Return the reduce value of an object with state, made once for all bundles of a recording.

    Code is one of them: functions that a decorator made share it, which guards see.  All of it is
    kept: from 3.1.3 on, cloudpickle leaves out the file.
    """
    if type(obj) is CodeType:
        return made, (id(obj), CodeType, *(getattr(obj, name) for name in _OF_CODE))
    if type(reduced) is not tuple or len(reduced) < 3 or reduced[2] is None:
        return reduced
    if reduced[0] in _UNCHANGING:  # another may have had its id, and can't be given its content
        return reduced
    function, arguments, *rest = reduced
    return made, (id(obj), function, *arguments), *rest


_UNCHANGING = (bare_tuple, bare_value, bare_partial)


def without_new(obj: object, reduced: Any) -> Any:
    """Return the reduce value of a module without the `__new__` of its class.

    FSDP's `__new__` makes an instance of the class before sharding, and initialises it.
    """
    if not issubclass(type(obj), torch.nn.Module) or type(obj).__new__ is object.__new__:
        return reduced
    if type(reduced) is not tuple or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return reduced
    return bare, (type(obj),), *reduced[2:]


def past_overrides(obj: object, reduced: Any) -> Any:
    """Return the reduce value of an object that is filled past the methods of its own class.

    pickle would fill it by `setattr`, which a frozen dataclass refuses, by `obj[key] = value`, for
    which a registry may have a key of its own, or by `extend`; and would add to what the object has
    that an earlier bundle made.
    """
    if type(reduced) is not tuple or not 2 < len(reduced) < 6:
        return reduced
    make, arguments, state, *more = reduced
    items, pairs = (*more, None, None)[:2]
    cls: Any = type(obj)
    by_itself = type(state) is tuple and not hasattr(cls, "__setstate__")
    by_itself = by_itself and cls.__setattr__ is not object.__setattr__
    filled = issubclass(cls, (list, dict, collections.deque)) and (
        (items is not None and (state is not None or _defines(cls, "append", "extend")))
        or (pairs is not None and (state is not None or _defines(cls, "__setitem__")))
    )
    if not by_itself and not filled:
        return reduced
    content = state, None if items is None else list(items), None if pairs is None else list(pairs)
    return make, arguments, content, None, None, fill


def _defines(cls: type, *names: str) -> bool:
    """Return True if one of the methods is Python's own no more."""
    return any(type(getattr(cls, name, None)) is FunctionType for name in names)


def has_own_state(obj: object) -> bool:
    """Return True for an optimizer, and if a class outside of torch defines the pickled state.

    A module's state may be the pickles of its parts, with their weights; and to pickle an FX module
    compiles its code anew, which Dynamo would see.  An optimizer's state lacks the wrapper that a
    scheduler put around its `step`.  To read a module's state back adds members that it lacks while
    its `__init__` has not been called.
    """
    if optimizers.is_optimizer(obj) or _is_uninitialised(obj):
        return True
    if issubclass(type(obj), torch.nn.Module) and any(map(slots_of, type(obj).__mro__)):
        return True  # a module's `__setstate__` knows nothing of slots
    return any(_is_own(obj, name) for name in STATES)


def picks_its_state(obj: object) -> bool:
    """Return True if a class picks what of its objects is pickled, and not how they are made.

    Dynamo sees all members, also a cache or a connection that the class leaves out.
    """
    return _is_own(obj, "__getstate__") and not any(_is_own(obj, name) for name in STATES[1:])


def _is_own(obj: object, name: str) -> bool:
    """Return True for a method of the program or a library of its."""
    method, _ = definition(type(obj), name)
    if type(method) is not FunctionType:
        return False
    return str(method.__module__).partition(".")[0] not in places.KNOWN_ANYWHERE


def is_made_anew(obj: object, reduced: Any) -> bool:
    """Return True for a reduce value that calls the object's own class, which makes a new one.

    What its `__init__` makes of the arguments need not be what the object is by now.  A class with
    a `__new__` of its own may return an object that is there already, as an `Enum` does: that is
    left to it, except for tuples, which need a `__new__` to hold anything.
    """
    cls = type(obj)
    if type(reduced) is not tuple or reduced[0] is not cls or issubclass(cls, Enum):
        return False
    return cls.__new__ is object.__new__ or issubclass(cls, tuple)


def _is_uninitialised(obj: object) -> bool:
    return issubclass(type(obj), torch.nn.Module) and "_modules" not in vars(obj)
