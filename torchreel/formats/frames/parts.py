"""Objects that a frame bundle takes apart by itself, and how they are put together again.

Lives here: FX modules (their own `__reduce__` compiles them anew, and traces their code when it is
loaded, with a tracer that may want more), tensors of wrapper subclasses (their values stay out),
operators, functions with a cache, weak references, contexts of an `autograd.Function`, process
groups, meshes of devices, modules of a class of their own, optimizers, and what could not be kept.
Not here: the pickle (`recorder.frames.pickler`), which names the functions of this module: they run
while a bundle is loaded, which needs trust.
"""

from __future__ import annotations

import copy
import functools
import importlib
import operator
import sys
import threading
import typing
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from torchreel.errors import UnsupportedError
from torchreel.formats.frames import jagged
from torchreel.formats.tensors import meshes
from torchreel.formats.tensors.synthetic import with_autograd
from torchreel.torch_compat import distributed, fx, optimizers
from torchreel.torch_compat.autograd import functions
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.operators import dispatcher, operator_definitions
from torchreel.torch_compat.tensors import fake_tensors
from torchreel.torch_compat.tensors import jagged as jagged_tensors

_MARKS = "_dynamo_"
"""Prefix of the attributes by which a program marks the sizes of a tensor for Dynamo."""


def is_wrapper(tensor: Any) -> bool:
    """Return True if a tensor is a subclass that holds other tensors."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return not plain and fake_tensors.is_wrapper_subclass(tensor)


def taken_apart(obj: Any) -> tuple[Any, ...] | None:
    """Return the reduce value of an object: function, arguments, perhaps state; None for others."""
    defined = operator_definitions.definition(obj)
    if defined is not None:
        return _of_definition(obj, defined)
    path = dispatcher.operator_path(obj)
    if path is not None:
        return operator_at, (path,)
    if issubclass(type(obj), ModuleType):
        # `torch.ops` and configs are modules of a class of their own, which pickle does not know.
        own = sys.modules.get(obj.__name__) is obj
        return (importlib.import_module, (obj.__name__,)) if own else None
    state = fx.graph_module_state(obj)
    if state is not None:
        return bare, (type(obj),), state, None, None, fx.set_graph_module_state
    if jagged_tensors.is_jagged(type(obj)):
        return jagged.made, jagged.taken_apart(obj), _marks_of(obj), None, None, set_marks
    if issubclass(type(obj), torch.Tensor) and is_wrapper(obj):
        return wrapped, (type(obj), *_parts(obj))
    if type(obj).__name__ in _ITERATORS and type(obj).__module__ == "builtins":
        # By itself, each is pickled as the iterator of a list.
        return iterator_of, (type(obj).__name__, list(copy.copy(obj)))
    if type(obj) is functools.cached_property:  # it has a lock in Python 3.11
        return cached_property_named, (obj.func, obj.attrname)
    if type(obj) is _CACHED:
        added = {k: v for k, v in vars(obj).items() if k not in _OF_WRAPPED}
        return cached, (obj.__wrapped__, obj.cache_parameters()), added
    if type(obj) in (torch.finfo, torch.iinfo):
        return type(obj), (getattr(torch, obj.dtype),)
    if (variable := _type_of_main(obj)) is not None:
        return type(obj), variable
    if type(obj) is weakref.ref:
        return weak, (obj(),)
    if type(obj) in _WEAK_MAPPINGS:
        return type(obj), (), list(obj.items()), None, None, fill_weak_mapping
    if type(obj) is weakref.WeakSet:
        return type(obj), (), list(obj), None, None, fill_weak_set
    if (group := distributed.group_name_of(obj)) is not None:
        return distributed.group_named, (group,)
    if (mesh := distributed.mesh_of(obj)) is not None and mesh is obj:
        # It holds the ranks in a tensor, of which the values would stay out.
        return meshes.make, (meshes.describe(mesh),)
    if (function := functions.function_of_context(obj)) is not None:
        return functions.new_context, (function, obj.needs_input_grad), dict(vars(obj))
    return None


_CACHED = type(functools.lru_cache(len))
_OF_WRAPPED = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"})
"""Attributes that a wrapper takes from the function that it wraps."""


def _type_of_main(obj: Any) -> tuple[object, ...] | None:
    """Return the arguments that make a parameter of types or a new type of `__main__`, else None.

    pickle takes them by name from their module, which is another in a replay.
    """
    if type(obj) not in (typing.NewType, *_TYPE_PARAMETERS) or obj.__module__ != "__main__":
        return None
    more = (obj.__supertype__,) if type(obj) is typing.NewType else ()
    return obj.__name__, *more


_TYPE_PARAMETERS = (typing.ParamSpec, typing.TypeVarTuple)


def cached_property_named(function: Callable[[Any], object], name: str | None) -> object:
    """Return the member of a class that is worked out once for each object, under its name."""
    found = functools.cached_property(function)
    found.attrname = name
    return found


def cached(function: Callable[..., object], parameters: Mapping[str, Any]) -> object:
    """Return a function with an empty cache (`functools.lru_cache`)."""
    return functools.lru_cache(**parameters)(function)


_referred: list[object] = []
"""The objects of weak references out of bundles: who holds them may not be in the bundle."""


def weak(target: object) -> object:
    """Return a weak reference to an object, which stays; to None one that refers to nothing."""
    if target is None:
        return weakref.ref(type("Gone", (), {})())
    _referred.append(target)
    return weakref.ref(target)


_WEAK_MAPPINGS = (
    weakref.WeakValueDictionary, weakref.WeakKeyDictionary, WeakIdKeyDictionary,
    WeakTensorKeyDictionary,
)  # fmt: skip


def fill_weak_mapping(mapping: Any, items: Sequence[tuple[Any, Any]]) -> None:
    """Fill a mapping that refers to its keys or values weakly; these stay."""
    for key, value in items:
        _referred.append((key, value))
        mapping[key] = value


def fill_weak_set(found: weakref.WeakSet[Any], members: Sequence[Any]) -> None:
    """Fill a set that refers to its members weakly; these stay."""
    _referred.extend(members)
    found.update(members)


def of_process(obj: Any) -> tuple[Any, ...] | None:
    """Return the reduce value of an object that lives with its process or thread, else None.

    A lock is a free one.  What this thread has in a `threading.local` or a `ContextVar` is kept.
    """
    kind = type(obj)
    if kind in _LOCKS:
        return _LOCKS[kind], ()
    if kind is threading.local:
        return threading.local, (), dict(vars(obj))
    if kind is ContextVar:
        held: tuple[object, ...] = ()
        with suppress(LookupError):
            held = (obj.get(),)  # its default, where nothing was set
        return ContextVar, (obj.name,), held, None, None, set_variable
    return None


_LOCKS: Mapping[type, Callable[[], object]] = {
    type(make()): make for make in (threading.Lock, threading.RLock)
}


def set_variable(variable: ContextVar[object], held: tuple[object, ...]) -> None:
    """Set a context variable to what it had, if anything."""
    for value in held:
        variable.set(value)


_ITERATORS: Mapping[str, Callable[[list[Any]], object]] = {
    "dict_keyiterator": lambda items: iter(dict.fromkeys(items)),
    "dict_valueiterator": lambda items: iter(dict(enumerate(items)).values()),
    "dict_itemiterator": lambda items: iter(dict(items).items()),
    "set_iterator": lambda items: iter(set(items)),
}
"""Iterators of dicts and sets, with which a comprehension is called, by the names of types."""


def iterator_of(kind: str, items: list[Any]) -> object:
    """Return an iterator of a kind that has these items before it."""
    return _ITERATORS[kind](items)


def _of_definition(obj: Any, defined: Any) -> tuple[Any, ...]:
    """Return the reduce value of an operator that the program defined, with its registrations.

    An operator that a module defines is pickled by its place in the module.
    """
    if obj is not defined:
        return overload_of, (defined,)
    place = operator_definitions.place(defined)
    if place is not None:
        return member, place
    state = operator_definitions.state(defined)
    make = operator_definitions.define, operator_definitions.identity(defined)
    return *make, state, None, None, operator_definitions.fill


def overload_of(defined: Any) -> object:
    """Return the operator of a definition."""
    return defined._opoverload


def member(module: str, name: str) -> object:
    """Return the member of a module with this name, which may have dots."""
    return operator.attrgetter(name)(importlib.import_module(module))


def item(module: str, name: str, key: str) -> object:
    """Return what a dict of a module holds under a key."""
    return member(module, name)[key]  # type: ignore[index]


_BENEATH: tuple[tuple[type, str], ...] = (
    (classmethod, "__func__"),
    (staticmethod, "__func__"),
    (property, "fget"),
    (functools.cached_property, "func"),
    (functools.partial, "func"),
    (FunctionType, "__wrapped__"),
)
"""The attribute of a member that has what the member was made of."""
_DEEPEST = 16


def beneath(member: object) -> list[object]:
    """Return a member of a module or class, what it was made of, and so on to the last one."""
    chain = [member]
    while len(chain) < _DEEPEST:
        step = next((name for kind, name in _BENEATH if type(chain[-1]) is kind), "")
        if step == "__wrapped__" and step not in vars(chain[-1]):
            break
        if not step:
            break
        chain.append(getattr(chain[-1], step))
    return chain


def function_beneath(module: str, path: Sequence[str], below: int) -> object:
    """Return the function beneath a member of a module that has so many functions beneath it.

    They are counted from the innermost one, as a program may decorate a member: each class of
    optimizers is when the first one is made.  Raises KeyError where the module has no such member.
    """
    found: Any = importlib.import_module(module)
    for part in path:
        found = vars(found)[part]
    chain = beneath(found)
    return chain[max(len(chain) - 1 - below, 0)]


def fill(
    obj: Any, content: tuple[Any, Sequence[object] | None, Sequence[tuple[object, object]] | None]
) -> None:
    """Fill an object past the methods of its class, with its state, items, and pairs of a dict."""
    state, items, pairs = content
    if issubclass(type(obj), (list, dict, set, deque)) and (items is not None or pairs is not None):
        built_in(obj, "clear")(obj)  # an earlier bundle may have filled it
    add = built_in(obj, "add" if issubclass(type(obj), set) else "append") if items else None
    for item in items or ():
        add(obj, item)  # type: ignore[misc]
    for key, value in pairs or ():
        built_in(obj, "__setitem__")(obj, key, value)
    if state is None:
        return
    if hasattr(type(obj), "__setstate__"):
        obj.__setstate__(state)
        return
    members, slots = state if type(state) is tuple else (state, None)
    if members:
        vars(obj).update(members)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)


def fill_plain(
    obj: Any,
    content: tuple[
        tuple[Mapping[str, object], Mapping[str, object]],
        Sequence[object] | None,
        Sequence[tuple[object, object]] | None,
    ],
) -> None:
    """Fill a container of the program's past all methods of its class, `__setstate__` too."""
    plain, items, pairs = content
    fill(obj, (None, items, pairs))
    set_plain(obj, plain)


def built_in(obj: object, name: str) -> Callable[..., object]:
    """Return a method as the first class has it that is not written in Python."""
    found = (vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls))
    method: Callable[..., object] = next(one for one in found if type(one) is not FunctionType)
    return method


def operator_at(path: str) -> object:
    """Return the operator of that path from `torch.ops` on ('aten.add.Tensor').

    One that is not registered here is a stand-in, if there is one.  Raises AttributeError else.
    """
    if (found := _operator(path)) is None:
        from torchreel.formats.operators import stand_ins

        found = _operator(path) if stand_ins.make(path) else None
    if found is None:
        raise AttributeError(f"there is no operator torch.ops.{path}")
    return found


def _operator(path: str) -> object:
    found: Any = torch.ops
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def new_class(
    make: Callable[..., object],
    metaclass: type,
    name: str,
    bases: tuple[type, ...],
    members: Mapping[str, object],
    *more: object,
) -> object:
    """Return a class that `make` of cloudpickle makes, to be filled.

    A metaclass or an `__init_subclass__` may want arguments, which a class does not keep
    (`class Sub(Base, key="s")`): the class is made past them, as what they did is in its members.
    """
    try:
        return make(metaclass, name, bases, members, *more)
    except TypeError:
        with _subclassed_silently(bases):
            return make(partial(type.__new__, metaclass), name, bases, members, *more)


@contextmanager
def _subclassed_silently(bases: tuple[type, ...]) -> Iterator[None]:
    """Take the `__init_subclass__` of bases away for the length of a `with`."""
    owners = {cls for base in bases for cls in base.__mro__ if "__init_subclass__" in vars(cls)}
    before = {cls: vars(cls)["__init_subclass__"] for cls in owners - {object}}
    for cls in before:
        type.__setattr__(cls, "__init_subclass__", classmethod(lambda cls, **options: None))
    try:
        yield
    finally:
        for cls, method in before.items():
            type.__setattr__(cls, "__init_subclass__", method)


def bare(cls: type) -> object:
    """Return a module without anything in it: `__new__` of some would make one of another class."""
    return object.__new__(cls)


def bare_container(cls: type, base: Any, limit: int | None) -> object:
    """Return an empty container of a class, past the `__new__` and `__init__` of the class.

    `limit` is the number of items that a deque may have.
    """
    made = base.__new__(cls)
    if limit is not None:
        base.__init__(made, (), limit)
    return made


def bare_value(cls: type, base: Any, value: Any) -> object:
    """Return a text, a number or a frozen set of a class, past its `__new__` and `__init__`."""
    return base.__new__(cls, value)


def bare_partial(
    cls: Any, function: Callable[..., object], args: Sequence[Any], given: Mapping[str, Any]
) -> object:
    """Return a `functools.partial` of a class, past the `__new__` and `__init__` of the class."""
    return functools.partial.__new__(cls, function, *args, **given)


def bare_tuple(cls: type[tuple[object, ...]], items: tuple[object, ...]) -> object:
    """Return a tuple of a class with these items, past the `__new__` of the class."""
    return tuple.__new__(cls, items)


def set_members(obj: object, members: Mapping[str, object]) -> None:
    """Give a module or optimizer its former members, past any `__setstate__` of its class.

    Where another bundle had the object, it may hold tensors that the compile itself made.
    """
    present = object.__getattribute__(obj, "__dict__")
    _replaced.extend(_pairs(present, members, 0))
    present.clear()
    present.update(members)


def set_optimizer(obj: object, content: tuple[Mapping[str, object], Sequence[int]]) -> None:
    """Give an optimizer its members, and its class and bases the wrappers that torch had made."""
    members, wrapped = content
    set_members(obj, members)
    optimizers.wrap_steps(type(obj), wrapped)


def set_plain(obj: object, content: tuple[Mapping[str, object], Mapping[str, object]]) -> None:
    """Give an object of a class written in Python its members, and the values of its slots.

    Past all that its class says of pickling and of setting attributes.
    """
    members, slots = content
    if members:
        set_members(obj, members)
    for name, value in slots.items():
        object.__setattr__(obj, name, value)


_replaced: list[tuple[torch.Tensor, torch.Tensor]] = []
_MOST_LEVELS = 6
"""Of dicts and lists in an object: the state of an optimizer has three."""


def replaced_tensors() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the tensors that took the place of others since the last call: both of each."""
    found = list(_replaced)
    _replaced.clear()
    return found


def _pairs(old: Any, new: Any, level: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield tensors at the same place of two values: the new one, and the old one."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        if type(old) is type(new) and old is not new:
            yield new, old
    elif level < _MOST_LEVELS and isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() & new.keys():
            yield from _pairs(old[key], new[key], level + 1)
    elif level < _MOST_LEVELS and isinstance(old, list) and isinstance(new, list):
        for pair in zip(old, new, strict=False):
            yield from _pairs(*pair, level + 1)


def _parts(tensor: Any) -> tuple[object, ...]:
    names, context = tensor.__tensor_flatten__()
    inner = {name: getattr(tensor, name) for name in names}
    carried = _marks_of(tensor)
    autograd = {
        "requires_grad": tensor.requires_grad,
        "leaf": tensor.is_leaf,
        "parameter": isinstance(tensor, torch.nn.Parameter),
    }
    # The length of rows that differ is no number; what holds it knows it anyway.
    numbers = tensor.size(), tensor.stride()
    sizes = [tuple(n if type(n) is int else None for n in ns) for ns in numbers]
    return inner, context, sizes, autograd, carried


def _marks_of(tensor: Any) -> dict[str, object]:
    """Return the marks of a tensor for Dynamo, and its gradient."""
    carried = {k: v for k, v in vars(tensor).items() if k.startswith(_MARKS)}
    if tensor.is_leaf and (of_grad := grad_dtype_of(tensor)) is not None:
        carried["grad_dtype"] = of_grad[0]
    if tensor.is_leaf and tensor.grad is not None:
        carried["grad"] = tensor.grad
    return carried


def grad_dtype_of(tensor: Any) -> tuple[torch.dtype | None] | None:
    """Return in a tuple the dtype that a leaf's gradient has to have; None where it is the leaf's.

    That dtype is None where any will do.
    """
    wanted = getattr(tensor, "grad_dtype", tensor.dtype)
    return None if wanted == tensor.dtype else (wanted,)


def set_marks(tensor: torch.Tensor, carried: Mapping[str, object]) -> None:
    """Give a tensor its marks for Dynamo, and its gradient."""
    for name, value in carried.items():
        setattr(tensor, name, value)


def wrapped(
    cls: Any,
    inner: Mapping[str, object],
    context: object,
    sizes: tuple[Sequence[int | None], Sequence[int | None]],
    autograd: Mapping[str, bool],
    carried: Mapping[str, object],
) -> torch.Tensor:
    """Return a tensor of a wrapper subclass that holds `inner`, with its attributes.

    Raises UnsupportedError for a jagged one.
    """
    if jagged_tensors.is_jagged(cls):  # of a bundle that was made before their forms were kept
        raise UnsupportedError(jagged.REFUSED)
    with torch.no_grad():
        size = tuple(sizes[0]) if None in sizes[0] else torch.Size(sizes[0])  # type: ignore[arg-type]
        whole = cls.__tensor_unflatten__(dict(inner), context, size, tuple(sizes[1]))
    found = with_autograd(whole, autograd)
    set_marks(found, carried)
    return found


class Opaque:
    """Stands where something was that could not be pickled."""

    def __init__(self, type: str, reason: str) -> None:
        self.type, self.reason = type, reason

    def __repr__(self) -> str:
        return f"<{self.type}: {self.reason}>"

    def __getattr__(self, name: str) -> Any:
        members = vars(self)  # empty while it is read back
        what, why = members.get("type", "object"), members.get("reason", "")
        raise AttributeError(f"a {what} was not kept ({why})", name=name, obj=self)

    def __iter__(self) -> Iterator[Any]:
        """Raise AttributeError: an iterator over it (`enumerate`) can't be made again."""
        return self.__getattr__("__iter__")  # type: ignore[no-any-return]


_made: dict[int, Any] = {}
"""In a process that loads bundles: what each token stands for."""


def made(token: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the object of a token: an earlier bundle's, or a new `function(*arguments)`.

    Called while a bundle is loaded.  A token is an id, and may have been reused: the earlier object
    is taken only if it is like the new one.
    """
    new, old = function(*arguments), _made.get(token)
    alike = type(new) is type(old) and getattr(new, "__code__", 0) == getattr(old, "__code__", 0)
    alike = alike and (type(new) is not CodeType or new == old)
    if not alike or getattr(new, "__globals__", 0) is not getattr(old, "__globals__", 0):
        old = _made[token] = new
    return old


def set_marked(obj: object, state: tuple[Any, Callable[..., None], tuple[str, ...]]) -> None:
    """Set the state of an object and mark it for Dynamo.  Called while a bundle is loaded."""
    inner, setter, marks = state
    setter(obj, inner)
    rules.mark_for_dynamo(obj, marks)
