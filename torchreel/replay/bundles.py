"""Frame bundles, read back: a function and its arguments, for Dynamo to trace again.

A bundle is a pickle: to load it runs whatever its author put into it, and imports what it names.
So nothing here happens without trust.  Lives here: the loading.  Not here: how bundles are made
(`torchreel.recorder.bundles`).
"""

from __future__ import annotations

import inspect
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torchreel.errors import DamagedStore, ReplayError, UnsupportedError, UntrustedError
from torchreel.recorder.bundles import FORMAT
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.jsontypes import Json, parse_json
from torchreel.store.records import Compile, FrameBundle


@dataclass(frozen=True)
class LoadedFrame:
    """The frame's code as a function, and what it was called with.

    Tensors have the recorded sizes, strides and storages, and invented values.  `missing` says what
    the bundle lacks.
    """

    function: FunctionType
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    missing: str

    def call(self, wrapper: Callable[[FunctionType], Callable[..., Any]]) -> Any:
        """Call `wrapper(function)`, `torch.compile` for example, with the arguments."""
        return wrapper(self.function)(*self.args, **self.kwargs)


def load_bundle(store: Store, compile: Compile, trust: bool = False) -> LoadedFrame:
    """The frame of a compile.

    Raises UntrustedError without `trust`; UnsupportedError when there is no bundle, or one of its
    tensors can't be made; ReplayError when it needs a module that can't be imported here;
    DamagedStore when it is none.
    """
    row = queries.frame_bundle(store, compile)
    if row is None or row.digest is None or row.tensors is None:
        raise UnsupportedError(_without(compile, row))
    if not trust:
        raise UntrustedError(
            f"The frame of compile {compile.place} is a pickle: to load it runs code from "
            f"{store.target}. If you trust who made it, add --trust."
        )
    tensors = _tensors(store.read_blob(row.tensors))
    return _frame(_unpickled(store.read_blob(row.digest), tensors, compile), row)


def _without(compile: Compile, row: FrameBundle | None) -> str:
    if row is None:
        return (
            f"The frame of compile {compile.place} was not kept: record it with "
            "TORCHREEL_FRAMES=all, or failing for compiles that fail."
        )
    return f"The frame of compile {compile.place} could not be kept: {row.reason}."


def _tensors(document: bytes) -> list[object]:
    """Values with the recorded descriptions; what shared a storage shares one again."""
    from torchreel.store.portable.tensors import synthesise_all

    descriptions = parse_json(document)
    if not isinstance(descriptions, list):
        raise DamagedStore("The tensors of a frame are no list.")
    found: list[object] = [_array(item) for item in descriptions]
    places = [place for place, value in enumerate(found) if value is None]
    values = synthesise_all([descriptions[place] for place in places], seed=0, hints={}, table={})
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return found


def _array(description: Json) -> object | None:
    if not isinstance(description, Mapping) or description.get("k") != "array":
        return None
    import numpy

    try:
        return numpy.ones(description["size"], str(description["dtype"]))  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"An array of the frame can't be made: {error}.") from error


class _Unpickler(pickle.Unpickler):
    """Reads a bundle; a tensor is a number in it."""

    def __init__(self, data: bytes, tensors: list[object]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors

    def persistent_load(self, number: object) -> object:
        """The tensor of that number."""
        if not isinstance(number, int) or not 0 <= number < len(self._tensors):
            raise DamagedStore(f"A frame refers to tensor {number!r:.40}, which it does not have.")
        return self._tensors[number]


def _unpickled(data: bytes, tensors: list[object], compile: Compile) -> Any:
    try:
        return _Unpickler(data, tensors).load()
    except (ImportError, AttributeError) as error:
        raise ReplayError(
            f"The frame of compile {compile.place} needs what is not here: {error}. Install it, or "
            "put its directory into PYTHONPATH."
        ) from error
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError) as error:
        raise DamagedStore(
            f"The frame of compile {compile.place} can't be read: {error}."
        ) from error


def _frame(content: Any, row: FrameBundle) -> LoadedFrame:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedStore(f"Bundle {row.digest:.12} has a form that is not known.")
    function, arguments = content["function"], dict(content["arguments"])
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    names = iter(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    star = next(names, "") if code.co_flags & inspect.CO_VARARGS else ""
    double = next(names, "") if code.co_flags & inspect.CO_VARKEYWORDS else ""
    args = [arguments.pop(name) for name in positional if name in arguments]
    args += arguments.pop(star, ())
    more = arguments.pop(double, {})
    return LoadedFrame(function, tuple(args), {**arguments, **more}, row.reason)
