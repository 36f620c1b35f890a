"""The pickler of a bundle: code by value, no data, and a placeholder for what can't be pickled.

Lives here: which object is left out, taken by its place, or made of parts, up to a limit of bytes
and seconds.  Not here: what the pickles are of (`bundles`), and how a reduce value is changed
(`reduce_values`).
"""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from io import IOBase
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import namespaces
from torchreel.formats.frames.parts import (
    Opaque,
    function_beneath,
    grad_dtype_of,
    item,
    made,
    member,
    of_process,
    taken_apart,
)
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.frames import cells, classes, lives, places, secrets
from torchreel.recorder.frames.notes import Notes
from torchreel.recorder.frames.past_methods import (
    answers_itself,
    container_members_of,
    enum_member_of,
    is_bare,
    is_plain,
    items_of,
    makes_itself,
    members_of,
    native_parts_of,
    partial_of,
    plain_members_of,
    value_of,
)
from torchreel.recorder.frames.patches import home_of
from torchreel.recorder.frames.reduce_values import (
    has_own_state,
    is_made_anew,
    past_overrides,
    picks_its_state,
    with_marks,
    with_token,
    without_known_globals,
    without_new,
)
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.operators import dispatcher

LARGEST = 4 << 20
"""Bytes: a hundred times what a frame with a large model takes."""

_PROTOCOL = 3
"""The last one without frames: a string in it can be replaced by a shorter one."""
_PLAIN = frozenset({bool, int, float, str, bytes, list, tuple, dict, set, type(None), CodeType})
_DEEPEST = 10_000
"""Levels of calls in C, while something is pickled: each takes some 330 bytes of the stack."""
_TABLES = (dict, list, set)
_LARGE_TABLE = 256
"""Items of a table of torch's own that is taken by its place, as a replay has it too."""
_OFTEN = 256
"""Objects between two looks at the budget: most are plain data, as cheap as the look."""
_MOST_FLOATS = 1_000
"""A longer list or tuple of nothing but floats is data: weights as `Tensor.tolist` gives them."""
_LONGEST_BYTES = 4096
"""A longer object of bytes that is no code is data: an image, a file, a pickle."""
_LONGEST_NAME = 100
"""Characters: longer strings are no names, which Python keeps once."""

Describe = Callable[[object], "Json | None"]
"""The description of a tensor, array or generator; None for anything else."""

_Persistent = int | str | tuple[str, int] | tuple[str, str, int] | tuple[str, str, str]
"""Names, in a pickle, of what is not in it."""


class TensorAttributes:
    """Stands for the attributes of the tensors that the pickle has come across before it."""


class NamedOperators:
    """Stands for the operators of the program that the functions before it name."""


class FakeKernels:
    """Stands for the fake kernels in Python of the operators that were noted before it."""


class Polyfills:
    """Stands for the polyfills of the program of what the functions before it name."""


class _Sink(io.BytesIO):
    """Takes a bundle's bytes, up to a limit."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def write(self, data: Any, /) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST:
            self._notes.stopped = f"it is larger than {LARGEST} bytes"
            raise UnsupportedError(self._notes.stopped)
        return super().write(data)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value the objects that cloudpickle does, but neither data nor what it can't."""

    def __init__(self, sink: _Sink, describe: Describe, notes: Notes) -> None:
        super().__init__(sink, protocol=_PROTOCOL)
        self._describe, self._notes = describe, notes
        self._numbers: dict[int, int] = {}
        self._held: list[object] = []
        self._globals: dict[int, tuple[str, str, int]] = {}
        self._of_code: set[bytes] = set()
        self._constants: set[int] = set()
        self._cells = cells.Cells()
        self._answers_itself: dict[type, bool] = {}
        self._count = 0
        self._tables: dict[int, tuple[str, str]] | None = None

    def persistent_id(self, obj: object) -> _Persistent | None:
        """Return a persistent id; None for an object that is pickled itself.

        It is the number of a tensor's description, the name of a function's globals, a string that
        Python keeps once, or the size of data.

        Dynamo looks constants up by their identity: a key that was a constant has to be one again.
        """
        self._count += 1
        if not self._count % _OFTEN:
            self._notes.budget.check(self._notes, _OFTEN)
        if type(obj) is str:
            return obj if _is_kept_once(obj) else None
        if self._notes.most_items is not None and (count := _items(obj)) > self._notes.most_items:
            self._notes.missing(type(obj).__qualname__, f"{count} items are data")
            return "items", count
        if type(obj) in _PLAIN:
            if type(obj) in _TABLES and (place := self._table_of_torch(obj)) is not None:  # type: ignore[arg-type]
                return "member", *place
            if type(obj) is dict:
                self._look(obj.items())
                return self._globals.get(id(obj))
            if type(obj) is CodeType:
                self._of_code |= {obj.co_code, obj.co_linetable, obj.co_exceptiontable}
                self._constants |= _ids_of_tuples(obj.co_consts)
            if type(obj) in (list, tuple) and self._is_data(obj):
                self._notes.missing(type(obj).__name__, f"{len(obj)} floats are data")  # type: ignore[arg-type]
                return "items", len(obj)  # type: ignore[arg-type]
            if type(obj) is bytes and len(obj) > _LONGEST_BYTES and obj not in self._of_code:
                self._notes.missing("bytes", f"{len(obj)} bytes are data")
                return "bytes", len(obj)
            return None
        kind: Any = type(obj)
        if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            self._look(zip(kind._fields, tuple.__iter__(obj), strict=False))  # type: ignore[arg-type]
        self._notes.budget.check(self._notes)
        number = self._numbers.get(id(obj))
        if number is None:
            description = self._describe(obj)
            if description is None:
                return None
            if isinstance(description, Mapping) and description.get("k") == "opaque":
                name, why = str(description.get("type")), str(description.get("reason"))
                self._notes.missing(name, why)
            description = self._with_base(obj, description)
            number = self._numbers[id(obj)] = len(self._held)
            self._held.append(obj)
            if isinstance(description, Mapping):
                description = {**description, "token": lives.token(obj)}
            self._notes.tensors.append(description)
        return number

    def _table_of_torch(self, table: Sized) -> tuple[str, str] | None:
        """Return the place of a large table that torch has in a module: its lowerings, say."""
        if len(table) < _LARGE_TABLE:
            return None
        if self._tables is None:
            self._tables = places.tables_of_torch(_TABLES, _LARGE_TABLE)
        return self._tables.get(id(table))

    def _with_base(self, obj: Any, description: Json) -> Json:
        """Add to the description of a view the number of its base, and how it was made."""
        is_view = getattr(type(obj), "_is_view", None)
        if is_view is None or not isinstance(description, Mapping) or "levels" in description:
            return description  # what is inside of a transform's levels is no view of anything
        if not is_view(obj):
            return description
        from torchreel.torch_compat.tensors.fake_tensors import creation_of_view

        base = self.persistent_id(obj._base)
        if not isinstance(base, int):
            return description
        return {**description, "base": base, "creation": creation_of_view(obj)}

    def _look(self, found: Iterable[tuple[Any, Any]]) -> None:
        """Look at text under a name: by itself, or in a collection."""
        for key, value in found:
            if type(key) is str:
                self._notes.pairs.update((key, text) for text in secrets.texts(value))

    def _look_at_function(self, function: FunctionType) -> None:
        code, closure = function.__code__, function.__closure__ or ()
        self._notes.add_code(code)
        self._notes.constants.update(secrets.of_code(code))
        self._look(zip(code.co_freevars, map(cells.content, closure), strict=False))
        defaults = function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount]
        self._look(zip(names[len(names) - len(defaults) :], defaults, strict=True))

    def _function_getnewargs(self, function: FunctionType) -> Any:
        """Do as cloudpickle; its dict shared by functions of one module stands for the module's."""
        arguments = super()._function_getnewargs(function)
        scope, name = function.__globals__, function.__globals__.get("__name__")
        known = isinstance(name, str) and vars(sys.modules.get(name, sys)) is scope
        kind = "module" if known or id(scope) in self._notes.scopes else "scope"
        # The code of an FX module has globals without a name, which Dynamo tells from others.
        self._globals[id(arguments[1])] = kind, str(name) if name is not None else "", id(scope)
        if known and name != "__main__":
            self._add_owner(sys.modules[str(name)])
        return *arguments[:-1], self._cells.of(function)

    def reducer_override(self, obj: Any) -> Any:
        """Do as cloudpickle does; an object that refuses is replaced and named."""
        if (notes := self._in_the_place_of(obj)) is not None:
            return notes
        if type(obj) is cells.EmptyCell:
            return cells.made, (obj.token, obj.name)
        if type(obj) is CellType:
            return self._cells.reduced(obj)
        if issubclass(type(obj), IOBase):
            return self._stream(obj)
        if (place := places.of_binding(obj)) is not None:
            return self._member(place)
        if issubclass(type(obj), (type, FunctionType)):  # which cloudpickle asks all else for
            return self._class_or_function(obj)
        if type(obj) is ModuleType:
            self._notes.add_module(obj.__name__)
            self._add_owner(obj)
        if self._is_to_be_read(type(obj)):
            return self._read(obj)
        with fail_open("bundle", quiet=True, runs_program=True) as attempt:
            return self._known_to_pickle(obj)
        return self._refusing(obj, attempt)

    def _in_the_place_of(self, obj: Any) -> Any:
        """Return the reduce value of what stands for something noted meanwhile; None for others."""
        if type(obj) is TensorAttributes:
            return dict, (self._attributes(),)
        if type(obj) is NamedOperators:
            return list, (self._operators(),)
        if type(obj) is FakeKernels:
            return dict, (self._fake_kernels(),)
        if type(obj) is Polyfills:
            return list, (self._polyfills(),)
        return None

    def _member(self, place: tuple[str, str]) -> Any:
        """Return the reduce value of what is found again in a module."""
        self._notes.add_module(place[0])
        return member, place

    def _class_or_function(self, obj: Any) -> Any:
        found = super().reducer_override(obj)
        if found is NotImplemented:  # not its own: pickle keeps the name
            self._notes.add_module(getattr(obj, "__module__", None))
            self._add_owner(obj)
            return found
        if type(obj) is not FunctionType:
            return with_marks(obj, classes.with_members(obj, found))
        if (beneath := places.of_function(obj)) is not None:
            self._notes.add_module(obj.__module__)
            self._add_owner(obj)
            return function_beneath, beneath
        self._look_at_function(obj)
        return with_token(obj, with_marks(obj, without_known_globals(obj, found)))

    def _known_to_pickle(self, obj: Any) -> Any:
        """Return the reduce value of an object by a rule of ours, else that of its class."""
        if (name := places.own_name(obj)) is not None:
            self._notes.add_module(obj.__module__)
            return name
        if (place := places.of_singleton(obj)) is not None:
            return self._member(place)
        if (parts := taken_apart(obj)) is not None:
            self._notes.add_operators(dispatcher.library_overloads(obj))
            return with_token(obj, parts)
        if has_own_state(obj) and (parts := members_of(obj)) is not None:
            return with_token(obj, parts)
        if picks_its_state(obj) and (parts := plain_members_of(obj)) is not None:
            return with_token(obj, parts)
        return self._by_its_class(obj)

    def _by_its_class(self, obj: Any) -> Any:
        reduce = self.dispatch_table.get(type(obj))
        with classes.leaving_no_slot_names(type(obj)):
            found = obj.__reduce_ex__(_PROTOCOL) if reduce is None else reduce(obj)
        if type(found) is str:
            places.check_name(obj, found)
            home = getattr(obj, "__module__", "")
            if home == "__main__" and (parts := plain_members_of(obj)) is not None:
                return with_token(obj, parts)  # a replay has another `__main__`
        if type(obj) is not CodeType and (count := _bytes_in(found)) > _LONGEST_BYTES:
            return self._left_out(obj, f"{count} bytes are data")
        if places.is_mark(obj, found):
            homes = {*self._modules(), type(obj).__module__}
            if (place := places.in_modules(obj, homes)) is not None:
                return self._member(place)
        if is_made_anew(obj, found) and (parts := plain_members_of(obj)) is not None:
            return with_token(obj, parts)
        return with_token(obj, past_overrides(obj, without_new(obj, found)))

    def _refusing(self, obj: Any, attempt: fail_open) -> Any:
        """Return the reduce value of an object that pickle refuses."""
        if (parts := members_of(obj)) is not None:
            return with_token(obj, parts)
        if (place := places.in_modules(obj, self._modules())) is not None:
            return self._member(place)
        if (parts := of_process(obj)) is not None:
            if type(obj) is ContextVar:
                self._look([(obj.name, parts[2])])
            make, arguments, *rest = parts
            return made, (id(obj), make, *arguments), *rest
        if (parts := plain_members_of(obj)) is not None:
            return with_token(obj, parts)
        kind = attempt.kind.__name__ if attempt.kind else ""
        return self._left_out(obj, f"it can't be pickled ({kind})")

    def _is_data(self, items: Any) -> bool:
        """Return True for a long list or tuple of floats that is no constant of code."""
        if len(items) <= _MOST_FLOATS or id(items) in self._constants:
            return False
        return all(type(item) is float for item in items)

    def _is_to_be_read(self, cls: type) -> bool:
        """Return True for a class whose objects are read past it: it runs code when asked."""
        known = self._answers_itself.get(cls)
        if known is None:
            known = self._answers_itself[cls] = answers_itself(cls)
        return known

    def _read(self, obj: object) -> Any:
        """Return the reduce value of an object by its members; nothing of its class is called.

        One that says how it is made again may be one of a kind, which code knows by identity.
        """
        parts: Any = None
        with fail_open("bundle", quiet=True, runs_program=True):
            if (parts := taken_apart(obj)) is not None or (parts := members_of(obj)) is not None:
                return with_token(obj, parts)
            if (place := self._place_of(obj)) is not None:
                self._notes.add_module(place[0])
                return member, place
            if makes_itself(type(obj)) and is_plain(obj):
                home = home_of(type(obj))
                if (entry := places.in_tables(obj, home)) is not None:
                    self._notes.add_module(home)
                    return item, entry
            ways = (
                enum_member_of, partial_of, plain_members_of, container_members_of, value_of,
                native_parts_of,
            )  # fmt: skip
            parts = next((found for way in ways if (found := way(obj)) is not None), None)
        if parts is None:
            return self._left_out(obj, "only code of its own could say what it is made of")
        if (count := _bytes_in(parts)) > _LONGEST_BYTES:
            return self._left_out(obj, f"{count} bytes are data")
        if (items := items_of(parts)) is not None and self._is_data(items):
            return self._left_out(obj, f"{len(items)} floats are data")
        return with_token(obj, parts)

    def _place_of(self, obj: object) -> tuple[str, str] | None:
        if (place := places.own_place(obj)) is not None:
            return place
        if not is_plain(obj) or not (makes_itself(type(obj)) or is_bare(obj)):
            return None
        return places.in_modules(obj, {*self._modules(), home_of(type(obj))})

    def _left_out(self, obj: object, why: str) -> Any:
        """Return the reduce value of what stands for an object that is left out, and note it."""
        kind = type(obj)
        opaque = self._notes.missing(f"{kind.__module__}.{kind.__qualname__}", why)
        return Opaque, (opaque.type, opaque.reason)

    def _stream(self, obj: Any) -> Any:
        """Return the reduce value of one of Python's standard streams; any other is left out.

        cloudpickle would read a file to its end, and keep what is in it.
        """
        for name in ("stdin", "stdout", "stderr"):
            if obj is getattr(sys, name, None):
                return member, ("sys", name)
        return self._left_out(obj, "what is in a file is data")

    def _modules(self) -> set[str]:
        """Return the names of the modules of the functions so far."""
        return {name for kind, name, _ in self._globals.values() if kind == "module"}

    def _add_owner(self, obj: Any) -> None:
        """Note a module, or a class and its bases, with their modules, which are taken by name."""
        found: list[Any] = [obj]
        if issubclass(type(obj), type):
            found = list(type.__getattribute__(obj, "__mro__"))
        found += [sys.modules.get(home_of(one)) for one in found]
        for one in found:
            if issubclass(type(one), (type, ModuleType, FunctionType)):
                self._notes.owners[id(one)] = one

    def _operators(self) -> list[object]:
        """Return the operators that the program defined, and that its code finds by their names.

        An operator is found in `torch.ops`: nothing else of the bundle would bring it.
        """
        found: list[object] = []
        with fail_open("operators of a bundle", quiet=True):
            from torchreel.torch_compat.operators.operator_definitions import definitions

            found = [
                defined
                for name, defined in definitions().items()
                if {"ops", *name.split("::")} <= self._notes.names
            ]
            self._notes.add_operators(
                dispatcher.named_operators(self._notes.names, namespaces.TORCHS)
            )
        return found

    def _fake_kernels(self) -> list[tuple[str, object]]:
        """Return the fake kernels of the operators that were noted, by the operators' names."""
        found: list[tuple[str, object]] = []
        with fail_open("operators of a bundle", quiet=True):
            for name, operator in self._notes.operators.items():
                if (kernel := dispatcher.fake_kernel(operator)) is not None:
                    found.append((name, kernel))
        return found

    def _polyfills(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        with fail_open("polyfills of a bundle", quiet=True):
            from torchreel.torch_compat.dynamo.rules import polyfills

            found = [
                tuple(one)
                for one in polyfills()
                if getattr(one.original, "__name__", "") in self._notes.names
                and not places.is_known_anywhere(one.traced)
            ]
        return found

    def _attributes(self) -> list[tuple[int, dict[str, Any]]]:
        """Return attributes (marks for Dynamo), gradients and classes of the tensors, by number.

        A class of the program's (`torchvision.tv_tensors.Image`) comes last: it may look at all.
        A gradient may have marks of its own, so that each gets a number here.
        """
        found, first = [], len(self._held)
        for number, tensor in enumerate(self._held):  # which grows by the gradients
            description = self._notes.tensors[number]
            if isinstance(description, Mapping) and description.get("k") == "fake":
                continue  # it would bring its mode
            carried = dict(getattr(tensor, "__dict__", None) or {})
            is_leaf = number < first and _tensors_own(tensor, "is_leaf")
            if is_leaf and (of_grad := grad_dtype_of(tensor)) is not None:
                carried["grad_dtype"] = of_grad[0]  # before the gradient, which it allows
            if is_leaf and (grad := _tensors_own(tensor, "grad")) is not None:
                carried["grad"] = grad
                self.persistent_id(grad)
            if _is_plain(description) and _has_class(tensor):
                carried["__class__"] = type(tensor)
            if carried:
                found.append((number, carried))
        return found


def _is_plain(description: Json) -> bool:
    """Return True for the description of a tensor that is no wrapper, and of no special kind."""
    return isinstance(description, Mapping) and description.get("k") == "tensor"


def _has_class(tensor: object) -> bool:
    """Return True for a tensor of a class that is more than a tensor, be it one of torch's own."""
    kind = type(tensor)
    home, *below = str(kind.__module__).split(".")
    # A fake tensor, a functional one: torch makes them for itself.
    is_private = home == "torch" and any(part.startswith("_") for part in below)
    return kind not in (torch.Tensor, torch.nn.Parameter) and not is_private


def _tensors_own(tensor: object, name: str) -> Any:
    """Return an attribute as torch has it, past a property of the tensor's class; None if none."""
    if not issubclass(type(tensor), torch.Tensor):
        return None
    with torch._C.DisableTorchFunctionSubclass():
        return getattr(torch.Tensor, name).__get__(tensor)


def _ids_of_tuples(constants: tuple[object, ...]) -> set[int]:
    """Return the ids of a tuple and of the tuples in it."""
    inner = [_ids_of_tuples(one) for one in constants if type(one) is tuple]
    return {id(constants)}.union(*inner)


def _bytes_in(reduced: Any) -> int:
    """Return how many bytes of data a reduce value hands to a function, or to `__setstate__`."""
    if type(reduced) is not tuple:
        return 0
    handed = [*reduced[1], *reduced[2:3]]
    return sum(len(one) for one in handed if type(one) in (bytes, bytearray))


def _is_kept_once(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isidentifier() and text is sys.intern(text)


@contextmanager
def _bounded_depth(notes: Notes) -> Iterator[None]:
    """Bound the depth of what is pickled, where the program has raised Python's limit.

    pickle goes down in C: 25,000 levels are more than a stack of 8 MB holds, and end the process.
    """
    limit = sys.getrecursionlimit()
    if limit <= _DEEPEST:
        yield
        return
    # The limit is that of all threads: lowered, it would end another that is deep in calls.
    if any(not one.name.startswith(_OWN_THREADS) for one in _others()):
        notes.stopped = "the program raised Python's recursion limit, and has other threads"
        raise UnsupportedError(notes.stopped)
    sys.setrecursionlimit(_DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_OWN_THREADS = "torchreel"


def _others() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one is not threading.current_thread()]


def _items(obj: object) -> int:
    """Return the number of items of a container, past what its class says; 0 for anything else."""
    for kind in (dict, list, tuple, set, frozenset, deque):
        if issubclass(type(obj), kind):
            return kind.__len__(obj)  # type: ignore[arg-type]
    return 0


def pickled(content: object, describe: Describe, notes: Notes) -> tuple[bytes | None, str]:
    """Return the pickle and '', or None and the type of the exception."""
    sink = _Sink(notes)
    with fail_open("bundle", quiet=True, runs_program=True) as attempt, _bounded_depth(notes):
        Pickler(sink, describe, notes).dump(content)
        return sink.getvalue(), ""
    return None, attempt.kind.__name__ if attempt.kind is not None else ""
