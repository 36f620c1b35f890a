"""The program of a frame: imports, settings, definitions, objects, and the one call."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.frames.calls import FrameCall
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.scripts import settings
from torchreel.minifier.source.assemble import exports
from torchreel.minifier.source.assemble.functions import Lines, Sources
from torchreel.minifier.source.assemble.names import Names
from torchreel.minifier.source.assemble.objects import Choice, Definition, Objects
from torchreel.replay.child.frames.bundles import LoadedFrame
from torchreel.store.documents.jsontypes import Json

_CONFIG = re.compile(r"(torch\.[\w.]*config)\.")


def write(
    frame: LoadedFrame,
    call: FrameCall,
    lines: Lines,
    choice: Choice,
    codes: list[CodeType],
    imports: Sequence[str] = (),
) -> str:
    """Return the text of a program that compiles and calls the frame as it was compiled.

    Where the frame is a call of torch.export, that is called. `codes` are those that ran. Raises
    `UnsupportedError` when the frame's source is not known.
    """
    objects = Objects(Sources(lines), Names(imports), choice)
    if choice.executed is not None:
        objects.mention([frame.function.__code__, *codes])
    shell = _shell(call)
    if call.exported:
        return _assembled(objects, call, shell, exports.written(frame, objects))
    function = _function(frame, objects)
    if function == "None":
        raise UnsupportedError(
            f"the source of {frame.function.__qualname__} is not in the bundle: it was made while "
            "the program ran, or by Dynamo itself after a graph break"
        )
    objects.put(frame.patches)
    given = [objects.expression(value, "model") for value in frame.args]
    given += [f"{key}={objects.expression(value, key)}" for key, value in frame.kwargs.items()]
    end = f"torch.compile({', '.join([function, *_arguments(call, shell)])})({', '.join(given)})"
    return _assembled(objects, call, shell, end)


def _transform(level: Json) -> str:
    """Return the context of a functorch transform that is open around the call."""
    if isinstance(level, Mapping) and "vmap" in level:
        # The inputs are random, and are made inside of it: the same for each of the batch.
        return f"torch._functorch.vmap.vmap_increment_nesting({int(str(level['vmap']))}, 'same')"
    return "torch._functorch.eager_transforms.grad_increment_nesting()"


def _assembled(objects: Objects, call: FrameCall, shell: Case, end: str) -> str:
    """Return the text: everything that `end`, the last call, needs, and that call."""
    contexts = [*settings.contexts(shell), *map(_transform, call.levels)]
    ending = [f"with {', '.join(contexts)}:", f"    {end}"] if contexts else [end]
    body = objects.tensors.written([*objects.statements, *ending])
    before = [*settings.config_lines(shell), *settings.ambient_lines(shell)]
    if call.device is not None:
        before.append(f"torch.set_default_device({call.device!r})")
    configs = {match: f"import {match}" for match in _CONFIG.findall("\n".join(before))}
    heads = sorted({**objects.names.lines, **configs}.values())
    parts = [*heads, *before, *(d.text for d in _ordered(objects.definitions)), *body]
    return "\n".join(parts) + "\n"


def _function(frame: LoadedFrame, objects: Objects) -> str:
    """Return the frame's function.

    A method where its first argument has it, else one of its own.
    """
    code = frame.function.__code__
    owner = type(frame.args[0]) if frame.args else object
    for kind in owner.__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, FunctionType) and value.__code__ == code:
                return f"{objects.class_(kind)}.{name}"
    return objects.function(frame.function)


def _arguments(call: FrameCall, shell: Case) -> list[str]:
    """Return those of `torch.compile`."""
    found = ["fullgraph=True"] if call.fullgraph or call.error_on_graph_break else []
    dynamic = [f"dynamic={call.dynamic}"] if call.dynamic is not None else []
    try:
        return found + dynamic + settings.compile_arguments(shell)
    except UnsupportedError:  # a backend that is code: what Dynamo makes does not depend on it
        return [*found, *dynamic, 'backend="eager"']


def _shell(call: FrameCall) -> Case:
    """Return a case without a graph that has the frame's settings."""
    doc = CheckpointDoc(
        "graph", "", GraphDoc(()), (), {}, tuple(call.config), call.ambient,
        {"options": list(call.options)},
    )  # fmt: skip
    return Case(doc, backend=call.backend)


def _ordered(definitions: list[Definition]) -> list[Definition]:
    """Sort base classes before what is derived from them; leave the rest as it came."""
    found: dict[str, Definition] = {}
    by_name = {definition.name: definition for definition in definitions}

    def add(definition: Definition) -> None:
        for base in definition.bases:
            if base in by_name and base not in found:
                add(by_name[base])
        found.setdefault(definition.name, definition)

    for definition in definitions:
        add(definition)
    return list(found.values())


class Ran:
    """Notes which code runs, for the length of a `with`."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, int, str], CodeType] = {}

    def _note(self, frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        self.codes[code.co_filename, code.co_firstlineno, code.co_name] = code

    def __enter__(self) -> Ran:
        sys.settrace(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
