"""Frame bundles: what Dynamo needs to trace a frame again, without any of its data.

The frame's code with the globals that it refers to, its closure and its arguments, as a pickle that
cloudpickle makes.  Tensors, arrays and random generators are not in it: in their place stand
numbers, which the descriptions beside the pickle explain.  What can't be pickled is replaced by an
`Opaque` and named.  Text goes through the rules of redaction, string by string.

Globals are named by their module, so that the code and what it calls share them again; objects and
functions have a token, so that two bundles of one recording share what the program shared.

Lives here: how a bundle is made.  Not here: when (`probes.bundles`), and how one is read
(`torchreel.replay.child.bundles`: it is code, and needs trust).  Nothing here changes an object;
but to pickle one may run its own `__reduce__` or `__getstate__`.
"""

from __future__ import annotations

import base64
import collections
import copyreg
import hashlib
import io
import linecache
import pickletools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from torchreel.errors import UnsupportedError
from torchreel.recorder.frames import cells, classes, places, secrets
from torchreel.recorder.frames.patches import home_of, members_of, patches, qualname_of
from torchreel.recorder.guard import fail_open
from torchreel.recorder.redaction import REDACTED, Redactor
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json

FORMAT = 2

LARGEST = 4 << 20
"""Bytes: a hundred times what a frame with a large model takes."""
_LARGEST_OBJECT = 1 << 18
"""Bytes of one object, which each checkpoint holds anew."""
_LARGEST_PATCH = 1 << 13
"""Bytes of a changed member of a module: redaction takes milliseconds for each of its strings."""
LONGEST = 2.0
"""Seconds: looked at with every object, so that neither size nor time gets out of hand."""

GENERATED = "<eval_with_key>"
"""Prefix of the file names of FX modules: torch shows such files as a whole."""

_PROTOCOL = 3
"""The last one without frames: a string in it can be replaced by a shorter one."""
_PLAIN = frozenset({bool, int, float, str, bytes, list, tuple, dict, set, type(None), CodeType})
_LONGEST_BYTES = 4096
"""A longer object of bytes that is no code is data: an image, a file, a pickle."""
_MOST_REASONS = 20
_LONGEST_NAME = 100
"""Characters: longer strings are no names, which Python keeps once."""


class Opaque:
    """Stands where something was that could not be pickled."""

    def __init__(self, type: str, reason: str) -> None:
        self.type, self.reason = type, reason

    def __repr__(self) -> str:
        return f"<{self.type}: {self.reason}>"

    def __getattr__(self, name: str) -> Any:
        told = vars(self)  # empty while it is read back
        what, why = told.get("type", "object"), told.get("reason", "")
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


@dataclass(frozen=True)
class Bundle:
    """A bundle, or why there is none; `tensors` is JSON, and `data` None for status 'refused'."""

    status: str
    reason: str
    data: bytes | None = None
    tensors: bytes | None = None


@dataclass(frozen=True)
class Frame:
    """A Python frame as Dynamo gets it."""

    code: CodeType
    globals: dict[str, Any]
    locals: Mapping[str, Any]
    closure: tuple[CellType, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by name; `*args` and `**kwargs` as the tuple and the dict that they
        are.
        """
        code = self.code
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
        names = [name for name in code.co_varnames[:count] if name in self.locals]
        return {name: _content(self.locals[name]) for name in names}

    def module(self) -> set[str]:
        """Return the name of the module that the code is from, if it is one that can be
        imported.
        """
        name = self.globals.get("__name__")
        never = {"__main__", *places.KNOWN_ANYWHERE}
        if not isinstance(name, str) or name.partition(".")[0] in never:
            return set()
        return {name} if vars(sys.modules.get(name, sys)) is self.globals else set()

    def own_modules(self) -> dict[str, ModuleType]:
        """Return globals that are modules of torch or Python under their own names.

        The code may not name them, but Dynamo's own bytecode uses them where they are
        (`PyCodegen.create_load_python_module`).
        """
        found = {n: mod for n, mod in list(self.globals.items()) if type(mod) is ModuleType}
        return {
            name: mod
            for name, mod in found.items()
            if mod.__name__.partition(".")[0] in places.KNOWN_ANYWHERE
            and mod.__name__.rpartition(".")[2] == name
            and sys.modules.get(mod.__name__) is mod
        }

    def function(self) -> FunctionType:
        """Return a function that runs the frame's code."""
        return FunctionType(self.code, self.globals, self.code.co_name, None, self.closure)


def _content(value: Any) -> Any:
    """Return an argument, taken out of its cell if an inner function uses it."""
    if not isinstance(value, CellType):
        return value
    try:
        return value.cell_contents
    except ValueError:
        return Opaque("cell", "it is empty")


Describe = Callable[[object], "Json | None"]
"""The description of a tensor, array or generator; None for anything else."""


def make(
    frame: Frame,
    describe: Describe,
    redactor: Redactor | None,
    call: Json = None,
    known: Mapping[str, object] | None = None,
    resumed: Frame | None = None,
) -> Bundle:
    """Return the bundle of a frame.  Raises nothing that its objects raise.

    `call` describes the compile; `known` are Dynamo's facts about a function that it made itself
    (`resume`), and about the code of an FX module (`traced`); `resumed` is the frame that such a
    function continues, which is left out if it can't be kept.
    """
    if resumed is not None:
        whole = {"function": resumed.function(), "arguments": resumed.arguments()}
        made = make(frame, describe, redactor, call, {**(known or {}), "resumed": whole})
        if made.data is not None:
            return made
    if redactor is not None and redactor.rules.mode == "all":
        return Bundle("refused", "all text is to be redacted, and a frame is made of text")
    notes = _Notes()
    content = {
        **_content_of(frame), **(known or {}), "operators": _Operators(),
        "attributes": _Attributes(),
    }  # fmt: skip
    data, reason = _pickle(content, describe, notes)
    if data is None and notes.stopped is None:
        notes = _Notes()
        content = _without_culprits(content, describe, notes)
        data, reason = _pickle(content, describe, notes)
    if data is None:
        return Bundle("refused", notes.stopped or f"it could not be pickled: {reason}")
    data, redacted = _redacted(data, redactor, notes)
    if redacted:
        notes.reasons.append(f"{redacted} strings were redacted")
    status = "partial" if notes.reasons else "complete"
    kept = _patches(notes, describe, redactor)
    document = _document(notes, notes.modules | frame.module())
    document |= {"call": call, "patches": kept, "marks": _marks(notes)}
    return Bundle(status, notes.told(), data, canonical_json(document))


def _patches(notes: _Notes, describe: Describe, redactor: Redactor | None) -> dict[str, Json]:
    """Return what stands in place of members of the modules and classes that a frame comes to.

    Each is a pickle of its own beside that of the frame, which does not depend on it. One that
    can't be pickled as a whole, or holds tensors or secrets, is left out, and named.
    """
    found, left, begun = list[Json](), list[Json](), time.monotonic()
    for owner, name, value, _ in patches(list(notes.owners.values()), notes.names):
        module, cls = home_of(owner), qualname_of(owner)
        own, place = _Notes(), ".".join(filter(None, (module, cls, name)))
        late = time.monotonic() - begun > LONGEST
        data, reason = (None, "there was no time") if late else _pickle(value, describe, own)
        if data is None or own.reasons or own.tensors:
            left.append(f"{place}: {own.told() or reason or 'it holds tensors'}")
            continue
        if len(data) > _LARGEST_PATCH:
            left.append(f"{place}: it is larger than {_LARGEST_PATCH} bytes")
            continue
        data, secrets_in_it = _redacted(data, redactor, own)
        if secrets_in_it:
            left.append(f"{place}: it has secrets")
            continue
        for file, spans in own.lines.items():
            notes.lines.setdefault(file, set()).update(spans)
        found.append({
            "module": module, "class": cls, "member": name,
            "data": base64.b64encode(data).decode(), "ruled": _is_ruled(value),
        })  # fmt: skip
    return {"kept": found, "left_out": left[:_MOST_REASONS]}


def _marks(notes: _Notes) -> list[Json]:
    """Return the marks for Dynamo (`allow_in_graph`) of what the code finds by name in modules.

    They are kept by id, so neither a name nor the module has them.
    """
    from torchreel.torch_compat import dynamo

    found: list[Json] = []
    for owner in list(notes.owners.values()):
        members = members_of(owner) if type(owner) is ModuleType else {}
        for name in sorted(notes.names & members.keys()):
            if marks := dynamo.dynamo_marks(members[name]):
                found.append({"module": home_of(owner), "member": name, "marks": list(marks)})
    return found


def _is_ruled(value: object) -> bool:
    """Return True if Dynamo has, or will have, a rule for a function by the name of torch's."""
    from torchreel.torch_compat import dynamo

    return type(value) is FunctionType and dynamo.has_rule(value)


def make_object(value: object, describe: Describe, redactor: Redactor | None) -> Bundle:
    """Return the bundle of one object of the program's: a backend, a pass.

    Raises nothing that it raises.

    Nothing is left out of it: with a part missing it would be another pass.
    """
    if redactor is not None and redactor.rules.mode == "all":
        return Bundle("refused", "all text is to be redacted, and code is made of text")
    notes = _Notes()
    data, reason = _pickle({"format": FORMAT, "object": value}, describe, notes)
    if data is None or notes.reasons:
        why = notes.stopped or notes.told() or f"it could not be pickled: {reason}"
        return Bundle("refused", why)
    data, redacted = _redacted(data, redactor, notes)
    if redacted:
        return Bundle("refused", f"{redacted} strings of it were redacted")
    if len(data) > _LARGEST_OBJECT:
        return Bundle("refused", f"it is larger than {_LARGEST_OBJECT} bytes")
    return Bundle("complete", "", data, canonical_json(_document(notes, notes.modules)))


def with_state(
    bundle: Bundle,
    members: Iterable[tuple[object, str]],
    describe: Describe,
    redactor: Redactor | None,
) -> Bundle | None:
    """Return the bundle with the contents of module members, such as a registry.

    Each is a pickle of its own beside that of the frame.  None if there is nothing to keep.  A
    content that can't be pickled as a whole, or holds tensors, is left out: a replay that misses it
    says so.
    """
    state: list[Json] = []
    for module, name in sorted(members, key=lambda member: (str(member[0]), member[1])):
        content = _filled(module, name)
        notes = _Notes()
        data = None if content is None else _pickle(content, describe, notes)[0]
        if data is None or notes.reasons or notes.tensors:
            continue
        data, redacted = _redacted(data, redactor, notes)
        if not redacted:
            text = base64.b64encode(data).decode()
            state.append({"module": module.__name__, "member": name, "data": text})  # type: ignore[attr-defined]
    if not state or bundle.tensors is None:
        return None
    document = parse_json(bundle.tensors)
    assert isinstance(document, Mapping)
    return replace(bundle, tensors=canonical_json({**document, "state": state}))


def _filled(module: object, name: str) -> object:
    """Return the content of a container of a module as a built-in one; None if it is empty."""
    found = vars(module).get(name) if type(module) is ModuleType else None
    # By type, and its own methods: the program's classes may have others.
    if issubclass(type(found), dict):
        return dict(dict.items(found)) or None  # type: ignore[arg-type]
    if issubclass(type(found), list):
        return list(list.__iter__(found)) or None  # type: ignore[arg-type]
    if issubclass(type(found), set):
        return set(set.__iter__(found)) or None  # type: ignore[arg-type]
    return None


def _document(notes: _Notes, modules: set[str]) -> dict[str, Json]:
    """Return the document stored beside the pickle, which needs no trust to be read."""
    return {
        "tensors": notes.tensors,
        "lines": {file: _lines(file, spans) for file, spans in sorted(notes.lines.items())},
        "modules": {name: _of_module(name) for name in sorted(modules)},
    }


def _lines(file: str, spans: set[tuple[int, int]]) -> Json:
    """Return the lines of a file that functions of the bundle are made of: messages quote them."""
    text = linecache.getlines(file)
    if file.startswith(GENERATED):
        spans = {(1, len(text))}
    numbers = {number for first, last in spans for number in range(first, last + 1)}
    return {str(n): text[n - 1] for n in sorted(numbers) if 0 < n <= len(text)}


def _of_module(name: str) -> Json:
    """Describe a module that the bundle refers to: file, version, and the digest of its source."""
    module = sys.modules.get(name)
    version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", None)
    file = getattr(module, "__file__", None)
    digest = None
    with fail_open("source of a module", quiet=True):
        digest = hashlib.sha256(Path(str(file)).read_bytes()).hexdigest()
    return {
        "file": file if isinstance(file, str) else None,
        "version": version if isinstance(version, str) else None,
        "source": digest,
    }


@dataclass
class _Notes:
    """Notes that are taken while one pickle is made."""

    tensors: list[Json] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    stopped: str | None = None
    files: set[str] = field(default_factory=set)
    """Files of the functions that are pickled by value."""
    pairs: set[tuple[str, str]] = field(default_factory=set)
    """Text in dictionaries (also globals and attributes) and cells, with its key."""
    variables: set[str] = field(default_factory=set)
    """Names of arguments and variables in that code: the code can't do without them."""
    constants: set[str] = field(default_factory=set)
    """Text that the code puts under the name of a secret."""
    names: set[str] = field(default_factory=set)
    """Names of globals and attributes in that code."""
    lines: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """By file: the first and the last line of each function that is pickled by value."""
    modules: set[str] = field(default_factory=set)
    """Modules that it refers to by name."""
    owners: dict[int, ModuleType | type | FunctionType] = field(default_factory=dict)
    """Modules, classes and functions that it refers to by name."""
    scopes: set[int] = field(default_factory=set)
    """Dictionaries that stand for the globals of a module."""

    def add_code(self, code: CodeType) -> None:
        """Note the file, lines and names of the code of a function that is pickled by value."""
        self.files.add(code.co_filename)
        self.variables.update((*code.co_varnames, *code.co_freevars, *code.co_cellvars))
        self.names.update(code.co_names)
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        self.lines.setdefault(code.co_filename, set()).add((code.co_firstlineno, last))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.add_code(constant)

    def add_module(self, name: object) -> None:
        """Note a module that the bundle refers to by name."""
        if isinstance(name, str) and name.partition(".")[0] not in places.KNOWN_ANYWHERE:
            self.modules.add(name)

    def missing(self, what: str, reason: str) -> Opaque:
        """Note that something is not in the bundle; return its placeholder."""
        if f"{what}: {reason}" not in self.reasons:
            self.reasons.append(f"{what}: {reason}")
        return Opaque(what, reason)

    def told(self) -> str:
        more = len(self.reasons) - _MOST_REASONS
        found = self.reasons[:_MOST_REASONS] + ([f"and {more} more"] if more > 0 else [])
        return "; ".join(found)


def _content_of(frame: Frame) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "function": frame.function(),
        "modules": frame.own_modules(),
        "arguments": frame.arguments(),
    }


_Persistent = int | str | tuple[str, int] | tuple[str, str, int]
"""Names, in a pickle, of what is not in it."""


class _Attributes:
    """Stands for the attributes of the tensors that the pickle has come across before it."""


class _Operators:
    """Stands for the operators of the program that the functions before it name."""


class _Sink(io.BytesIO):
    """Takes a bundle's bytes, up to a limit."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def write(self, data: Any, /) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST:
            self._notes.stopped = f"it is larger than {LARGEST} bytes"
            raise UnsupportedError(self._notes.stopped)
        return super().write(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value the objects that cloudpickle does, but neither data nor what it can't."""

    def __init__(self, sink: _Sink, describe: Describe, notes: _Notes) -> None:
        super().__init__(sink, protocol=_PROTOCOL)
        self._describe, self._notes = describe, notes
        self._numbers: dict[int, int] = {}
        self._held: list[object] = []
        self._globals: dict[int, tuple[str, str, int]] = {}
        self._of_code: set[bytes] = set()
        self._cells = cells.Cells()
        self._deadline = time.monotonic() + LONGEST

    def persistent_id(self, obj: object) -> _Persistent | None:
        """Return a persistent id; None for an object that is pickled itself.

        It is the number of a tensor's description, the name of a function's globals, a string that
        Python keeps once, or the size of data.

        Dynamo looks constants up by their identity: a key that was a constant has to be one again.
        """
        if type(obj) is str:
            return obj if _is_kept_once(obj) else None
        if type(obj) in _PLAIN:
            if type(obj) is dict:
                self._look(obj.items())
                return self._globals.get(id(obj))
            if type(obj) is CodeType:
                self._of_code |= {obj.co_code, obj.co_linetable, obj.co_exceptiontable}
            if type(obj) is bytes and len(obj) > _LONGEST_BYTES and obj not in self._of_code:
                self._notes.missing("bytes", f"{len(obj)} bytes are data")
                return "bytes", len(obj)
            return None
        kind: Any = type(obj)
        if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            self._look(zip(kind._fields, tuple.__iter__(obj), strict=False))  # type: ignore[arg-type]
        if time.monotonic() > self._deadline:
            self._notes.stopped = f"it took longer than {LONGEST:g} s"
            raise UnsupportedError(self._notes.stopped)
        number = self._numbers.get(id(obj))
        if number is None:
            description = self._describe(obj)
            if description is None:
                return None
            description = self._with_base(obj, description)
            number = self._numbers[id(obj)] = len(self._held)
            self._held.append(obj)
            if isinstance(description, Mapping):
                description = {**description, "token": id(obj)}
            self._notes.tensors.append(description)
        return number

    def _with_base(self, obj: Any, description: Json) -> Json:
        """Add to the description of a view the number of its base, and how it was made."""
        is_view = getattr(type(obj), "_is_view", None)
        if is_view is None or not isinstance(description, Mapping) or "levels" in description:
            return description  # what is inside of a transform's levels is no view of anything
        if not is_view(obj):
            return description
        from torchreel.torch_compat.fake_tensors import creation_of_view

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
        self._look(zip(code.co_freevars, map(_content, closure), strict=False))
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
        if type(obj) is _Attributes:
            return dict, (self._attributes(),)
        if type(obj) is _Operators:
            return list, (self._operators(),)
        if type(obj) is cells.EmptyCell:
            return cells.made, (obj.token, obj.name)
        if type(obj) is CellType:
            return self._cells.reduced(obj)
        found = super().reducer_override(obj)
        if found is not NotImplemented and type(obj) is FunctionType:
            if (beneath := places.of_function(obj)) is not None:
                from torchreel.formats.frames.parts import function_beneath

                self._notes.add_module(obj.__module__)
                self._add_owner(obj)
                return function_beneath, beneath
            self._look_at_function(obj)
            return _with_token(obj, _with_marks(obj, _without_known_globals(obj, found)))
        if found is not NotImplemented or issubclass(type(obj), (type, FunctionType)):
            if found is NotImplemented:
                self._notes.add_module(getattr(obj, "__module__", None))
                self._add_owner(obj)
            elif issubclass(type(obj), type):
                return _with_marks(obj, classes.with_members(obj, found))
            return found  # what is not its own is left to pickle: classes and functions, by name
        if type(obj) is ModuleType:
            self._notes.add_module(obj.__name__)
            self._add_owner(obj)
        with fail_open("bundle", quiet=True) as attempt:
            from torchreel.formats.frames.parts import member, taken_apart

            if (name := places.own_name(obj)) is not None:
                self._notes.add_module(obj.__module__)
                return name
            if (place := places.of_singleton(obj)) is not None:
                self._notes.add_module(place[0])
                return member, place
            if (parts := taken_apart(obj)) is not None:
                return _with_token(obj, parts)
            if _has_own_state(obj) and (parts := _members_of(obj)) is not None:
                return _with_token(obj, parts)
            reduce = self.dispatch_table.get(type(obj))
            with classes.leaving_no_slot_names(type(obj)):
                found = obj.__reduce_ex__(_PROTOCOL) if reduce is None else reduce(obj)
            if type(found) is str:
                places.check_name(obj, found)
            if places.is_mark(obj, found):
                homes = {*self._modules(), type(obj).__module__}
                if (place := places.in_modules(obj, homes)) is not None:
                    self._notes.add_module(place[0])
                    return member, place
            return _with_token(obj, _past_overrides(obj, _without_new(obj, found)))
        if (parts := _members_of(obj)) is not None:
            return _with_token(obj, parts)
        if (place := places.in_modules(obj, self._modules())) is not None:
            from torchreel.formats.frames.parts import member

            self._notes.add_module(place[0])
            return member, place
        kind = type(obj)
        opaque = self._notes.missing(
            f"{kind.__module__}.{kind.__qualname__}",
            f"it can't be pickled ({attempt.kind.__name__ if attempt.kind else ''})",
        )
        return Opaque, (opaque.type, opaque.reason)

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
        return found

    def _attributes(self) -> list[tuple[int, dict[str, Any]]]:
        """Return attributes (marks for Dynamo), gradients and classes of the tensors, by number.

        A class of the program's (`torchvision.tv_tensors.Image`) comes last: it may look at all.
        """
        found = []
        for number, tensor in enumerate(list(self._held)):
            description = self._notes.tensors[number]
            if isinstance(description, Mapping) and description.get("k") == "fake":
                continue  # it would bring its mode
            carried = dict(getattr(tensor, "__dict__", None) or {})
            if getattr(tensor, "is_leaf", False) and tensor.grad is not None:  # type: ignore[attr-defined]
                carried["grad"] = tensor.grad  # type: ignore[attr-defined]
            kind, home = type(tensor), str(type(tensor).__module__)
            if _is_plain(description) and home.partition(".")[0] != "torch":
                carried["__class__"] = kind
            if carried:
                found.append((number, carried))
        return found


def _is_plain(description: Json) -> bool:
    """Return True for the description of a tensor that is no wrapper, and of no special kind."""
    return isinstance(description, Mapping) and description.get("k") == "tensor"


def _is_kept_once(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isidentifier() and text is sys.intern(text)


def _without_known_globals(function: FunctionType, reduced: Any) -> Any:
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


def _with_marks(obj: object, reduced: Any) -> Any:
    """Return the reduce value of a function or class with its marks for Dynamo (`allow_in_graph`).

    The marks are kept by id, beside the object: they would be lost with it.
    """
    from torchreel.torch_compat import dynamo

    marks = dynamo.dynamo_marks(obj)
    if not marks or type(reduced) is not tuple or len(reduced) != 6:
        return reduced
    *made_of, state, items, pairs, setter = reduced
    return *made_of, (state, setter, marks), items, pairs, set_marked


def set_marked(obj: object, state: tuple[Any, Callable[..., None], tuple[str, ...]]) -> None:
    """Set the state of an object and mark it for Dynamo.  Called while a bundle is loaded."""
    from torchreel.torch_compat import dynamo

    inner, setter, marks = state
    setter(obj, inner)
    dynamo.mark_for_dynamo(obj, marks)


def _with_token(obj: object, reduced: Any) -> Any:
    """Return the reduce value of an object with state, made once for all bundles of a recording.

    Code is one of them: functions that a decorator made share it, which guards see.
    """
    if type(obj) is CodeType:
        return made, (id(obj), reduced[0], *reduced[1])
    if type(reduced) is not tuple or len(reduced) < 3 or reduced[2] is None:
        return reduced
    function, arguments, *rest = reduced
    return made, (id(obj), function, *arguments), *rest


def _without_new(obj: object, reduced: Any) -> Any:
    """Return the reduce value of a module without the `__new__` of its class.

    FSDP's `__new__` makes an instance of the class before sharding, and initialises it.
    """
    import torch

    from torchreel.formats.frames.parts import bare

    if not isinstance(obj, torch.nn.Module) or type(obj).__new__ is object.__new__:
        return reduced
    if type(reduced) is not tuple or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return reduced
    return bare, (type(obj),), *reduced[2:]


def _past_overrides(obj: object, reduced: Any) -> Any:
    """Return the reduce value of an object that is filled past the methods of its own class.

    pickle would fill it by `setattr`, which a frozen dataclass refuses, by `obj[key] = value`, for
    which a registry may have a key of its own, or by `extend`.
    """
    if type(reduced) is not tuple or not 2 < len(reduced) < 6:
        return reduced
    make, arguments, state, *more = reduced
    items, pairs = (*more, None, None)[:2]
    cls: Any = type(obj)
    by_itself = type(state) is tuple and not hasattr(cls, "__setstate__")
    by_itself = by_itself and cls.__setattr__ is not object.__setattr__
    filled = issubclass(cls, (list, dict, collections.deque)) and (
        (items is not None and _defines(cls, "append", "extend"))
        or (pairs is not None and _defines(cls, "__setitem__"))
    )
    if not by_itself and not filled:
        return reduced
    from torchreel.formats.frames.parts import fill

    content = state, None if items is None else list(items), None if pairs is None else list(pairs)
    return make, arguments, content, None, None, fill


def _defines(cls: type, *names: str) -> bool:
    """Return True if one of the methods is Python's own no more."""
    return any(type(getattr(cls, name, None)) is FunctionType for name in names)


_STATES = ("__getstate__", "__reduce__", "__reduce_ex__")
"""The methods by which a class says what is pickled of its objects."""


def _has_own_state(obj: object) -> bool:
    """Return True for an optimizer, and if a class outside of torch defines the pickled state.

    A module's state may be the pickles of its parts, with their weights; and to pickle an FX module
    compiles its code anew, which Dynamo would see.  An optimizer's state lacks the wrapper that a
    scheduler put around its `step`.  To read a module's state back adds members that it lacks while
    its `__init__` has not been called.
    """
    if _is_optimizer(obj) or _is_uninitialised(obj):
        return True
    methods = [getattr(type(obj), name, None) for name in _STATES]
    homes = {method.__module__ for method in methods if type(method) is FunctionType}
    return any(str(home).partition(".")[0] not in places.KNOWN_ANYWHERE for home in homes)


def _members_of(obj: object) -> tuple[Any, ...] | None:
    """Return a reduce value that makes a module or optimizer of its members; None for all others.

    It ignores how the class pickles its objects: a parametrised module refuses to be pickled
    because its class is made at run time, which a bundle can hold.
    """
    import torch

    from torchreel.formats.frames.parts import bare, set_members

    if not isinstance(obj, torch.nn.Module) and not _is_optimizer(obj):
        return None
    return bare, (type(obj),), dict(vars(obj)), None, None, set_members


def _is_uninitialised(obj: object) -> bool:
    import torch

    return issubclass(type(obj), torch.nn.Module) and "_modules" not in vars(obj)


def _is_optimizer(obj: object) -> bool:
    found: Any = sys.modules.get("torch.optim.optimizer")
    return found is not None and issubclass(type(obj), found.Optimizer)


def _pickle(content: object, describe: Describe, notes: _Notes) -> tuple[bytes | None, str]:
    """Return the pickle and '', or None and the type of the exception."""
    sink = _Sink(notes)
    with fail_open("bundle", quiet=True) as attempt:
        _Pickler(sink, describe, notes).dump(content)
        return sink.getvalue(), ""
    return None, attempt.kind.__name__ if attempt.kind is not None else ""


def _without_culprits(
    content: Mapping[str, Any], describe: Describe, notes: _Notes
) -> dict[str, Any]:
    """Return `content` with each argument, global and cell replaced that can't be pickled by
    itself.
    """

    def kept(name: str, value: Any) -> Any:
        data, reason = _pickle(value, describe, _Notes())
        return value if data is not None else notes.missing(name, f"it can't be pickled ({reason})")

    function: FunctionType = content["function"]
    used = set(_names(function.__code__))
    module = function.__globals__.get("__name__")
    scope = {
        name: kept(f"global {name}", value) if name in used else value
        for name, value in function.__globals__.items()
        if name in used or name in ("__name__", "__package__", "__file__", "__builtins__")
    }
    if isinstance(module, str) and vars(sys.modules.get(module, sys)) is function.__globals__:
        notes.scopes.add(id(scope))
    pairs = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(
        _cell_with(cell, kept(f"closure {name}", _content(cell))) for name, cell in pairs
    )
    arguments = {
        name: kept(f"argument {name}", value) for name, value in content["arguments"].items()
    }
    code = function.__code__
    return {
        **content,
        "function": FunctionType(code, scope, code.co_name, None, closure),
        "arguments": arguments,
    }


def _cell_with(cell: CellType, content: object) -> CellType:
    """Return the cell if this is its content, so that it stays shared; else a new one."""
    return cell if content is _content(cell) else CellType(content)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


# -- redaction ----------------------------------------------------------------------------------

_OPCODES = {"BINUNICODE": (4, b"X"), "BINBYTES": (4, b"B"), "SHORT_BINBYTES": (1, b"B")}
"""Strings and bytes in a pickle: how many bytes of length stand before them, and the opcode that
is put in their place (with four)."""
_MARK = REDACTED.decode()
_SHORTEST = 4
"""Characters: a shorter string is a name of a variable rather than a secret."""


def _redacted(data: bytes, redactor: Redactor | None, notes: _Notes) -> tuple[bytes, int]:
    """Return a pickle with each string redacted, and the number of strings with a secret.

    A string is searched by itself, as a value in a dictionary, and as a constant of the files that
    the code is from, where names stand before their values.
    """
    if redactor is None or redactor.is_off:
        return data, 0
    # {"embed_tokens": "input_ids"} speaks of an argument, and whoever is asked learns it.
    pairs = [pair for pair in notes.pairs if pair[1] not in notes.variables]
    values = {value for key, value in pairs if _MARK in redactor.text(f"{key} = {value!r}")}
    values |= notes.constants if redactor.rules.mode != "none" else set()
    sources = [_source(file, redactor) for file in sorted(notes.files)]
    # The code would be other code without a name that it has.
    plain = notes.variables | notes.names | _class_ids()
    parts: list[bytes] = []
    position = count = 0
    for found in _strings(data):
        if found.text in plain:
            continue
        text = _MARK if found.text in values else _without_secret(found.text, redactor, sources)
        if text != found.text:
            parts += [data[position : found.start], found.replaced(text)]
            position = found.end
            count += _MARK in text
    return b"".join([*parts, data[position:]]), count


def _class_ids() -> set[str]:
    """Return the random names by which cloudpickle knows a class again: 32 digits, as of a key."""
    return set(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.values())


@dataclass(frozen=True)
class _Text:
    """A string, or bytes, in a pickle."""

    text: str
    opcode: str
    start: int
    end: int

    def replaced(self, text: str) -> bytes:
        """Return another string in its place."""
        bytes_ = text.encode("utf-8" if self.opcode == "BINUNICODE" else "latin-1", "surrogatepass")
        return _OPCODES[self.opcode][1] + len(bytes_).to_bytes(4, "little") + bytes_


def _strings(data: bytes) -> Iterator[_Text]:
    """Yield each string of a pickle, and its bytes (those of code are hardly ever text)."""
    for opcode, argument, start in pickletools.genops(data):
        if opcode.name not in _OPCODES or start is None:
            continue
        first = start + 1 + _OPCODES[opcode.name][0]
        if isinstance(argument, bytes):
            yield _Text(argument.decode("latin-1"), opcode.name, start, first + len(argument))
        elif isinstance(argument, str):
            length = len(argument.encode("utf-8", "surrogatepass"))
            yield _Text(argument, opcode.name, start, first + length)


def _source(file: str, redactor: Redactor) -> tuple[str, str]:
    text = "".join(linecache.getlines(file))
    return text, redactor.text(text)


def _without_secret(text: str, redactor: Redactor, sources: Sequence[tuple[str, str]]) -> str:
    found = redactor.text(text)
    if len(text) < _SHORTEST or _MARK in found:
        return found
    if _MARK in redactor.text(repr(text)):
        return _MARK
    hidden = any(text in raw and text not in redacted for raw, redacted in sources)
    return _MARK if hidden and found == text else found


def is_tensor_like(value: object) -> bool:
    """Return whether this is a NumPy array, which Dynamo treats as a tensor (NumPy is not
    imported).
    """
    numpy = sys.modules.get("numpy")
    # By type: isinstance would ask the program's own objects for their class.
    return numpy is not None and issubclass(type(value), numpy.ndarray)
