"""The private names of torch that a replay needs: entry points of the stages, and their contexts.

Called by `restore` and by the minifier's worker.  To support another torch, this file changes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import sympy
import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
from torch._guards import CompileContext, CompileId, TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchreel.errors import UnsupportedError, UntrustedError, UsageError
from torchreel.formats import torch_names as portable_names
from torchreel.formats import values
from torchreel.formats.checkpoints import config as portable_config
from torchreel.torch_compat import debugging_backends

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder


def register_operators() -> None:
    """Import the modules of torch that register operators which a graph may hold.

    A program that compiled has imported them on the way; a fresh process has not.
    """
    import torch._higher_order_ops
    import torch._inductor.compile_fx
    import torch._inductor.inductor_prims
    import torch._prims.rng_prims  # noqa: F401


def probe_vector_isa() -> None:
    """Have Inductor find out which vector instructions there are, and keep that in its cache."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    valid_vec_isa_list()


def fake_mode(env: ShapeEnv, settings: Mapping[str, bool]) -> FakeTensorMode:
    """A FakeTensorMode over a ShapeEnv, with recorded settings."""
    mode = FakeTensorMode(
        shape_env=env,
        allow_non_fake_inputs=settings.get("allow_non_fake_inputs", False),
        static_shapes=settings.get("static_shapes", False),
    )
    for name in ("allow_scalar_outputs", "allow_meta"):
        if name in settings:
            setattr(mode, name, settings[name])
    return mode


def run_nodes_on_fakes(graph: GraphModule, mode: FakeTensorMode) -> None:
    """Dispatch each node of a Dynamo graph on what the nodes before it returned, as Dynamo did.

    A node that cannot run so is passed over: it ran otherwise, or not at all, when recorded.  What
    is not the example value (it has other symbols, say) gives way to that.  Within a transform of
    torch.func it stays: an example value has no level.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.node import map_arg

    returned: dict[Node, Any] = {}

    def value(node: Node) -> Any:
        if node in returned:
            return returned[node]
        if node.op == "get_attr" and isinstance(body := _attribute(graph, node), GraphModule):
            return body
        return node.meta["example_value"]

    with mode, enable_python_dispatcher():
        for node in graph.graph.nodes:
            if node.op not in ("call_function", "call_method"):
                continue
            with contextlib.suppress(*_FAKE_ERRORS):
                args, kwargs = map_arg(node.args, value), map_arg(node.kwargs, value)
                if node.op == "call_function":
                    found = node.target(*args, **kwargs)
                else:
                    found = getattr(args[0], node.target)(*args[1:], **kwargs)
                if _is_of_a_transform(found) or _is_same(found, node.meta.get("example_value")):
                    returned[node] = found


def _is_same(found: object, recorded: object) -> bool:
    """Return whether two values of a node have the same layouts and the same symbols."""
    if isinstance(found, (tuple, list)) and isinstance(recorded, (tuple, list)):
        pairs = zip(found, recorded, strict=False)
        return len(found) == len(recorded) and all(_is_same(*pair) for pair in pairs)
    return _spelled(found) == _spelled(recorded)


def _spelled(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return type(value), str(value)
    layout = (*value.shape, "|", *value.stride()) if value.layout == torch.strided else value.shape
    return type(value), value.dtype, value.device, value.requires_grad, str(layout)


def _is_of_a_transform(value: object) -> bool:
    """Return whether a value has tensors of vmap, grad or jvp in it."""
    from torch.utils._pytree import tree_leaves

    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(isinstance(leaf, torch.Tensor) and wrapped(leaf) for leaf in tree_leaves(value))


def _attribute(graph: GraphModule, node: Node) -> object:
    return operator.attrgetter(str(node.target))(graph)


_FAKE_ERRORS = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError)


def forget_answers() -> None:
    """Clear what ShapeEnvs remember of calls: some of those calls change a ShapeEnv.

    Such a memory is keyed by counts (ShapeEnv._get_key), and these are the same again after a
    ShapeEnv was put back into an earlier state.
    """
    for name in dir(ShapeEnv):
        clear = getattr(getattr(ShapeEnv, name), "cache_clear", None)
        if clear is not None:
            clear()


def mark_as_dynamo_graph(graph: GraphModule, sources: Mapping[str, Any]) -> None:
    """What Dynamo sets on a graph beside its metadata: AOTAutograd finds static inputs by it."""
    from torch._dynamo.output_graph import GraphCompileReason

    graph._param_name_to_source = dict(sources)  # type: ignore[assignment]
    # Backends that explain graphs collect the reasons of graph breaks.
    graph.compile_subgraph_reason = GraphCompileReason("replayed", [], graph_break=False)  # type: ignore[assignment]
    # OutputGraph.install_subgraph: the bodies of higher-order operators are known by these names.
    for path, module in graph.named_modules():
        if path and isinstance(module, GraphModule):
            module.__name__ = path.rpartition(".")[2]


def kernel_calls(graph: GraphModule) -> list[str]:
    """The nodes of a graph and its bodies that call a Triton kernel of the program."""
    return [
        node.name
        for module in graph.modules()
        for node in (module.graph.nodes if isinstance(module, GraphModule) else ())
        if str(node.target).startswith("triton_kernel_wrapper_")
    ]


def set_class_names(graph: GraphModule, names: Mapping[str, object]) -> None:
    """Have a graph and its bodies print as the recorded ones: each has a class of its own."""
    for path, module in graph.named_modules():
        if path in names and isinstance(module, GraphModule):
            type(module).__name__ = str(names[path])


@contextlib.contextmanager
def caches_off() -> Iterator[None]:
    """No compiled artifact is read from or left in any cache: a hit would skip stages.

    Not by `force_disable_caches`: that makes Inductor probe the vector instructions of the machine,
    with a run of the C++ compiler, for every graph.
    """
    with (
        torch._inductor.config.patch(
            {
                "fx_graph_cache": False,
                "fx_graph_remote_cache": False,
                "compile_threads": 1,
            }
        ),
        torch._functorch.config.patch(
            {
                "enable_autograd_cache": False,
                "enable_remote_autograd_cache": False,
                "bundled_autograd_cache": False,
            }
        ),
    ):
        yield


def check_config(changed: Sequence[tuple[str, Any]], *, trust: bool) -> None:
    """Whether config entries (name, value as a tagged tree) can be set to these values.

    Raises UsageError for an unknown name, a value of another type than the entry's, or an entry
    that a replay sets itself; UntrustedError for one that names a command, a path or code.
    """
    modules = portable_names.config_modules()
    for name, tree in changed:
        module, key = name.split(".", 1)
        entry = modules[module]._config.get(key)
        if entry is None:
            raise UsageError(f"This torch ({torch.__version__}) has no config entry {name!r:.120}.")
        if key in _REPLAYS_OWN:
            raise UsageError(f"A replay sets {name} itself: it cannot be changed.")
        if not trust and not portable_config.is_portable(module, key, tree):
            raise UntrustedError(
                f"the config entry {name} names a command, a path or code: add --trust to set it"
            )
        _check_type(name, entry.default, values.decode_value(tree, _no_leaf))


def check_devices(names: Sequence[str]) -> None:
    """Whether a graph can be compiled for these devices, real ones or imposed.

    Raises UsageError for what is no device; UnsupportedError where there is none of the kind.
    """
    for name in names:
        try:
            kind = torch.device(name).type
        except RuntimeError as error:
            raise UsageError(f"This torch has no device {name!r:.60}.") from error
        if kind in ("cpu", "meta"):
            continue
        backend = getattr(torch, kind, None)
        if backend is None or not backend.is_available():
            raise UnsupportedError(
                f"the graph is to be moved to {name}, the recording has no facts of such a device, "
                f"and this machine has none: replay on one that does, or record on one"
            )


_REPLAYS_OWN = frozenset({
    "fx_graph_cache", "fx_graph_remote_cache", "compile_threads", "enable_autograd_cache",
    "enable_remote_autograd_cache", "bundled_autograd_cache",
})  # fmt: skip


def _no_leaf(kind: str, data: object) -> object:
    raise UsageError(f"A config value holds no {kind!r}, found {data!r:.60}.")


def _check_type(name: str, default: object, value: object) -> None:
    """A value is of its default's type; what is None by default may be anything."""
    known = isinstance(default, (bool, int, float, str, list, tuple, dict))
    if not known or value is None or type(value) is type(default):
        return
    if isinstance(default, float) and type(value) is int:
        return
    raise UsageError(
        f"{name} is of type {type(default).__name__} ({default!r:.60} by default), "
        f"not {type(value).__name__} ({value!r:.60})."
    )


def compile_context(compile_id: object, attempt: int = 0) -> Any:
    """The recorded compile id and attempt, as the current ones."""
    if compile_id is None:
        return contextlib.nullcontext()
    context = CompileContext(CompileId.from_string(str(compile_id)))
    context.attempt = attempt
    return torch._guards.compile_context(context)


@contextlib.contextmanager
def pattern_libraries(recorder: Recorder, seen: Sequence[str] = ()) -> Iterator[None]:
    """Have Inductor's libraries of patterns traced unseen, but for those that were `seen`.

    A process traces each once, in its first compile; the recorded one had the others behind it.
    """
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    with ExitStack() as stack:
        for module in (pre_grad, joint_graph, post_grad):
            if module.__name__.rpartition(".")[2] in seen:
                continue
            unseen = _unseen(recorder, module.lazy_init)
            stack.enter_context(mock.patch.object(module, "lazy_init", unseen))
        yield


def _unseen(recorder: Recorder, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        here = recorder.spans.here
        before, here.inside = here.inside, True
        try:
            return function(*args, **kwargs)
        finally:
            here.inside = before

    return run


@contextlib.contextmanager
def tracing_context(
    mode: FakeTensorMode, aot_name: list[str] | None = None, donated: list[int] | None = None
) -> Iterator[None]:
    """What Dynamo sets around a backend.

    `aot_name` is what AOTAutograd sets around Inductor, and `donated` what Inductor reads of its
    metadata: which inputs of a backward graph it may overwrite.
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


def backward_now(wanted: bool) -> Any:
    """Compile the backward graph together with the forward one."""
    if not wanted:
        return contextlib.nullcontext()
    return torch._functorch.config.patch(force_non_lazy_backward_lowering=True)


def backend(name: str, options: Mapping[str, object]) -> Callable[..., Any]:
    """A backend of torch's own by name: a registered one, or one for debugging.

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


def compile_fx(
    *, decompositions: Mapping[Any, Any] | None, ignore_shape_env: bool
) -> Callable[..., Any]:
    """Inductor's entry for a graph that a backend compiles apart."""
    from torch._inductor import compile_fx as inductor

    given: dict[str, Any] = {"ignore_shape_env": True} if ignore_shape_env else {}
    if decompositions is not None:
        given["decompositions"] = decompositions
    return functools.partial(inductor.compile_fx, **given)


def inside_region(name: object) -> Any:
    """Return what regional compilation sets around a region; nothing without a name."""
    from torch.fx import traceback

    setter = getattr(traceback, "_set_regional_inductor_subgraph_name", None)  # since 2.13
    return contextlib.nullcontext() if setter is None or name is None else setter(str(name))


def aot_alone(given: Mapping[str, Any], graph: GraphModule, inputs: Sequence[object]) -> object:
    """AOTAutograd for a graph that a backend compiles apart; what it makes runs as it is."""
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch import aot_autograd

    known = inspect.signature(aot_autograd.aot_module_simplified).parameters
    kwargs = {name: value for name, value in given.items() if value or name in known}
    compiler: Any = boxed_nop
    return aot_autograd.aot_module_simplified(graph, inputs, fw_compiler=compiler, **kwargs)


def before_backend(graph: GraphModule) -> GraphModule:
    """Return what Dynamo still does to a graph after its checkpoint
    (OutputGraph._call_user_compiler).

    Regions that the program marked are inlined, by default those that are used once.
    """
    config = torch._dynamo.config
    every, single = (
        getattr(config, name, False)
        for name in ("inline_invoke_subgraph", "inline_single_use_invoke_subgraph")
    )
    if not (every or single):
        return graph
    from torch._higher_order_ops.passes import inline_invoke_subgraph as passes

    inline = passes.inline_invoke_subgraph if every else passes.inline_single_use_invoke_subgraph
    return inline(graph)


def compile_fx_inner(
    graph: GraphModule, inputs: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Inductor's entry for one ATen graph, with the recorded keyword arguments."""
    from torch._inductor.compile_fx import compile_fx_inner as inner
    from torch._inductor.cudagraph_utils import BoxedDeviceIndex
    from torch._inductor.utils import BoxedBool

    live: dict[str, Any] = dict(kwargs)
    if live.get("cudagraphs") is not None:
        live["cudagraphs"] = BoxedBool(bool(live["cudagraphs"]))
    if "boxed_forward_device_index" in live:
        live["boxed_forward_device_index"] = BoxedDeviceIndex(live["boxed_forward_device_index"])
    return inner(graph, inputs, **live)  # type: ignore[arg-type]


def nearest_graph(frames: Sequence[FrameType]) -> GraphModule | None:
    """The graph module that the innermost of some frames works on."""
    from torch.fx import Graph

    for frame in frames:
        for value in frame.f_locals.values():
            if isinstance(value, GraphModule):
                return value
            if isinstance(value, Graph) and isinstance(value.owning_module, GraphModule):
                return value.owning_module
            module = getattr(value, "module", None) if _lowering(value) else None
            if isinstance(module, GraphModule):
                return module
    return None


def nearest_lowering(frames: Sequence[FrameType]) -> object:
    """The GraphLowering that the innermost of some frames works on, if there is one."""
    values = (value for frame in frames for value in frame.f_locals.values())
    return next((value for value in values if _lowering(value)), None)


def nearest_tracer(frames: Sequence[FrameType]) -> object:
    """Dynamo's translator of the innermost frame that it is tracing, if it traces one."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    values = (value for frame in frames for value in frame.f_locals.values())
    return next((v for v in values if isinstance(v, InstructionTranslatorBase)), None)


def current_fake_mode() -> FakeTensorMode | None:
    """The fake mode of the compile that is under way, if there is one by now."""
    context = TracingContext.try_get()
    return None if context is None else context.fake_mode


def _lowering(value: object) -> bool:
    graph = sys.modules.get("torch._inductor.graph")
    return graph is not None and isinstance(value, graph.GraphLowering)


@contextlib.contextmanager
def without_cpp_compiler() -> Iterator[None]:
    """Generate kernels but compile none: the generated module loads, its kernels can't be called.

    What is compared is the source; a compiler run would decide nothing and take most of the time,
    and Triton's would load the kernel into a GPU.
    """
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppWrapperCodeCache

    def function(*args: object, **kwargs: object) -> object:
        return _not_compiled

    def library(*args: object, **kwargs: object) -> object:
        return _NotCompiled()

    with (
        mock.patch.object(AsyncCompile, "cpp_pybinding", function),
        mock.patch.object(AsyncCompile, "cpp", library),
        mock.patch.object(AsyncCompile, "triton", library),
        mock.patch.object(CppWrapperCodeCache, "load_pybinding", function),
    ):
        yield


def _not_compiled(*args: object) -> None:
    raise RuntimeError("this kernel was generated for comparison and never compiled")


class _NotCompiled:
    """Stands for a library of kernels."""

    kernel = run = staticmethod(_not_compiled)


@dataclass
class CacheLookup:
    """A lookup in the fake-tensor cache that is about to be made."""

    cache: dict[Any, Any]
    key: Any
    env: ShapeEnv | None
    """The ShapeEnv that holds the cache; None where it is that of the process."""
    run: Callable[[], object]
    """Makes the lookup, and works the operator out where there is no entry."""

    def forget(self) -> None:
        """Drop the entry, if there is one."""
        self.cache.pop(self.key, None)

    def work_out(self) -> None:
        """Work the operator out, without symbolic arithmetic in the graph that is traced."""
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        with disable_proxy_modes_tracing():
            self.run()

    @property
    def entry(self) -> object | None:
        """What the cache has."""
        return self.cache.get(self.key)

    @entry.setter
    def entry(self, entry: object) -> None:
        self.cache[self.key] = entry

    def sizes(self, entry: Any) -> tuple[tuple[object, ...], ...]:
        """The sizes of the tensors that an entry gives, spelled as they were made."""
        outputs = [output.metadata for output in getattr(entry, "output_infos", ())]
        return tuple(
            tuple(_size_of_entry(size, self.key) for size in metadata.shape)
            for metadata in outputs
            if metadata is not None
        )

    def entry_with(self, replacements: Mapping[sympy.Symbol, sympy.Expr]) -> object | None:
        """The entry that is made while the ShapeEnv has these replacements alone.

        The cache is empty meanwhile, and the ShapeEnv learns nothing from it.
        """
        env = self.env
        if env is None:
            return None
        now, cache = env.replacements, env.fake_tensor_cache
        env.fake_tensor_cache = {}
        _set_replacements(env, dict(replacements))
        try:
            with env.suppress_guards(), contextlib.suppress(*_FAKE_ERRORS):
                self.work_out()
            return env.fake_tensor_cache.get(self.key)
        finally:
            env.fake_tensor_cache = cache
            _set_replacements(env, now)


def _set_replacements(env: ShapeEnv, replacements: dict[sympy.Symbol, sympy.Expr]) -> None:
    env.replacements = replacements
    env._replacements_version_counter += 1  # what was simplified before is void
    env._version_counter += 1


def _size_of_entry(size: Any, key: Any) -> object:
    """A size of an entry: a number, a symbolic number, or the place of one in the key."""
    from torch._subclasses._fake_tensor_utils import _SymIntOutputStub

    from torchreel.recorder.event_log.describe import size as spelled

    if not isinstance(size, _SymIntOutputStub):
        return size
    value = size.value
    return spelled(key.key[value].value if isinstance(value, int) else value._expr)


@contextlib.contextmanager
def around_fake_dispatch(
    follow: Callable[[str], contextlib.AbstractContextManager[None]],
    prepare: Callable[[CacheLookup], None],
) -> Iterator[None]:
    """Run each operator of fake modes in `follow(name)`, and `prepare` the cache for its lookup."""
    from torchreel.recorder.event_log.describe import op_name
    from torchreel.recorder.probes.fake_tensors import QUERIES

    dispatch, cached = FakeTensorMode.dispatch, FakeTensorMode._cached_dispatch_impl

    def following(mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> object:
        name = op_name(func)
        with contextlib.nullcontext() if name in QUERIES else follow(name):
            return dispatch(mode, func, *args, **kwargs)

    def looking_up(mode: FakeTensorMode, func: Any, *args: Any) -> object:
        def run() -> object:
            return cached(mode, func, *args)

        found = _fake_cache_entry(mode, func, args[1], args[2])
        if found is not None:
            prepare(CacheLookup(*found, run))
        return run()

    with (
        mock.patch.object(FakeTensorMode, "dispatch", following),
        mock.patch.object(FakeTensorMode, "_cached_dispatch_impl", looking_up),
    ):
        yield


def _fake_cache_entry(
    mode: FakeTensorMode, func: Any, args: Any, kwargs: Any
) -> tuple[dict[Any, Any], object, ShapeEnv | None] | None:
    """The cache that an operator is looked up in, its key, and the ShapeEnv that holds the cache.

    None where it is not cached.
    """
    from torch._subclasses._fake_tensor_utils import _CacheKeyState
    from torch._subclasses.fake_tensor import _BypassDispatchCache

    state = _CacheKeyState(mode.shape_env)
    try:
        key = mode._cache_key(state, func, args, kwargs)
    except _BypassDispatchCache:
        return None
    if state.cache_on_shape_env() and state.shape_env is not None:
        return state.shape_env.fake_tensor_cache, key, state.shape_env
    return FakeTensorMode.cache, key, None


@contextlib.contextmanager
def choosing_remainders(choose: Callable[[Sequence[Any], Sequence[Any]], Any]) -> Iterator[None]:
    """Have `choose` say which remainder of an equality a ShapeEnv learns from.

    It gets all of them, and those that would be learned to be zero.  torch takes the first that
    `Eq.atoms(Mod)` gives, a set.
    """
    from torch.utils._sympy.functions import Mod

    learn, atoms = ShapeEnv._maybe_guard_rel, sympy.Eq.atoms

    def learning(env: ShapeEnv, expr: sympy.Basic) -> None:
        remainders = sorted(expr.atoms(Mod), key=str) if isinstance(expr, sympy.Eq) else []
        if not remainders:
            return learn(env, expr)
        chosen = choose(remainders, [one for one in remainders if _is_zero(expr, one)])
        ordered = [chosen, *(one for one in remainders if one != chosen)]

        def given(self: sympy.Basic, *types: Any) -> Any:
            return ordered if self == expr and types == (Mod,) else atoms(self, *types)

        with mock.patch.object(sympy.Eq, "atoms", given):
            return learn(env, expr)

    with mock.patch.object(ShapeEnv, "_maybe_guard_rel", learning):
        yield


def _is_zero(equality: sympy.Eq, remainder: sympy.Basic) -> bool:
    """Return whether an equality says of a remainder in it that it is zero."""
    from torch.utils._sympy.solve import try_solve

    with contextlib.suppress(NotImplementedError):
        solved = try_solve(equality, remainder, floordiv_inequality=False)
        return solved is not None and solved[1] == 0
    return False
