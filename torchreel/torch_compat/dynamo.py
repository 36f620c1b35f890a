"""Dynamo: its tables, its backends, and the state that decides a compile."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import cache
from io import BytesIO
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch._guards
from torch._guards import CompileContext, CompileId, Source, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule

from torchreel.errors import UntrustedError
from torchreel.torch_compat import debugging_backends, fx, inductor_tables
from torchreel.torch_compat.configs import config_modules, non_default_entries

if TYPE_CHECKING:
    from torchreel.store.documents.jsontypes import Json

__all__ = ["CompileContext", "CompileId", "Source", "TracingContext", "tracing"]


@cache
def source_classes() -> dict[str, type[Source]]:
    """Return every concrete Source that Dynamo defines, by class name."""
    import torch._dynamo.source as sources

    return {
        name: value
        for module in (sources, torch._guards)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Source) and value is not Source
    }


@cache
def in_graph_names() -> Mapping[str, str]:
    """Return Dynamo's table of functions by qualified name, with the name of their rule."""
    from torch._dynamo import trace_rules

    tables = (
        trace_rules.torch_c_binding_in_graph_functions,
        trace_rules.torch_non_c_binding_in_graph_functions,
        trace_rules.manual_torch_name_rule_map,
    )
    rows = itertools.chain.from_iterable(table.items() for table in tables)
    return {name: getattr(rule, "__name__", "") for name, rule in rows}


@cache
def graph_operators() -> frozenset[str]:
    """Return the functions of `operator` that Dynamo writes into graphs, or that symbolic numbers
    have.
    """
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch.fx.experimental.sym_node import magic_methods, method_to_operator

    found = [*BuiltinVariable._fx_graph_functions(), *map(method_to_operator, magic_methods)]
    return frozenset(f.__name__ for f in found if getattr(f, "__module__", "") == "_operator")


def nested_compile_region(function: Any) -> Any:
    """Return the function that `torch.compiler.nested_compile_region` was given; None for any
    other.
    """
    return getattr(function, "__marked_compile_region_fn__", None)


def subgraph_name() -> str | None:
    """Return the name of the region that regional compilation is at: torch's trace records have
    it.
    """
    from torch.fx import traceback

    find = getattr(traceback, "_get_regional_inductor_subgraph_name", None)  # since 2.13
    name = find() if find is not None else None
    return name if isinstance(name, str) else None


def objects_of_compile(backend: object) -> dict[str, object]:
    """Return the program's own code that decides a compile, by name.

    It is in config entries (`inductor.post_grad_custom_post_pass`) and options (`options.NAME`)
    that hold no plain value, and in the backend (`backend`), if that is none of torch's.
    """
    found = objects_of_config()
    name, options = backend_of(backend)
    found |= {f"options.{key}": value for key, value in options.items() if _holds_code(value)}
    return {**found, "backend": _innermost(backend)} if ":" in name else found


def objects_of_config() -> dict[str, object]:
    """Return the entries of configs, and of Inductor's tables, that hold the program's own code or
    objects, by name.
    """
    found = {
        f"{module}.{key}": value
        for module, config in config_modules().items()
        for key, value in non_default_entries(config).items()
        if _holds_code(value)
    }
    return found | inductor_tables.own_entries()


_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _holds_code(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_holds_code, value))
    if isinstance(value, dict):
        return any(map(_holds_code, value.values()))
    return not isinstance(value, _PLAIN_VALUES)


def _innermost(backend: object) -> object:
    """Return the callable that the program gave, without torch's wrappers around it."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    return backend.compiler_fn if isinstance(backend, torch._TorchCompileWrapper) else backend


def identity_of(backend: object) -> tuple[int, str]:
    """Return the id of the callable that the program gave, and its name where it is a function.

    Code that was compiled for one backend is not used again for another one of the same name.
    """
    inner = _innermost(backend)
    return id(inner), inner.__name__ if type(inner) is FunctionType else ""


def forget_backends_of(module: str) -> None:
    """Forget the backends that a module registered: torch takes each name once."""
    from torch._dynamo.backends.registry import _BACKENDS, _COMPILER_FNS

    for name, function in [*_COMPILER_FNS.items()]:
        if getattr(function, "__module__", "") == module:
            del _COMPILER_FNS[name]
            _BACKENDS.pop(name, None)


def backend_of(backend: object) -> tuple[str, dict[str, Any]]:
    """Return a backend's portable name and the options of its `torch.compile` call."""
    from torch._dynamo.backends.registry import _COMPILER_FNS

    inner = backend
    while hasattr(inner, "_torchdynamo_orig_backend"):
        inner = inner._torchdynamo_orig_backend
    if inner is None or isinstance(inner, torch._TorchCompileInductorWrapper):
        return "inductor", dict(getattr(inner, "config", {}) or {})
    if isinstance(inner, torch._TorchCompileWrapper):
        inner = inner.compiler_fn
    for name, function in _COMPILER_FNS.items():
        if function is inner:
            return name, {}
    module = getattr(inner, "__module__", type(inner).__module__)
    name = f"{module}:{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    if debugging_backends.calls_another(name):
        called = getattr(inner, "backend", None)
        name += f"({called if isinstance(called, str) else backend_of(called)[0]})"
    return name, {}


def compiles_whole_graphs(backend: object) -> bool:
    """Return True if a backend is torch's own: it compiles the graph that it gets as a whole."""
    module = getattr(_innermost(backend), "__module__", "")
    return ":" not in backend_of(backend)[0] and module.partition(".")[0] == "torch"


def specialized_floats() -> list[str]:
    """Return the float symbols that Dynamo specialises because an earlier attempt failed on them.

    AOTAutograd asks for another restart when one of them is missing here.
    """
    from torch._dynamo.symbolic_convert import TensorifyState

    return sorted(TensorifyState.force_specializations)


def set_specialized_floats(names: Iterable[str]) -> None:
    """Restore the names of `specialized_floats`."""
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.clear()
    for name in names:
        TensorifyState.specialize(name)


def dynamic_of(backend: object) -> bool | None:
    """Return the argument `dynamic` of the `torch.compile` call of a backend."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    found = getattr(backend, "dynamic", None)
    return found if isinstance(found, bool) else None


def errors_on_graph_break() -> bool:
    """Return whether `torch._dynamo.error_on_graph_break` is on."""
    from torch._dynamo.utils import _get_error_on_graph_break

    return bool(_get_error_on_graph_break())


def function_modes() -> tuple[str | None, list[str]]:
    """Return the default device, and the classes of the other torch function modes, outermost
    first.
    """
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    devices = [str(mode.device) for mode in modes if isinstance(mode, DeviceContext)]
    others = [type(mode).__qualname__ for mode in own_function_modes()]
    return devices[-1] if devices else None, others


def own_function_modes() -> tuple[object, ...]:
    """Return the torch function modes of the program's, outermost first."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return tuple(mode for mode in modes if not issubclass(type(mode), DeviceContext))


@contextlib.contextmanager
def with_function_modes(modes: Sequence[Any]) -> Iterator[None]:
    """Have torch function modes for the length of a `with`; what they do on entry is past."""
    from torch.overrides import _pop_mode, _push_mode

    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for _ in modes:
            _pop_mode()  # type: ignore[no-untyped-call]


def read_rules_again() -> None:
    """Let Dynamo look up its rules for functions of torch again, which it has by their names.

    It does so once, when it first traces: what a program put under such a name before has the rule.
    """
    from torch._dynamo import trace_rules

    trace_rules.get_torch_obj_rule_map.cache_clear()


def has_rule(function: object) -> bool:
    """Return True if a function is looked up in Dynamo's rules for functions of torch.

    They are read once, by the names: what stands under such a name then has the rule.  Before that,
    who asks is about to read them.
    """
    from torch._dynamo import trace_rules

    known = trace_rules.get_torch_obj_rule_map
    return not known.cache_info().currsize or function in known()


def global_device() -> str | None:
    """Return the device that `torch.set_default_device` set, in whichever thread; None for none.

    `with torch.device(...)` makes tensors in a device too, but Dynamo takes no notice of it.
    """
    from torch.utils import _device

    return None if _device.CURRENT_DEVICE is None else str(_device.CURRENT_DEVICE)


@contextlib.contextmanager
def with_global_device(device: str | None) -> Iterator[None]:
    """Have Dynamo find this device where it looks for that of `torch.set_default_device`."""
    from torch.utils import _device

    before = _device.CURRENT_DEVICE
    _device.CURRENT_DEVICE = None if device is None else torch.device(device)
    try:
        yield
    finally:
        _device.CURRENT_DEVICE = before


_MOST_CODES = 50
"""Code objects whose sizes are kept, the latest ones: a process may have seen any number."""


def seen_sizes(code: CodeType, closure: Any) -> list[Json]:
    """Return the sizes that automatic dynamic shapes has seen, by code object and source.

    `own` marks those of `code` itself; a code object with a closure is identified by the closure's
    hash, which is valid in one process only.
    """
    from torch._dynamo import pgo

    states = pgo._CODE_STATE if pgo._CODE_STATE is not None else _profile()
    if not states:
        return []
    own = pgo.CodeId.make(code, closure)
    found: list[dict[str, Json]] = [
        {
            "file": key.filename,
            "line": key.firstlineno,
            "name": key.name,
            "own": key == own,
            "sizes": {name: _seen(entry) for name, entry in state.automatic_dynamic.items()},
        }
        for key, state in states.items()
        if state.automatic_dynamic and (key.closure_hash is None or key == own)
    ]
    return [*(row for row in found[:-_MOST_CODES] if row["own"]), *found[-_MOST_CODES:]]


def _profile() -> Mapping[Any, Any]:
    """Return the profile of an earlier process of the same job, which the first compile will read.

    {} if there is none.  It is not loaded into Dynamo: torch's trace notes when Dynamo reads it.
    """
    from torch._dynamo import pgo

    job = torch.compiler.config.job_id
    if job is None or torch.compiler.config.force_disable_caches:
        return {}
    path = pgo.code_state_path(pgo.format_cache_key(job))
    try:
        found = {} if path is None else _ProfileReader(BytesIO(Path(path).read_bytes())).load()
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError):
        return {}  # torch goes on without it as well
    return found if isinstance(found, Mapping) else {}


class _ProfileReader(pickle.Unpickler):
    """Reads a profile of sizes, and creates only the classes that a profile consists of."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of torch's records of sizes.  Raises UnpicklingError for anything else."""
        from torch._dynamo import pgo

        if (module, name) == ("collections", "defaultdict"):
            return defaultdict
        if module == pgo.__name__ and name in _PROFILE:
            return getattr(pgo, name)
        raise pickle.UnpicklingError(f"a profile of sizes holds no {module}.{name}")


_PROFILE = (
    "AutoDynamic", "AutoUnset", "CodeId", "CodeState", "FrameStateSizeEntry", "InferStride",
)  # fmt: skip


def _seen(entry: Any) -> Json:
    from torch._dynamo import pgo

    def spelled(value: Any) -> Json:
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, tuple):
            return [spelled(item) for item in value]
        if isinstance(value, pgo.InferStride):
            return {"stride": value.dim}
        return "dynamic" if value is pgo.auto_dynamic else "unset"

    return {name: spelled(value) for name, value in vars(entry).items()}


def set_seen_sizes(found: Iterable[Json], code: CodeType, closure: Any) -> None:
    """Restore the sizes of `seen_sizes`, and nothing else: a reset forgets all others."""
    from torch._dynamo import pgo

    pgo._CODE_STATE = defaultdict(pgo.CodeState)
    for row in found:
        assert isinstance(row, Mapping)
        assert isinstance(row["sizes"], Mapping)
        file, line, name = str(row["file"]), int(str(row["line"])), str(row["name"])
        key = pgo.CodeId(file, line, name, pgo._hash_containing_file(file))
        if row["own"]:
            key = pgo.CodeId.make(code, closure)
        state = {source: _was_seen(entry) for source, entry in row["sizes"].items()}
        made = defaultdict(pgo.FrameStateSizeEntry, state)
        pgo._CODE_STATE[key] = pgo.CodeState(made)


def _was_seen(entry: Json) -> Any:
    from torch._dynamo import pgo

    words = {"dynamic": pgo.auto_dynamic, "unset": pgo.auto_unset}

    def value(spelled: Json) -> Any:
        if isinstance(spelled, list):
            return tuple(map(value, spelled))
        if isinstance(spelled, Mapping) and "float" in spelled:
            return float.fromhex(str(spelled["float"]))
        if isinstance(spelled, Mapping):
            return pgo.InferStride(int(str(spelled["stride"])))
        return words[spelled] if isinstance(spelled, str) else spelled

    assert isinstance(entry, Mapping)
    known = {item.name for item in fields(pgo.FrameStateSizeEntry)}
    found = {str(name): value(spelled) for name, spelled in entry.items() if name in known}
    return pgo.FrameStateSizeEntry(**found)


def resume_metadata(code: CodeType) -> object | None:
    """Return Dynamo's metadata of a function that resumes after a graph break; else None."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    found: object = ContinueExecutionCache.generated_code_metadata.get(code)
    return found


def resumed_call(code: CodeType, frame: FrameType | None) -> tuple[CodeType, FrameType] | None:
    """Return the function that `code` resumes after a graph break, and the frame of its call.

    That call is still under way: Dynamo's bytecode for the function calls the resume function.
    None if it is no resume function, or has no such frame.
    """
    from torch._dynamo.utils import orig_code_map

    original = getattr(resume_metadata(code), "code", None)
    while original is not None and frame is not None:
        if orig_code_map.get(frame.f_code) is original:
            return original, frame
        frame = frame.f_back
    return None


def traced_module(code: CodeType) -> dict[str, Any] | None:
    """Return the data that Dynamo copies from an FX module whose forward is `code`; else None.

    They are the metadata of the nodes, and the map of lines to nodes.
    """
    from torch._dynamo.code_context import code_context

    if not code_context.has_context(code):
        return None
    module = code_context.get_context(code).get("orig_graphmodule", lambda: None)()
    if not isinstance(module, torch.fx.GraphModule):
        return None
    return {"metas": fx.node_metas(module.graph), "lines": module._lineno_map}


def set_traced_module(code: CodeType, function: Any, found: Mapping[str, Any]) -> None:
    """Restore the data of `traced_module`."""
    from torch._dynamo.code_context import code_context

    module = torch.fx.GraphModule({}, fx.graph_with_metas(found["metas"]))
    module._lineno_map, module.forward = found["lines"], function
    code_context.get_context(code)["orig_graphmodule"] = lambda: module


def set_resume_metadata(code: CodeType, metadata: object) -> None:
    """Restore the metadata of `resume_metadata`."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    ContinueExecutionCache.generated_code_metadata[code] = metadata


def mark_as_dynamo_graph(graph: GraphModule, sources: Mapping[str, Any]) -> None:
    """Set Dynamo's attributes on a graph: they tell AOTAutograd which inputs are static."""
    from torch._dynamo.output_graph import GraphCompileReason

    graph._param_name_to_source = dict(sources)  # type: ignore[assignment]
    # Backends that explain graphs collect the reasons of graph breaks.
    graph.compile_subgraph_reason = GraphCompileReason("replayed", [], graph_break=False)  # type: ignore[assignment]
    # OutputGraph.install_subgraph: the bodies of higher-order operators are known by these names.
    for path, module in graph.named_modules():
        if path and isinstance(module, GraphModule):
            module.__name__ = path.rpartition(".")[2]


def compile_context(compile_id: object, attempt: int = 0) -> Any:
    """Return the recorded compile id and attempt, as the current ones."""
    if compile_id is None:
        return contextlib.nullcontext()
    context = CompileContext(CompileId.from_string(str(compile_id)))
    context.attempt = attempt
    return torch._guards.compile_context(context)


@contextlib.contextmanager
def tracing_context(
    mode: FakeTensorMode, aot_name: list[str] | None = None, donated: list[int] | None = None
) -> Iterator[None]:
    """Set the context that Dynamo sets around a backend, for the length of a `with`.

    `aot_name` is the name of the graph that AOTAutograd sets around Inductor, `donated` the inputs
    of a backward graph that Inductor may overwrite, from AOTAutograd's metadata.
    """
    from torch._inductor.virtualized import V

    context = TracingContext(mode)
    with ExitStack() as stack:
        stack.enter_context(torch._guards.tracing(context))
        if aot_name is not None:
            context.aot_graph_name = aot_name
            if donated is not None:
                context.fw_metadata = SimpleNamespace(bw_donated_idxs=donated)  # type: ignore[assignment]
            stack.enter_context(V.set_fake_mode(mode))
            stack.enter_context(torch.no_grad())
        yield


def backend(name: str, options: Mapping[str, object]) -> Callable[..., Any]:
    """Return a backend of torch's own by name: a registered one, or one for debugging.

    Raises `UntrustedError` for any other: a backend is code.
    """
    from torch._dynamo.backends.registry import list_backends, lookup_backend

    if name == "inductor":
        return torch._TorchCompileInductorWrapper("default", dict(options), None)  # type: ignore[no-untyped-call]
    made = debugging_backends.make(name, lambda inner: backend(inner, {}))
    if made is not None:
        return made  # type: ignore[no-any-return]
    if ":" in name or name not in list_backends(exclude_tags=()):
        raise UntrustedError(
            f"the recorded backend {name!r} is not one of torch's own; "
            "name the module that registers it with --import MODULE, or add --trust to run what "
            "the store holds of it"
        )
    return lookup_backend(name)


def before_backend(graph: GraphModule) -> GraphModule:
    """Return a graph after the passes that Dynamo runs between its checkpoint and the backend.

    Regions that the program marked are inlined, by default those that are used once
    (OutputGraph._call_user_compiler).
    """
    from torch._dynamo import config

    every, single = (
        getattr(config, name, False)
        for name in ("inline_invoke_subgraph", "inline_single_use_invoke_subgraph")
    )
    if not (every or single):
        return graph
    from torch._higher_order_ops.passes import inline_invoke_subgraph as passes

    inline = passes.inline_invoke_subgraph if every else passes.inline_single_use_invoke_subgraph
    return inline(graph)


_MARKS = (
    "_allowed_callable_ids", "_disallowed_callable_ids", "_nonstrict_trace_callable_ids",
    "_leaf_function_ids",
)  # fmt: skip
"""Sets of Dynamo's that functions are in by their id: allow_in_graph and the like."""


def dynamo_marks(function: object) -> tuple[str, ...]:
    """Return the names of Dynamo's sets that the program has put a function or class into."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    return tuple(name for name in _MARKS if id(function) in getattr(rules, name, ()))


def mark_for_dynamo(function: object, marks: Sequence[str]) -> None:
    """Put a function or class into sets of Dynamo's, for as long as it lives."""
    from torch._dynamo import trace_rules

    for name in marks:
        if name in _MARKS and hasattr(trace_rules, name):
            known = getattr(trace_rules, name)
            known.add(id(function))
            weakref.finalize(function, known.remove, id(function))


class Polyfill(NamedTuple):
    """A function in Python that Dynamo traces in place of another, often one of C."""

    original: Callable[..., Any]
    traced: Callable[..., Any]
    folds: bool
    """True if a call of constants is made instead of traced."""


def polyfills() -> list[Polyfill]:
    """Return the polyfills of this process, torch's own too (`substitute_in_graph`)."""
    home: Any = sys.modules.get("torch._dynamo.variables.functions")
    handlers = home.PolyfilledFunctionVariable._get_polyfill_handlers() if home else {}
    return [
        Polyfill(original, traced, bool(wrapper.__torch_dynamo_can_constant_fold_through__))
        for original, wrapper in list(handlers.items())
        if original is not wrapper
        and (traced := getattr(wrapper, "__torch_dynamo_polyfill__", None)) is not None
    ]


def register_polyfill(found: Polyfill) -> None:
    """Have Dynamo trace a function in place of another, unless it does so already."""
    with contextlib.suppress(ValueError):  # it is there: its library was imported
        torch.compiler.substitute_in_graph(
            found.original, can_constant_fold_through=found.folds, skip_signature_check=True
        )(found.traced)


_WRAPPER = ("torch/_dynamo/external_utils.py", "inner", "fn")
"""File, name and free variable of the frame that Dynamo puts around a function of a file that it
skips: `forward` of a module of torch's own, as `torch.nn.Sequential`.
"""


def wrapped_name(code: CodeType, closure: Sequence[CellType] | None) -> str:
    """Return the name of the function in such a frame; '' for any other frame."""
    file, name, variable = _WRAPPER
    if code.co_name != name or variable not in code.co_freevars or not closure:
        return ""
    if not code.co_filename.replace("\\", "/").endswith(file):
        return ""
    found = closure[code.co_freevars.index(variable)].cell_contents
    around = getattr(found, "__self__", found)
    if isinstance(around, torch.nn.Module):
        return f"{type(around).__name__}.forward"
    return str(getattr(found, "__qualname__", ""))
