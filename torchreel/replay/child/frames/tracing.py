"""Lets Dynamo trace a recorded frame again, as it was called when it was recorded.

Lives here: the `torch.compile` call with everything around it.  Not here: the loading of bundles
(`bundles`), the process (`frame_child`), the comparison (`compare`).  The frame is compiled and not
run: its tensors have invented values.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats import node_arguments
from torchreel.formats.checkpoints import ambient, config
from torchreel.formats.frames import loggers
from torchreel.formats.frames.calls import FrameCall
from torchreel.replay import dynamo_names
from torchreel.replay.child.frames import modules
from torchreel.replay.child.frames.bundles import LoadedFrame
from torchreel.store.addressing import UNNAMED
from torchreel.torch_compat import configs
from torchreel.torch_compat.autograd import transforms
from torchreel.torch_compat.counters import set_frame_counters
from torchreel.torch_compat.dynamo import backends, debugging_backends, modes
from torchreel.torch_compat.dynamo.automatic_dynamic import set_seen_sizes, set_specialized_floats
from torchreel.torch_compat.dynamo.code_objects import set_resume_metadata, set_traced_module
from torchreel.torch_compat.dynamo.contexts import CompileId
from torchreel.torch_compat.inductor import added_entries

SUBSTITUTE = "eager"
"""Compiles for a backend that can't be had: what Dynamo makes does not depend on it."""


class Substitute:
    """Stands for a backend that can't be had, under its name: Dynamo tells backends apart."""

    def __init__(self, call: FrameCall) -> None:
        self.representation = f"<{call.backend.replace(':', '.')} object at {id(self):#x}>"
        if call.backend_function:
            self.__name__ = call.backend_function

    def __str__(self) -> str:
        return self.representation

    def __call__(self, module: Any, inputs: Any, **options: Any) -> Any:
        """Compile as `SUBSTITUTE`."""
        return backends.backend(SUBSTITUTE, {})(module, inputs)


@dataclass
class Frames:
    """The frames that this process has traced: a recompile is one of the same code.

    What their guards refer to stays, for torch makes an entry void once an object of it is gone.
    """

    codes: dict[int, CodeType] = field(default_factory=dict)
    kept: list[LoadedFrame] = field(default_factory=list)
    backends: dict[tuple[str, int], Any] = field(default_factory=dict)

    def backend(self, call: FrameCall, imports: Sequence[str]) -> Any:
        """Return the recorded backend, or a `Substitute`: the same for each frame that had it."""
        key = call.backend, call.backend_id
        if key not in self.backends:
            found = backend_of(call, imports)
            self.backends[key] = Substitute(call) if found is None else found
        return self.backends[key]

    def function(self, frame: LoadedFrame, compile_id: str) -> FunctionType:
        """Return the function of a frame; its code is new for the first compile of a frame."""
        self.kept.append(frame)
        found = CompileId.from_string(compile_id) if compile_id != UNNAMED else None
        number = found.frame_id if found is not None and found.frame_id is not None else -1
        own = frame.function
        first = found is None or found.frame_compile_id == 0
        if first or self.codes.get(number) != own.__code__:
            self.codes[number] = own.__code__.replace(co_name=own.__code__.co_name)
        code = self.codes[number]
        if frame.resume is not None:
            set_resume_metadata(code, frame.resume)
        made = FunctionType(code, own.__globals__, own.__name__, None, own.__closure__)
        made.__module__ = own.__module__
        if frame.traced is not None:
            set_traced_module(code, made, frame.traced)
        return made


def unsupported(call: FrameCall) -> str:
    """Return the reason why a call can't be made again; '' if it can."""
    if call.export:
        return "the frame was traced by torch.export, not by torch.compile"
    if call.transforms and not call.levels:
        return f"the frame was called inside of a functorch transform: {call.transforms}"
    return ""


_COMPILE = torch.compile
"""As it is before a program's own takes its place (`patches`)."""


@contextlib.contextmanager
def imposed(
    call: FrameCall, compile_id: str, objects: Mapping[str, Callable[[], object]], *, trust: bool
) -> Iterator[list[str]]:
    """Impose config, ambient state and counters of a call; caches are off.

    `objects` give the config entries that hold the program's own code (`LoadedFrame.config`).
    Yields the config entries that were left out.
    """
    with ExitStack() as stack:
        left = stack.enter_context(config.patched(call.config, trust=trust, objects=objects))
        left += stack.enter_context(added_entries.imposed(objects))
        stack.enter_context(configs.caches_off())
        stack.enter_context(ambient.imposed(call.ambient))
        stack.enter_context(ambient.with_functions_off(call.functions_off))
        if call.device is not None:
            stack.enter_context(torch.device(call.device))
        stack.enter_context(modes.with_global_device(call.global_device))
        stack.enter_context(dynamo_names.error_on_graph_break(call.error_on_graph_break))
        stack.enter_context(dynamo_names.scope_names(modules.scope_tokens()))
        stack.enter_context(transforms.opened(call.levels))
        stack.enter_context(loggers.with_levels(call.log_levels))
        if call.seed is not None:
            # Not by `torch.manual_seed`, which programs put something else in place of.
            torch.default_generator.manual_seed(call.seed)
        set_frame_counters(call.counters, None if compile_id == UNNAMED else compile_id)
        set_specialized_floats(call.floats)
        yield left


def trace(function: FunctionType, frame: LoadedFrame, call: FrameCall, backend: Any) -> None:
    """Call `torch.compile` on a function; it ends where the compiled code would begin to run.

    A call of torch.export is made as it is.  Raises what Dynamo, the backend or torch.export raise.
    """
    if call.exported:
        function(*frame.args, **frame.kwargs)
        return
    set_seen_sizes(call.sizes, function.__code__, function.__closure__)
    with (
        dynamo_names.compile_only(function.__code__),
        contextlib.suppress(dynamo_names.TracingStopped),
    ):
        _call(compiled(function, call, backend, frame.guard_filter), frame)


def run(function: FunctionType, frame: LoadedFrame, call: FrameCall, backend: Any) -> object:
    """Call `torch.compile` on a function and run the compiled code."""
    if call.exported:
        return function(*frame.args, **frame.kwargs)
    set_seen_sizes(call.sizes, function.__code__, function.__closure__)
    return _call(compiled(function, call, backend, frame.guard_filter), frame)


def _call(function: Callable[..., Any], frame: LoadedFrame) -> object:
    """Call with the frame's arguments, wrapped in the levels of the transforms that are open."""
    args, kwargs = frame.args, frame.kwargs
    if frame.levels:
        args, kwargs = transforms.all_wrapped((args, dict(kwargs)), frame.levels)
    with modes.with_function_modes(frame.modes):
        return function(*args, **kwargs)


def compiled(
    function: FunctionType,
    call: FrameCall,
    backend: Any,
    guard_filter: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return `function` wrapped by `torch.compile`, with the arguments of the recorded call."""
    options: dict[str, Any] = {
        str(entry["key"]): node_arguments.decode_value(entry["value"], _no_leaf)  # type: ignore[call-overload,index]
        for entry in (call.options if backend == "inductor" else ())
    }
    if guard_filter is not None:
        options["guard_filter_fn"] = guard_filter
    with dynamo_names.compiled_itself():
        wrapped: Callable[..., Any] = _COMPILE(
            function,
            backend=backend,
            fullgraph=call.fullgraph,
            dynamic=call.dynamic,
            options=options or None,
        )
    return wrapped


def _no_leaf(kind: str, data: object) -> object:
    raise UnsupportedError(f"an option holds no {kind!r}, found {data!r:.60}")


def backend_of(call: FrameCall, imports: Sequence[str]) -> Any:
    """Return the recorded backend, by its name or as a function; None when it can't be had here.

    One that is not registered is code of the program's: it is taken from a module that was named
    for it, and from no other.
    """
    try:
        made = debugging_backends.make(call.backend, lambda inner: backends.backend(inner, {}))
    except UntrustedError:  # one of torch's for debugging, around the program's own
        return None
    if made is not None:
        return made
    if ":" not in call.backend:
        return call.backend if call.backend in dynamo_names.registered_backends() else None
    module, _, qualname = call.backend.partition(":")
    if module not in imports:
        return None
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
