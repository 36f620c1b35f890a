"""Frame bundles, read back: a function and its arguments, for Dynamo to trace again.

A bundle is a pickle: to load it runs whatever its author put into it, and imports what it names.
So nothing here happens without trust.  Lives here: the loading.  Not here: how bundles are made
(`torchreel.recorder.frames.bundles`).
"""

from __future__ import annotations

import base64
import importlib
import inspect
import io
import linecache
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.errors import (
    DamagedStore,
    ReplayError,
    TorchreelError,
    UnsupportedError,
    UntrustedError,
)
from torchreel.formats.frames.parts import Opaque, member
from torchreel.recorder.frames.bundles import FORMAT, GENERATED
from torchreel.recorder.frames.patches import Patch, state_of
from torchreel.replay.child.frames import known_tensors, modules, patches, sets
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.records import Compile, FrameBundle

if TYPE_CHECKING:
    from torchreel.formats.frames.calls import FrameCall


@dataclass(frozen=True)
class LoadedFrame:
    """The frame's code as a function, and the arguments of its call.

    Tensors have the recorded sizes, strides and storages, and invented values.  `missing` names the
    parts that the bundle lacks, `notes` the differences between this process and the recorded one.
    """

    function: FunctionType
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    missing: str
    notes: tuple[str, ...] = ()
    resume: object = None
    traced: Mapping[str, Any] | None = None
    resumed: LoadedFrame | None = None
    """The call that it goes on with after a graph break; None for any other function."""
    levels: Mapping[int, Sequence[Json]] = field(default_factory=dict)
    """By the id of a tensor: the levels of functorch transforms that it was wrapped in."""
    guard_filter: Callable[..., Any] | None = None
    """The function of the program that chooses among the guards, if there is one."""
    patches: Sequence[Patch] = ()
    """Members of modules and classes that the program had changed."""
    config: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """Loaders of the config entries that hold the program's own code, by their names."""
    modes: tuple[object, ...] = ()
    """The program's own torch function modes around the call, outermost first."""
    disordered: tuple[int, ...] = ()
    """Numbers of items of its sets that have another order in this process."""

    def call(self, wrapper: Callable[[FunctionType], Callable[..., Any]]) -> Any:
        """Call `wrapper(function)`, `torch.compile` for example, with the arguments."""
        return wrapper(self.function)(*self.args, **self.kwargs)


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle as it is in the store: still data."""

    data: bytes
    document: bytes
    missing: str
    place: str
    """The compile that it belongs to."""

    @property
    def call(self) -> FrameCall:
        """Return the call that compiled the frame; UnsupportedError for a bundle without it."""
        found = _parsed(self.document).get("call")
        if found is None:
            raise UnsupportedError(
                f"The bundle of compile {self.place} is of an older torchreel, which did not note "
                "how Dynamo was called: record it again."
            )
        from torchreel.formats.frames.calls import FrameCall

        return FrameCall.from_json(found)

    @property
    def operators(self) -> Mapping[str, Json]:
        """The descriptions of operators that a library of the program's defines, by name."""
        return as_object(_parsed(self.document).get("operators"))

    def load(self) -> LoadedFrame:
        """Run the pickle: only for those who trust it.

        Raises UnsupportedError when one of its tensors can't be made; ReplayError when it needs a
        module that can't be imported here; DamagedStore when it is none.
        """
        from torchreel.formats.frames.parts import replaced_tensors

        document = _parsed(self.document)
        _install_lines(document.get("lines"))
        before, described = known_tensors.tokens(), document.get("tensors")
        tensors = _tensors(described)
        notes = modules.differences(document.get("modules"))
        disordered: set[int] = set()
        try:
            replaced_tensors()
            content = _unpickled(self.data, tensors, self.place, disordered=disordered)
            assert isinstance(described, list), "_tensors wants one"
            if known_tensors.put_back(described, tensors, replaced_tensors(), before):
                content = _unpickled(self.data, tensors, self.place, disordered=disordered)
        except ReplayError as error:
            raise ReplayError(" ".join([str(error), *notes])) from error
        for state in _state_of(document):
            self._restore(state)
        frame = _frame(content, tensors, self, tuple(notes))
        return replace(frame, disordered=tuple(sorted(disordered)))

    def _restore(self, state: _State) -> None:
        """Have a module hold what it held; what can't be restored is left: the guards will tell."""
        with suppress(ReplayError):
            owner = modules.at(state.module, state.path)
            if state.type and patches.is_like(owner, state.member, state.type):
                return
            value = _unpickled(state.data, _tensors(state.tensors), self.place)
            found = state_of(owner).get(state.member)
            if not state.type and isinstance(found, type(value)):
                patches.undo_later(modules.fill(found, value))
            elif state.type or state.is_whole:
                patches.put([Patch(owner, state.member, value)])


def read_bundle(store: Store, compile: Compile, trust: bool = False) -> LoadedBundle:
    """Return the bundle of a compile, as data.

    Raises UntrustedError without `trust`; UnsupportedError when there is no bundle.
    """
    row = queries.frame_bundle(store, compile)
    if row is None or row.digest is None or row.tensors is None:
        raise UnsupportedError(_without(compile, row))
    if not trust:
        raise UntrustedError(
            f"The frame of compile {compile.place} is a pickle: to load it runs code from "
            f"{store.target}. If you trust who made it, add --trust."
        )
    data, document = store.read_blob(row.digest), store.read_blob(row.tensors)
    return LoadedBundle(data, document, row.reason, compile.place)


def read_object(data: bytes, document: Json, name: str) -> object:
    """Run the pickle of an object of the program's: only for those who trust it.

    Raises what `LoadedBundle.load` does.
    """
    found = as_object(document)
    _install_lines(found.get("lines"))
    content = _unpickled(data, _tensors(found.get("tensors")), name, "What the store holds of")
    if not isinstance(content, dict) or content.get("format") not in (1, FORMAT):
        raise DamagedStore(f"What the store holds of {name} has a form that is not known.")
    return content.get("object")


def _without(compile: Compile, row: FrameBundle | None) -> str:
    if row is None:
        return (
            f"The frame of compile {compile.place} was not kept: record it with "
            "TORCHREEL_FRAMES=all, or failing for compiles that fail."
        )
    return f"The frame of compile {compile.place} could not be kept: {row.reason}."


def _parsed(document: bytes) -> Mapping[str, Json]:
    """Return the document stored beside the pickle; older bundles have only a list of tensors."""
    try:
        found = parse_json(document)
    except ValueError as error:
        raise DamagedStore(f"What stands beside a frame can't be read: {error}.") from error
    return found if isinstance(found, Mapping) else {"tensors": found}


class _State(NamedTuple):
    """Holds what a module, or something in it, has under a name."""

    module: str
    path: str
    """Names from the module to the owner."""
    member: str
    type: str
    """Of an object; '' for a container, of which this is the content."""
    data: bytes
    """Its pickle."""
    tensors: Json
    is_whole: bool
    """False for a container of a class of its own, which is no more than filled."""


def _state_of(document: Mapping[str, Json]) -> Iterator[_State]:
    """Yield the stored state of modules, owners before what they hold."""
    for row in list_only(document.get("state")):
        if not isinstance(row, Mapping):
            raise DamagedStore(f"The state of a module is malformed: {row!r:.60}.")
        try:
            data = base64.b64decode(str(row.get("data")), validate=True)
        except ValueError as error:
            raise DamagedStore(f"The state of a module can't be read: {error}.") from error
        module, path, member, kind = (
            str(row.get(key) or "") for key in ("module", "class", "member", "type")
        )
        whole = row.get("whole") is True
        yield _State(module, path, member, kind, data, row.get("tensors") or [], whole)


def _patches_of(bundle: LoadedBundle) -> tuple[list[Patch], list[str]]:
    """Return the members that the program had changed, and notes on those that can't be had."""
    known = as_object(_parsed(bundle.document).get("patches"))
    notes = [
        f"changed by the program, and not kept: {one}" for one in list_only(known.get("left_out"))
    ]
    changed = []
    for row in list_only(known.get("kept")):
        if not isinstance(row, Mapping):
            raise DamagedStore(f"A member of a module is malformed: {row!r:.60}.")
        name = str(row.get("member"))
        try:
            owner = modules.at(str(row.get("module")), str(row.get("class") or ""))
            data = base64.b64decode(str(row.get("data")), validate=True)
            value = _unpickled(data, [], bundle.place)
        except (ImportError, AttributeError, ValueError, TypeError, TorchreelError) as error:
            notes.append(f"changed by the program, and not to be had here: {name} ({error})")
        else:
            changed.append(Patch(owner, name, value, bool(row.get("ruled"))))
    return changed, notes


def _mark(rows: Sequence[Any]) -> None:
    """Mark the members of modules for Dynamo that the program had marked; not one that is gone."""
    from torchreel.torch_compat.dynamo import rules

    for row in rows:
        if not isinstance(row, Mapping):
            raise DamagedStore(f"A mark for Dynamo is malformed: {row!r:.60}.")
        with suppress(ImportError, ValueError, TypeError):
            members = vars(importlib.import_module(str(row.get("module"))))
            if (value := members.get(str(row.get("member")))) is not None:
                rules.mark_for_dynamo(value, [str(mark) for mark in list_only(row.get("marks"))])


def _install_lines(found: Json) -> None:
    """Give the lines of the program to whoever quotes them, where its files are not here."""
    for file, lines in as_object(found).items():
        if Path(file).exists() or not isinstance(lines, Mapping):
            continue
        known = linecache.cache.get(file)
        text = list(known[2]) if known is not None and len(known) == 4 else []
        for number, line in lines.items():
            at = int(number) - 1
            text += ["\n"] * (at + 1 - len(text))
            text[at] = str(line)
        # Without a time of change: linecache takes it for the source of an interactive session.
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
        if file.startswith(GENERATED):
            from torchreel.replay import dynamo_names

            dynamo_names.add_generated(file, "".join(text))


def _tensors(descriptions: Json) -> list[object]:
    """Return one value for each description; tensors that shared a storage share one again."""
    from torchreel.formats.tensors.synthetic import synthesise_all

    if not isinstance(descriptions, list):
        raise DamagedStore("The tensors of a frame are no list.")
    found: list[object] = [_left_out(item) or _array(item) for item in descriptions]
    places = [place for place, value in enumerate(found) if value is None]
    values = synthesise_all(
        [descriptions[place] for place in places], seed=0, hints={}, table={}, with_bases=False,
        lazily=True,
    )  # fmt: skip
    again = known_tensors.of_earlier_bundles(descriptions)
    for place, value in zip(places, values, strict=True):
        found[place] = again[place] if place in again else _like(value, descriptions[place], found)
    known_tensors.keep(descriptions, found)
    return found


def _like(value: Any, description: Mapping[str, Json], before: Sequence[Any]) -> object:
    """Return a synthesised tensor as a view of its base, or as none, as it was."""
    import torch

    from torchreel.torch_compat.autograd.functions import view_with_history
    from torchreel.torch_compat.tensors import fake_tensors

    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return value
    if value.is_conj() or value.is_neg():
        return value
    base = description.get("base")
    if isinstance(base, int) and 0 <= base < len(before) and isinstance(before[base], torch.Tensor):
        # One that covers its storage was synthesised as no view; and a view that was made without
        # gradients of a base that has some says so.
        plain = bool(description.get("leaf", True)) and before[base].requires_grad
        place = value.size(), value.stride(), value.storage_offset()
        if value.requires_grad and not value.is_leaf and not before[base].requires_grad:
            view = view_with_history(before[base], *place)  # what compiled code returned
        else:
            with torch.set_grad_enabled(not plain):
                view = before[base].as_strided(*place)
        fake_tensors.set_creation_of_view(view, str(description.get("creation", "")))
        return view.requires_grad_(value.requires_grad) if view.is_leaf else view
    if not value._is_view():
        return value
    own = torch.empty(0, dtype=value.dtype, device=value.device)
    own.set_(value.untyped_storage(), value.storage_offset(), value.size(), value.stride())
    if value.is_leaf:
        return own.requires_grad_(value.requires_grad)
    with torch.enable_grad():
        # Of the same size: what comes back in a backward is checked against it.
        made = torch.empty_strided(
            own.size(), own.stride(), dtype=own.dtype, device=own.device, requires_grad=True
        )
        result = made * 1
    result.data = own
    return result


def _left_out(description: Json) -> Opaque | None:
    """Return what stands for data that is no tensor (a storage), and that nothing is kept of."""
    if not isinstance(description, Mapping) or description.get("k") != "opaque":
        return None
    return Opaque(str(description.get("type")), str(description.get("reason")))


def _array(description: Json) -> object | None:
    if not isinstance(description, Mapping) or description.get("k") != "array":
        return None
    import numpy

    try:
        whole = numpy.ones(description["size"], str(description["dtype"]))  # type: ignore[arg-type]
        return whole if "strides" not in description else _strided(whole, description["strides"])
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"An array of the frame can't be made: {error}.") from error


_LARGEST_STRIDE = 1 << 30
"""Bytes: a larger one is damage rather than an array."""


def _strided(whole: Any, strides: Any) -> Any:
    """Return an array of ones with these strides, in bytes; the array where they are no multiples.

    Raises ValueError for those of another array.
    """
    import numpy

    if len(strides) != whole.ndim or max(map(abs, strides), default=0) > _LARGEST_STRIDE:
        raise ValueError(f"strides {strides!r:.80} of an array of {whole.dtype}")
    if whole.itemsize == 0 or any(n % whole.itemsize for n in strides):
        return whole  # a field of records
    reach = [(n - 1) * stride for n, stride in zip(whole.shape, strides, strict=True)]
    low, high = sum(n for n in reach if n < 0), sum(n for n in reach if n > 0)
    space = numpy.ones((high - low) // whole.itemsize + 1, whole.dtype)
    start = space[-low // whole.itemsize :]
    return numpy.lib.stride_tricks.as_strided(start, whole.shape, strides)


_MOVED = {
    "torchreel.recorder.bundles": "torchreel.formats.frames.parts",
    "torchreel.recorder.frames.bundles": "torchreel.formats.frames.parts",
    "torchreel.store.portable.frame_parts": "torchreel.formats.frames.parts",
}
"""Modules of ours that bundles of older versions name, and where they are now."""


class _Reading:
    """Says for an unpickler of either kind what names and numbers of a bundle stand for."""

    _tensors: Sequence[object]

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a bundle names, also under the older name of its module."""
        return super().find_class(_MOVED.get(module, module), name)  # type: ignore[misc]

    def persistent_load(self, number: object) -> object:
        """Return the object for a persistent id of the pickle.

        An integer is the number of a tensor, a string is itself (interned), three items name the
        globals of a module (or `member`: a table that torch has there), two items stand for that
        many bytes or items of data.
        """
        if isinstance(number, str):
            return sys.intern(number)
        if isinstance(number, tuple) and len(number) == 3 and number[0] == "member":
            return member(str(number[1]), str(number[2]))
        if isinstance(number, tuple) and len(number) == 3:
            return modules.scope(*number)
        if isinstance(number, tuple) and len(number) == 2:
            what = "container" if number[0] == "items" else "bytes"
            return Opaque(what, f"{number[1]} {number[0]} of data")
        if not isinstance(number, int) or not 0 <= number < len(self._tensors):
            raise DamagedStore(f"A frame refers to tensor {number!r:.40}, which it does not have.")
        return self._tensors[number]


class _Unpickler(_Reading, pickle.Unpickler):
    """Reads a bundle; a tensor is a number in it."""

    disordered: Sequence[int] = ()

    def __init__(self, data: bytes, tensors: list[object]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors


class _UnpicklerWithSets(_Reading, sets.Unpickler):
    """Reads a bundle that has sets."""

    def __init__(self, data: bytes, tensors: list[object]) -> None:
        super().__init__(data)
        self._tensors = tensors


def _unpickled(
    data: bytes,
    tensors: list[object],
    place: str,
    what: str = "The frame of compile",
    disordered: set[int] | None = None,
) -> Any:
    """Return the object of a pickle.

    `disordered` is filled with the sizes of sets that have another order than they had.
    """
    unpickler = (_UnpicklerWithSets if sets.has_sets(data) else _Unpickler)(data, tensors)
    try:
        found = unpickler.load()
        if disordered is not None:
            disordered.update(unpickler.disordered)
        return found
    except (ImportError, AttributeError) as error:
        if isinstance(getattr(error, "obj", None), Opaque):
            raise ReplayError(f"{what} {place} is not complete: {error}.") from error
        raise ReplayError(
            f"{what} {place} needs what is not here: {error}. Install it, or "
            "put its directory into PYTHONPATH."
        ) from error
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        raise DamagedStore(f"{what} {place} can't be read: {error}.") from error


def _frame(
    content: Any, tensors: Sequence[object], bundle: LoadedBundle, notes: tuple[str, ...]
) -> LoadedFrame:
    if not isinstance(content, dict) or content.get("format") not in (1, FORMAT):
        raise DamagedStore(f"The frame of compile {bundle.place} has a form that is not known.")
    import torch

    from torchreel.formats.operators import stand_ins
    from torchreel.torch_compat.dynamo import rules

    stand_ins.give_fake_kernels(content.get("fake_kernels") or {})
    for found in content.get("polyfills") or ():
        rules.register_polyfill(rules.Polyfill(*found))
    with torch._C.DisableTorchFunction():
        for number, carried in content.get("attributes", {}).items():
            for name, value in carried.items():
                with suppress(TypeError):  # a class whose objects are laid out otherwise
                    setattr(tensors[number], name, value)
    for name, module in content.get("modules", {}).items():
        content["function"].__globals__.setdefault(name, module)
    known = content.get("resume"), content.get("traced")
    whole = content.get("resumed")
    resumed = None if whole is None else LoadedFrame(*_called(whole), bundle.missing, notes)
    _mark(list_only(_parsed(bundle.document).get("marks")))
    levels = _levels(bundle.document, tensors)
    changed, more = _patches_of(bundle)
    notes = (*notes, *more)
    return LoadedFrame(
        *_called(content), bundle.missing, notes, *known, resumed, levels,
        content.get("guard_filter"), changed,
        {name: partial(_entry, value) for name, value in (content.get("config") or {}).items()},
        tuple(content.get("modes") or ()),
    )  # fmt: skip


def _entry(value: object) -> object:
    """Return the value of a config entry.  Raises UnsupportedError if it was not kept."""
    if isinstance(value, Opaque):
        raise UnsupportedError(str(value))
    return value


def _levels(document: bytes, tensors: Sequence[object]) -> dict[int, Sequence[Json]]:
    pairs = zip(list_only(_parsed(document).get("tensors")), tensors, strict=False)
    return {
        id(tensor): found
        for item, tensor in pairs
        if isinstance(item, Mapping) and isinstance(found := item.get("levels"), list)
    }


def _called(content: Mapping[str, Any]) -> tuple[FunctionType, tuple[Any, ...], dict[str, Any]]:
    """Return a function, and the arguments of its call, by position and by name."""
    function, arguments = content["function"], dict(content["arguments"])
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    names = iter(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    star = next(names, "") if code.co_flags & inspect.CO_VARARGS else ""
    double = next(names, "") if code.co_flags & inspect.CO_VARKEYWORDS else ""
    args = [arguments.pop(name) for name in positional if name in arguments]
    args += arguments.pop(star, ())
    more = arguments.pop(double, {})
    return function, tuple(args), {**arguments, **more}
