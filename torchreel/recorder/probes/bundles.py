"""Frame bundles: the Python frame of a compile, kept when it failed (or always, on demand).

A call of torch.export, or of `aot_compile`, is kept in the same form.

Lives here: when a bundle is made, and what is described rather than pickled.  Not here: the making
(`torchreel.recorder.frames.bundles`).  Called by the probe of `_compile` (`dynamo`), which has what
Dynamo got of the frame; after a failure the frame's locals are still as they were, because none of
it ran.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import BuiltinMethodType, CellType, MethodType
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Events, Probe
from torchreel.recorder.event_log.rows import Add, Blob
from torchreel.recorder.failing_open import fail_open
from torchreel.torch_compat.export.export_call import OPTIONS, export_again, precompile_again

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.formats.frames.calls import FrameCall
    from torchreel.recorder.event_log.spans import CompileEntry
    from torchreel.recorder.frames.bundles import Bundle, Frame
    from torchreel.recorder.frames.pickler import Describe
    from torchreel.recorder.recorder import Recorder
    from torchreel.store.documents.jsontypes import Json

UNTOUCHED = AttachPoint(
    "torch._C", "DisableTorchFunction", "describes tensors while the program's modes are active"
)
ATTACH_POINTS = (UNTOUCHED,)
EVENTS: Events = {}
PROBES: tuple[Probe, ...] = ()


def before(recorder: Recorder, call: Call, entry: CompileEntry) -> Bundle | None:
    """Keep a frame that is about to be compiled, if all are kept: the process may die in it."""
    return _keep(recorder, call, entry) if recorder.options.settings.frames == "all" else None


def after(recorder: Recorder, call: Call, entry: CompileEntry, error: BaseException | None) -> None:
    """Keep a frame that was compiled, if that failed; with the function that it resumes, if any."""
    from torchreel.torch_compat.dynamo.code_objects import resume_metadata

    if not isinstance(error, Exception) or entry.status != "failed":
        return
    frames = recorder.options.settings.frames
    with fail_open("function that is resumed"):
        again = frames == "all" and resume_metadata(call.argument(0, "code")) is not None
        if frames == "failing" or again:
            made = _keep(recorder, call, entry, whole=True)
            if made is not None:
                add_state(recorder, call, entry, made)
            recorder.event_log.hurry()


Make = Callable[["Recorder", Call], "Bundle"]
"""Makes the bundle of a frame that makes a call of torch again."""


def before_call(recorder: Recorder, call: Call, entry: CompileEntry, make: Make) -> None:
    """Keep a call that is about to compile with its arguments, if all frames are kept."""
    if recorder.options.settings.frames == "all":
        _keep_call(recorder, call, entry, make)


def after_call(
    recorder: Recorder, call: Call, entry: CompileEntry, error: BaseException | None, make: Make
) -> None:
    """Keep a call that compiled, if that failed."""
    if isinstance(error, Exception) and recorder.options.settings.frames == "failing":
        _keep_call(recorder, call, entry, make)
        recorder.event_log.hurry()


def _keep_call(recorder: Recorder, call: Call, entry: CompileEntry, make: Make) -> None:
    with fail_open("export bundle"):
        _append(recorder, entry, make(recorder, call))


def of_export(recorder: Recorder, call: Call) -> Bundle:
    """Return the bundle of a frame that calls torch.export in the same way."""
    names = ("mod", "args", "kwargs", "dynamic_shapes")
    found = {name: call.argument(position, name) for position, name in enumerate(names)}
    found["options"] = {key: call.kwargs[key] for key in OPTIONS if key in call.kwargs}
    return _again(recorder, export_again, found)


def of_precompile(recorder: Recorder, call: Call) -> Bundle:
    """Return the bundle of a frame that compiles a function ahead of time in the same way."""
    from torchreel.torch_compat.dynamo import backends

    backend, options = backends.backend_of(call.argument(3, "backend"))
    found = {
        "model": call.argument(0, "model"),
        "example_inputs": call.argument(1, "example_inputs"),
        "guard_filter": getattr(call.argument(2, "hooks"), "guard_filter_fn", None),
        "backend": backend,
        "options": options,
        "dynamic": call.argument(4, "dynamic"),
    }
    return _again(recorder, precompile_again, found)


def _again(recorder: Recorder, function: Any, found: Mapping[str, object]) -> Bundle:
    import torch

    from torchreel.formats.frames.calls import encode_frame_call
    from torchreel.recorder.frames.bundles import Frame, make

    frame = Frame(function.__code__, function.__globals__, found, ())
    document = encode_frame_call(frame.code, frame.closure, None, exported=True).to_json()
    with torch._C.DisableTorchFunction():
        return make(frame, _describer(), recorder.event_log.redactor, document)


def add_state(recorder: Recorder, call: Call, entry: CompileEntry, made: Bundle) -> None:
    """Keep what the members of modules hold that Dynamo read, too: the compile depends on them.

    The frame has not run yet: they are as Dynamo found them.
    """
    from torchreel.recorder.frames.bundles import with_state
    from torchreel.recorder.frames.patches import member_at

    with fail_open("state of modules"):
        scope = call.argument(1, "globals")
        # A path may go on into what a container holds.
        paths = {path[:length] for path in entry.read for length in range(1, len(path) + 1)}
        found = (member_at(scope, path) for path in sorted(paths) if not path[-1].startswith("__"))
        members = [member for member in found if member is not None]
        whole = with_state(made, members, _describer(), recorder.event_log.redactor)
        if whole is not None:
            _append(recorder, entry, whole)


def with_objects(
    recorder: Recorder,
    doc: CheckpointDoc,
    backend: object = None,
    more: Mapping[str, object] | None = None,
) -> CheckpointDoc:
    """Return the checkpoint with the code of the program's own that decides the compile: each a
    bundle.

    A backend that is none of torch's, config entries and options that hold functions or objects,
    classes of inputs that wrap tensors, and what else is given by name.  Nothing is kept where
    frames are not.
    """
    if recorder.options.settings.frames == "none":
        return doc
    with fail_open("objects of the program"):
        from torchreel.torch_compat.dynamo import backends

        found = {**backends.objects_of_compile(backend), **_classes(doc), **(more or {})}
        found = _needed(found, doc) if found else {}
        if not found:
            return doc
        # With cloudpickle, which most programs never need.
        from torchreel.recorder.frames.bundles import make_object

        made = {
            name: _object(make_object(value, _describer(), recorder.event_log.redactor))
            for name, value in found.items()
        }
        return replace(doc, extra={**doc.extra, "objects": made})
    return doc


def _needed(found: Mapping[str, object], doc: CheckpointDoc) -> dict[str, object]:
    """Return the objects without entries of tables for operators that a graph does not call."""
    from torchreel.formats.graphs.operators import operators_of
    from torchreel.torch_compat.inductor.added_entries import is_for

    operators = {name.removeprefix("op:") for name in operators_of([doc.graph])}
    return {name: held for name, held in found.items() if is_for(name, operators)}


def _classes(doc: CheckpointDoc) -> dict[str, object]:
    """Return the classes of inputs that no replay has by itself, under their names."""
    from torchreel.formats.tensors import subclasses

    names = dict.fromkeys(subclasses.names_in(doc.inputs))
    return {f"{subclasses.KEY}{name}": subclasses.resolve(name) for name in names}


def functions_of(doc: CheckpointDoc, gm: GraphModule) -> dict[str, object]:
    """Return the program's own functions that a graph calls, under the names of their targets.

    Dynamo puts one there as it is, where the program says so (`torch.compiler.allow_in_graph`).
    """
    from torchreel.formats import targets

    if not any(target.startswith(targets.NOT_PORTABLE) for _, target, _ in doc.graph.targets()):
        return {}
    named: dict[str, dict[object, object]] = {}
    for module in gm.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            name = targets.encode_target(node.target) if node.op == "call_function" else ""
            if name.startswith(targets.NOT_PORTABLE):
                named.setdefault(name, {})[_identity(node.target)] = node.target
    # Two closures of one definition have one name: neither can stand for both.
    return {name: of.popitem()[1] for name, of in named.items() if len(of) == 1}


def _identity(target: object) -> object:
    """Return what tells a target from others; a bound method is a new object at each access."""
    if isinstance(target, MethodType):
        return id(target.__self__), id(target.__func__)
    if isinstance(target, BuiltinMethodType):
        return id(target.__self__), target.__name__
    return id(target)


def _object(made: Bundle) -> Json:
    from torchreel.store.documents.jsontypes import parse_json

    if made.data is None or made.tensors is None:
        return {"reason": made.reason}
    data = base64.b64encode(made.data).decode()
    return {"data": data, "document": parse_json(made.tensors)}


def _keep(
    recorder: Recorder, call: Call, entry: CompileEntry, *, whole: bool = False
) -> Bundle | None:
    with fail_open("frame bundle"):
        made = _make(recorder, call, whole=whole)
        _append(recorder, entry, made)
        return made
    return None


def _append(recorder: Recorder, entry: CompileEntry, made: Bundle) -> None:
    columns = {
        "compile_id": entry.ref,
        "status": made.status,
        "reason": made.reason,
        "size": len(made.data or b""),
        "digest": None if made.data is None else Blob(made.data),
        "tensors": None if made.tensors is None else Blob(made.tensors),
    }
    recorder.event_log.append(Add("frame_bundles", columns))


def _make(recorder: Recorder, call: Call, *, whole: bool) -> Bundle:
    import torch

    from torchreel.recorder.frames.bundles import Frame, make
    from torchreel.torch_compat.dynamo.backends import objects_of_config
    from torchreel.torch_compat.dynamo.code_objects import resume_metadata, traced_module
    from torchreel.torch_compat.dynamo.modes import own_function_modes

    names = ("code", "globals", "locals", "builtins", "closure")
    found = {name: call.argument(position, name) for position, name in enumerate(names)}
    frame = Frame(
        found["code"], found["globals"], dict(found["locals"]), tuple(found["closure"] or ())
    )
    document = _call(call, frame).to_json()  # looks at the function modes, which are off below
    known = {"resume": resume_metadata(frame.code), "traced": traced_module(frame.code)}
    deciding = {
        "guard_filter": _guard_filter(call),
        "config": objects_of_config() or None,
        "modes": own_function_modes() or None,
    }
    more = {name: value for name, value in deciding.items() if value is not None}
    redactor = recorder.event_log.redactor
    with torch._C.DisableTorchFunction():
        resumed = _resumed(frame) if whole else None
        if more:
            made = make(frame, _describer(), redactor, document, {**known, **more}, resumed)
            if made.data is not None:
                return made
        return make(frame, _describer(), redactor, document, known, resumed)


def _guard_filter(call: Call) -> object:
    """Return the function of the program that chooses among the guards; None if there is none."""
    return getattr(call.argument(9, "hooks"), "guard_filter_fn", None)


def _resumed(frame: Frame) -> Frame | None:
    """Return the call of the function that the frame resumes after a graph break; None for any
    other.

    A function of Dynamo's making has no source: what reduces programs starts with the whole one.
    """
    from torchreel.recorder.frames.bundles import Frame
    from torchreel.torch_compat.dynamo.code_objects import resumed_call

    found = resumed_call(frame.code, sys._getframe())
    if found is None:
        return None
    code, caller = found
    values = caller.f_locals
    known = dict(zip(frame.code.co_freevars, frame.closure, strict=False))
    if not {*code.co_freevars} <= known.keys() | values.keys():
        return None
    cells = (known.get(name) or CellType(values[name]) for name in code.co_freevars)
    return Frame(code, caller.f_globals, dict(values), tuple(cells))


def _call(call: Call, frame: Frame) -> FrameCall:
    from torchreel.formats.frames.calls import encode_frame_call

    return encode_frame_call(
        frame.code,
        frame.closure,
        call.argument(5, "compiler_fn"),
        fullgraph=bool(call.argument(6, "one_graph")),
        export=bool(call.argument(7, "export")),
        filtered=_guard_filter(call) is not None,
    )


def _describer() -> Describe:
    """Return tensors, arrays and generators by description; storages only by their size."""
    import torch
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    from torchreel.formats.frames import parts
    from torchreel.formats.tensors.encoder import Encoder
    from torchreel.recorder.frames.bundles import is_tensor_like
    from torchreel.torch_compat.autograd import transforms
    from torchreel.torch_compat.tensors import fake_tensors

    encoder = Encoder()
    storages = (torch.UntypedStorage, torch.TypedStorage)

    def describe(value: object) -> Json | None:
        # By type: isinstance would ask the program's own objects for their class.
        kind = type(value)
        if issubclass(kind, torch.Tensor) and parts.is_wrapper(value):
            return None  # it is taken apart, and what it holds is described
        if issubclass(kind, (UninitializedBuffer, UninitializedParameter)):
            return None  # a lazy module's has no sizes yet, and is made as it was
        if issubclass(kind, torch.Tensor) and fake_tensors.is_functorch_wrapper(value):  # type: ignore[arg-type]
            inner, levels = transforms.unwrapped(value)  # type: ignore[arg-type]
            described = encoder.describe(inner)
            return {**described, "levels": levels} if levels else described  # type: ignore[dict-item]
        if issubclass(kind, fake_tensors.FakeTensor):
            return {"k": "fake"}  # of a mode of the program's
        if issubclass(kind, (torch.Tensor, torch.Generator)):
            return encoder.describe(value)
        if issubclass(kind, storages):
            return {"k": "opaque", "type": kind.__name__, "reason": "storages are not kept"}
        if is_tensor_like(value):
            return _array(value)
        return None

    return describe


def _array(value: Any) -> Json:
    found: dict[str, Json] = {
        "k": "array", "dtype": str(value.dtype), "size": [int(n) for n in value.shape]
    }  # fmt: skip
    if not value.flags.c_contiguous:
        found["strides"] = [int(n) for n in value.strides]
    return found
