"""Frame bundles: what Dynamo needs to trace a frame again, without any of its data.

The frame's code with the globals that it refers to, its closure and its arguments, as a pickle that
cloudpickle makes.  Tensors, arrays and random generators are not in it: in their place stand
numbers, which the descriptions beside the pickle explain.  What can't be pickled is replaced by an
`Opaque` and named.  Text goes through the rules of redaction, string by string.

Globals are named by their module, so that the code and what it calls share them again; objects and
functions have a token, so that two bundles of one recording share what the program shared.

Lives here: how a bundle is made.  Not here: when (`probes.bundles`), what of an object is kept
(`pickler`), and how a bundle is read (`torchreel.replay.child.frames`: it is code, and needs
trust).  Nothing here changes an object, or calls what its class says of pickling.
"""

from __future__ import annotations

import base64
import hashlib
import linecache
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.frames import cells, places
from torchreel.recorder.frames.notes import LONGEST, MOST_REASONS, BundleBudget, Notes
from torchreel.recorder.frames.patches import (
    Member,
    home_of,
    is_variable,
    members_of,
    patches,
    qualname_of,
)
from torchreel.recorder.frames.pickler import (
    Describe,
    FakeKernels,
    NamedOperators,
    Polyfills,
    TensorAttributes,
    pickled,
)
from torchreel.recorder.frames.redacted_pickles import redacted_pickle
from torchreel.recorder.redaction import Redactor
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json

FORMAT = 2

_LARGEST_OBJECT = 1 << 18
"""Bytes of one object, which each checkpoint holds anew."""
_LARGEST_PATCH = 1 << 13
"""Bytes of a changed member of a module: redaction takes milliseconds for each of its strings."""

_MOST_ITEMS = 10_000
"""Items of a container in a frame that is too large with it: a vocabulary, a buffer of samples."""
_LARGEST_VALUE = 1 << 16
"""Bytes of an object that a module holds: a replay needs it only where its own is another."""

GENERATED = "<eval_with_key>"
"""Prefix of the file names of FX modules: torch shows such files as a whole."""


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
        return {name: cells.content(self.locals[name]) for name in names}

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
    notes = Notes()
    content = {
        **_content_of(frame), **(known or {}), "operators": NamedOperators(),
        "fake_kernels": FakeKernels(), "polyfills": Polyfills(), "attributes": TensorAttributes(),
    }  # fmt: skip
    data, reason = pickled(content, describe, notes)
    if notes.stopped is not None:  # most of what is so large is data, of which Dynamo reads nothing
        notes = Notes(most_items=_MOST_ITEMS)
        data, reason = pickled(content, describe, notes)
    if data is None and notes.stopped is None:
        notes = Notes(most_items=notes.most_items, budget=notes.budget)
        content = _without_culprits(content, describe, notes)
        data, reason = pickled(content, describe, notes)
    if data is None:
        return Bundle("refused", notes.stopped or f"it could not be pickled: {reason}")
    data, redacted = redacted_pickle(data, redactor, notes)
    if redacted:
        notes.reasons.append(f"{redacted} strings were redacted")
    status = "partial" if notes.reasons else "complete"
    kept = _patches(notes, describe, redactor)
    document = _document(notes, notes.modules | frame.module())
    document |= {"call": call, "patches": kept, "marks": _marks(notes)}
    return Bundle(status, notes.reason(), data, canonical_json(document))


def _patches(notes: Notes, describe: Describe, redactor: Redactor | None) -> dict[str, Json]:
    """Return what stands in place of members of the modules and classes that a frame comes to.

    Each is a pickle of its own beside that of the frame, which does not depend on it. One that
    can't be pickled as a whole, or holds tensors or secrets, is left out, and named.
    """
    found, left, begun, budget = list[Json](), list[Json](), time.monotonic(), BundleBudget()
    for owner, name, value, _ in patches(list(notes.owners.values()), notes.names):
        module, cls = home_of(owner), qualname_of(owner)
        own, place = Notes(budget=budget), ".".join(filter(None, (module, cls, name)))
        late = time.monotonic() - begun > LONGEST
        data, reason = (None, "there was no time") if late else pickled(value, describe, own)
        if data is None or own.reasons or own.tensors:
            left.append(f"{place}: {own.reason() or reason or 'it holds tensors'}")
            continue
        if len(data) > _LARGEST_PATCH:
            left.append(f"{place}: it is larger than {_LARGEST_PATCH} bytes")
            continue
        data, secrets_in_it = redacted_pickle(data, redactor, own)
        if secrets_in_it:
            left.append(f"{place}: it has secrets")
            continue
        for file, spans in own.lines.items():
            notes.lines.setdefault(file, set()).update(spans)
        found.append(_patch(module, cls, name, data, _is_ruled(value)))
    return {"kept": found, "left_out": left[:MOST_REASONS]}


def _marks(notes: Notes) -> list[Json]:
    """Return the marks for Dynamo (`allow_in_graph`) of what the code finds by name in modules.

    They are kept by id, so neither a name nor the module has them.
    """
    from torchreel.torch_compat.dynamo import rules

    found: list[Json] = []
    for owner in list(notes.owners.values()):
        members = members_of(owner) if type(owner) is ModuleType else {}
        for name in sorted(notes.names & members.keys()):
            if marks := rules.dynamo_marks(members[name]):
                found.append({"module": home_of(owner), "member": name, "marks": list(marks)})
    return found


def _is_ruled(value: object) -> bool:
    """Return True if Dynamo has, or will have, a rule for a function by the name of torch's."""
    from torchreel.torch_compat.dynamo import rules

    return type(value) is FunctionType and rules.has_rule(value)


_too_large: dict[int, tuple[weakref.ref[Any], Bundle]] = {}
"""Those that took more than one may, by id: each compile would try them anew."""


def make_object(value: object, describe: Describe, redactor: Redactor | None) -> Bundle:
    """Return the bundle of one object of the program's: a backend, a pass.

    Raises nothing that it raises.

    Nothing is left out of it: with a part missing it would be another pass.
    """
    if redactor is not None and redactor.rules.mode == "all":
        return Bundle("refused", "all text is to be redacted, and code is made of text")
    anchor = value[0] if type(value) is tuple and value else value
    known = _too_large.get(id(anchor))
    if known is not None and known[0]() is anchor:
        return known[1]
    # Each takes two bytes at least.
    notes = Notes(budget=BundleBudget(_LARGEST_OBJECT // 2, share=0.2))
    data, reason = pickled({"format": FORMAT, "object": value}, describe, notes)
    if data is None or notes.reasons:
        why = notes.stopped or notes.reason() or f"it could not be pickled: {reason}"
        refused = Bundle("refused", why)
        if notes.stopped is not None and notes.is_too_large:
            with suppress(TypeError):  # not all can be referred to weakly
                _too_large[id(anchor)] = weakref.ref(anchor), refused
        return refused
    data, redacted = redacted_pickle(data, redactor, notes)
    if redacted:
        return Bundle("refused", f"{redacted} strings of it were redacted")
    if len(data) > _LARGEST_OBJECT:
        return Bundle("refused", f"it is larger than {_LARGEST_OBJECT} bytes")
    return Bundle("complete", "", data, canonical_json(_document(notes, notes.modules)))


def with_state(
    bundle: Bundle, members: Iterable[Member], describe: Describe, redactor: Redactor | None
) -> Bundle | None:
    """Return the bundle with what Dynamo read of modules: settings, contents of registries, and
    objects that are not there in a process that has only imported the modules.

    Each is a pickle of its own beside that of the frame.  None if there is nothing to keep.  A
    value that can't be pickled as a whole is left out: a replay that misses it says so.
    """
    state, settings, begun, budget = list[Json](), list[Json](), time.monotonic(), BundleBudget()
    lines: dict[str, set[tuple[int, int]]] = {}
    # Owners come before what they hold: a replay may have to put them in place.
    for member in sorted({one[:3]: one for one in members}.values(), key=Member.depth):
        if time.monotonic() - begun > LONGEST:
            break
        if member.is_setting or is_variable(member):
            settings += _setting(member, describe, redactor, budget)
        elif (content := _filled(member.value)) is not None:
            if member.is_of_program or not member.path:
                state += _value(member, content, describe, redactor, lines, budget)
        elif member.is_of_program and not _is_definition(member.value):
            kind = _type_name(member.value)
            state += _value(member, member.value, describe, redactor, lines, budget, kind)
    if not (state or settings) or bundle.tensors is None:
        return None
    document = parse_json(bundle.tensors)
    assert isinstance(document, Mapping)
    document = {**document, "state": state, "patches": _joined(document.get("patches"), settings)}
    document["lines"] = _with_lines(document.get("lines"), lines)
    return replace(bundle, tensors=canonical_json(document))


def _setting(
    member: Member, describe: Describe, redactor: Redactor | None, budget: BundleBudget
) -> list[Json]:
    """Return a setting as a patch; [] for a secret."""
    notes = Notes(budget=budget)
    # Under its name, which may say that it is secret.
    named, _ = pickled({member.name: member.value}, describe, notes)
    data, _ = pickled(member.value, describe, Notes(budget=budget))
    if named is None or data is None or redacted_pickle(named, redactor, notes)[1]:
        return []
    return [_patch(member.module, member.path, member.name, data)]


def _with_lines(known: Json, found: Mapping[str, set[tuple[int, int]]]) -> dict[str, Json]:
    """Add the lines of code that only modules lead to (a hook for all modules) to those known."""
    joined: dict[str, Json] = dict(known) if isinstance(known, Mapping) else {}
    for file, spans in found.items():
        own = joined.get(file)
        text: dict[str, Json] = dict(own) if isinstance(own, Mapping) else {}
        joined[file] = {**text, **_lines(file, spans)}
    return joined


def _value(
    member: Member,
    value: object,
    describe: Describe,
    redactor: Redactor | None,
    lines: dict[str, set[tuple[int, int]]],
    budget: BundleBudget,
    kind: str = "",
) -> list[Json]:
    """Return the content of a container, or an object of some `kind`; [] for one that can't be kept
    as a whole.  The places of its code are added to `lines`.
    """
    notes = Notes(budget=budget)
    # Under its name, which may say that it is secret.
    data, _ = pickled({member.name: value}, describe, notes)
    if data is None or notes.reasons or (kind and len(data) > _LARGEST_VALUE):
        return []
    if redacted_pickle(data, redactor, notes)[1]:
        return []
    notes = Notes(budget=budget)
    data, _ = pickled(value, describe, notes)
    if data is None:
        return []
    for file, spans in notes.lines.items():
        lines.setdefault(file, set()).update(spans)
    return [{
        "module": member.module, "class": member.path, "member": member.name, "type": kind,
        "data": base64.b64encode(data).decode(), "tensors": notes.tensors,
        "whole": type(value) is type(member.value),
    }]  # fmt: skip


def _is_definition(value: object) -> bool:
    """Return True for a module, a class or a function, which `patches` looks for."""
    return type(value) in _DEFINITIONS or issubclass(type(value), (type, property))


_DEFINITIONS = (
    ModuleType, FunctionType, BuiltinFunctionType, MethodType, staticmethod, classmethod,
)  # fmt: skip


def _type_name(value: object) -> str:
    """Return the name of a type, with its module; nothing of the program's is asked for it."""
    return f"{home_of(type(value))}.{qualname_of(type(value))}"


def _patch(module: str, cls: str, member: str, data: bytes, ruled: bool = False) -> dict[str, Json]:
    text = base64.b64encode(data).decode()
    return {"module": module, "class": cls, "member": member, "data": text, "ruled": ruled}


def _joined(patches: Json, settings: Sequence[Json]) -> Json:
    """Add settings to the members that the program had changed."""
    known = patches if isinstance(patches, Mapping) else {}
    kept = known.get("kept")
    found = kept if isinstance(kept, list) else []
    return {**known, "kept": [*found, *settings]}


def _filled(found: object) -> object:
    """Return the content of a container as a built-in one; None for anything else."""
    # By type, and its own methods: the program's classes may have others.
    if issubclass(type(found), OrderedDict):
        return dict(OrderedDict.items(found))  # type: ignore[arg-type]
    if issubclass(type(found), dict):
        return dict(dict.items(found))  # type: ignore[arg-type]
    if issubclass(type(found), list):
        return list(list.__iter__(found))  # type: ignore[arg-type]
    if issubclass(type(found), set):
        return set(set.__iter__(found))  # type: ignore[arg-type]
    return None


def _document(notes: Notes, modules: set[str]) -> dict[str, Json]:
    """Return the document stored beside the pickle, which needs no trust to be read."""
    return {
        "tensors": notes.tensors,
        "lines": {file: _lines(file, spans) for file, spans in sorted(notes.lines.items())},
        "modules": {name: _of_module(name) for name in sorted(modules)},
        "operators": _operators(notes),
    }


def _operators(notes: Notes) -> dict[str, Json]:
    """Describe the operators of libraries, of which no call is known here."""
    found: dict[str, Json] = {}
    with fail_open("operators of a bundle", quiet=True):
        from torchreel.formats.graphs.operators import described

        for name, operator in notes.operators.items():
            found[name] = {**described(operator), "calls": []}
    return found


def _lines(file: str, spans: set[tuple[int, int]]) -> dict[str, Json]:
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


def _content_of(frame: Frame) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "function": frame.function(),
        "modules": frame.own_modules(),
        "arguments": frame.arguments(),
    }


def _without_culprits(
    content: Mapping[str, Any], describe: Describe, notes: Notes
) -> dict[str, Any]:
    """Return `content` with each argument, global and cell replaced that can't be pickled by
    itself.
    """

    def kept(name: str, value: Any) -> Any:
        data, reason = pickled(value, describe, Notes(budget=notes.budget))
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
        _cell_with(cell, kept(f"closure {name}", cells.content(cell))) for name, cell in pairs
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
    return cell if content is cells.content(cell) else CellType(content)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_tensor_like(value: object) -> bool:
    """Return True if this is a NumPy array, which Dynamo treats as a tensor (NumPy is not
    imported).
    """
    numpy = sys.modules.get("numpy")
    # By type: isinstance would ask the program's own objects for their class.
    return numpy is not None and issubclass(type(value), numpy.ndarray)
