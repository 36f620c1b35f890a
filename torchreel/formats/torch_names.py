"""The private names of torch that the portable formats need, and nothing else.

Lives here: one accessor per name, with the reason.  Not here: the formats.  Called only by the
modules beside it: to support another version of torch, this file is what changes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import operator
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import sympy
import torch
import torch._guards
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
import torch.utils._sympy.functions as sympy_extension
from torch._guards import CompileContext, CompileId, ShapeGuard, Source, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import RuntimeAssert, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.singleton_int import SingletonInt
from torch.utils._sympy.value_ranges import ValueRanges

from torchreel.errors import UnsupportedError
from torchreel.store.addressing import UNNAMED
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import debugging_backends

__all__ = [
    "CompileContext", "CompileId", "FakeTensor", "FakeTensorMode", "RuntimeAssert", "ShapeEnv",
    "ShapeGuard", "SingletonInt", "Source", "SymNode", "TracingContext", "ValueRanges", "int_oo",
    "tracing",
]  # fmt: skip


@cache
def sympy_functions() -> dict[str, type[sympy.Basic]]:
    """torch's own SymPy functions by class name: they occur in sizes, guards and ranges."""
    return {
        name: value
        for name, value in vars(sympy_extension).items()
        if isinstance(value, type)
        and issubclass(value, sympy.Basic)
        and value.__module__ == sympy_extension.__name__
        and not name.startswith("_")
    }


@cache
def source_classes() -> dict[str, type[Source]]:
    """Every concrete Source that Dynamo defines, by class name."""
    import torch._dynamo.source as sources

    return {
        name: value
        for module in (sources, torch._guards)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Source) and value is not Source
    }


@cache
def in_graph_names() -> Mapping[str, str]:
    """Dynamo's table of functions by qualified name, with the name of their rule."""
    from torch._dynamo import trace_rules

    tables = (
        trace_rules.torch_c_binding_in_graph_functions,
        trace_rules.torch_non_c_binding_in_graph_functions,
        trace_rules.manual_torch_name_rule_map,
    )
    rows = itertools.chain.from_iterable(table.items() for table in tables)
    return {name: getattr(rule, "__name__", "") for name, rule in rows}


@cache
def aten_names() -> frozenset[str]:
    """The operators of torch's own namespace, by name, as they are registered."""
    names = torch._C._dispatch_get_all_op_names()
    found = (name.split(".")[0].partition("::") for name in names)
    return frozenset(name for namespace, _, name in found if namespace == "aten")


@cache
def graph_operators() -> frozenset[str]:
    """The functions of `operator` that Dynamo writes into graphs, or that symbolic numbers have."""
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch.fx.experimental.sym_node import magic_methods, method_to_operator

    found = [*BuiltinVariable._fx_graph_functions(), *map(method_to_operator, magic_methods)]
    return frozenset(f.__name__ for f in found if getattr(f, "__module__", "") == "_operator")


@cache
def inplace_operators() -> frozenset[str]:
    """The functions of `operator` that FX writes as `a += b`, by qualified name."""
    from torch.fx.graph import inplace_methods

    return frozenset(f"operator.{name}" for name in inplace_methods)


@cache
def reference_names() -> frozenset[str]:
    """The reference implementations of operators, by qualified name: Dynamo traces some of them."""
    import torch._refs

    return frozenset(
        {*(f"torch._refs.{name}" for name in torch._refs.__all__), "torch._refs.tensor"}
    )


@cache
def tensor_classes() -> Mapping[str, Callable[..., object]]:
    """The classes that a graph may call as constructors, by qualified name."""
    kept = (torch.Size, torch.Tensor, torch.nn.Parameter, *torch._tensor_classes)
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in kept}


def variable_functions() -> object:
    """The namespace of the operators bound as `torch.NAME` (no files, processes or libraries)."""
    return torch._C._VariableFunctions


def qualified_name(function: Callable[..., object]) -> str:
    """Return how FX prints a target."""
    from torch.fx.node import _get_qualified_name

    return _get_qualified_name(function)


def higher_order_operators() -> Mapping[str, object]:
    """The registered higher-order operators, by name."""
    from torch._ops import _higher_order_ops

    return _higher_order_ops


def operator_name(operator: Any) -> str:
    """The name under which a higher-order operator is registered."""
    return str(operator.name())


def operator_by_name(namespace: str, packet: str) -> object | None:
    """An operator that is registered in this process, without loading anything."""
    if not _is_registered(f"{namespace}::{packet}"):
        return None
    return getattr(getattr(torch.ops, namespace), packet, None)


def _is_registered(name: str) -> bool:
    """Return whether an operator of that name is there; those registered later are looked for
    again.
    """
    if name not in _registered():
        _registered.cache_clear()
    return name in _registered()


@cache
def _registered() -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in torch._C._dispatch_get_all_op_names())


_KERNELS = (
    "CPU", "CUDA", "Meta", "AutogradCPU", "AutogradCUDA", "Autograd", "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
)  # fmt: skip


def operator_facts(operator: torch._ops.OpOverload) -> dict[str, Json]:
    """Return how an operator is registered: which kernels it has, and how each came about.

    `python`: by `torch.library.custom_op`; `fake`: with a fake kernel of its own; `autograd`: with
    a formula for its backward; `effect`: ordered by tokens; `decomposes`: AOTAutograd traces it
    through (a `triton_op`).
    """
    from torch._library.custom_ops import OPDEFS
    from torch._library.simple_registry import singleton
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    name = operator._schema.name
    defined = OPDEFS.get(name)
    entry = singleton.find(name)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    kernels = [key for key in _KERNELS if has(operator.name(), key)]  # type: ignore[no-untyped-call]
    formula = any(key.startswith("Autograd") for key in kernels)
    effect = getattr(entry, "effect", None)
    return {
        "kernels": list[Json](kernels),
        "python": defined is not None,
        "fake": entry.fake_impl.kernel is not None,
        "autograd": formula if defined is None else defined._backward_fn is not None,
        "effect": getattr(getattr(effect, "effect", None), "name", None),
        "decomposes": entry.torch_dispatch_rules.find(FunctionalTensorMode) is not None,
    }


def register_effect(name: str, effect: str) -> None:
    """Order the calls of an operator by tokens, as `torch.library` does on demand."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    found = getattr(_EffectType, effect, None)
    if isinstance(found, _EffectType):
        _register_effectful_op(name, found)


def new_dynamic_size() -> object:
    """A size that depends on data, in a fake kernel; one that is known where there is no symbol."""
    return torch.library.get_ctx().new_dynamic_size(min=0)


def config_modules() -> dict[str, ModuleType]:
    """The four configuration modules whose entries decide a compile."""
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config
    import torch.fx.experimental._config

    return {
        "dynamo": torch._dynamo.config,
        "functorch": torch._functorch.config,
        "inductor": torch._inductor.config,
        "fx": torch.fx.experimental._config,
    }


def non_default_entries(module: ModuleType) -> dict[str, object]:
    """The entries of a config module whose value is not the default (patches included).

    To torch an entry that was patched once and restored is set for good, if to its default. Nothing
    depends on that, and two compiles of one process are not to differ in it.
    """
    entries: dict[str, object] = module._get_dict(skip_default=True)
    return {
        key: value
        for key, value in entries.items()
        if type(value) is not type(module._config[key].default)
        or value != module._config[key].default
    }


def aot_counter() -> int:
    """The number that the next AOT graph will get (it appears in the output code)."""
    import torch._functorch.aot_autograd as aot

    return _peek(aot.AOT_COUNTER)


def set_aot_counter(value: int) -> None:
    """Make the next AOT graph get this number."""
    import torch._functorch.aot_autograd as aot

    aot.AOT_COUNTER = itertools.count(value)


def graph_counter() -> int:
    """The number that the next Inductor graph will get.

    Without importing Inductor, which takes seconds: a compile for another backend does not need it.
    """
    compile_fx = sys.modules.get("torch._inductor.compile_fx")
    return _peek(compile_fx._graph_counter) if compile_fx is not None else 0


def set_graph_counter(value: int) -> None:
    """Make the next Inductor graph get this number."""
    import torch._inductor.compile_fx as compile_fx

    compile_fx._graph_counter = itertools.count(value)


def checkpoint_counter() -> int:
    """The number that the next region of activation checkpointing will get."""
    import torch._higher_order_ops.wrap as wrap

    return _peek(wrap.uid)


def set_checkpoint_counter(value: int) -> None:
    """Make the next region of activation checkpointing get this number."""
    import torch._higher_order_ops.wrap as wrap

    wrap.uid = itertools.count(value)


def region_call_counter() -> int:
    """The number that the next call of a marked region will get in this thread (torch 2.13 on)."""
    return int(getattr(_region_calls(), "counter", 0))


def set_region_call_counter(value: int) -> None:
    """Make the next call of a marked region get this number in this thread."""
    if (calls := _region_calls()) is not None:
        calls.counter = value


def _region_calls() -> Any:
    """The state of a thread that `nested_compile_region` numbers its calls by."""
    regions = sys.modules.get("torch._higher_order_ops.invoke_subgraph")
    return getattr(regions, "_invoke_subgraph_call_state", None)


def _peek(counter: Iterable[int]) -> int:
    """Where an `itertools.count` stands, without moving it."""
    return int(counter.__reduce__()[1][0])


def graph_names(graph: torch.fx.Graph) -> tuple[set[str], dict[str, int]]:
    """The names a graph has used (erased nodes too) and its counters: they number new nodes."""
    namespace = graph._graph_namespace
    return set(namespace._used_names), dict(namespace._base_count)


def set_graph_names(graph: torch.fx.Graph, used: Iterable[str], counts: Mapping[str, int]) -> None:
    """Restore what `graph_names` gave."""
    namespace = graph._graph_namespace
    for name in used:
        namespace._used_names.add(name)
    namespace._base_count.update(counts)


def has_zero_tensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a ZeroTensor (no memory behind it; the gradient of `sgn` is
    one).
    """
    return bool(tensor._is_zerotensor())


def zero_tensor(size: list[int], **kwargs: Any) -> torch.Tensor:
    """A ZeroTensor."""
    return torch._efficientzerotensor(size, **kwargs)


def suppress_guards(env: ShapeEnv) -> Any:
    """A context in which the ShapeEnv notes no guard."""
    return env.suppress_guards()


def symbolic_module() -> ModuleType:
    """The module of the ShapeEnv, for its small record types (SLoc, ValueRangesSLoc, ...)."""
    return symbolic_shapes


def is_wrapper_subclass(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a traceable wrapper subclass (it flattens into inner tensors)."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def own_subclasses() -> dict[str, type[torch.Tensor]]:
    """Torch's own wrapper subclasses that a store may name: they only hold other tensors."""
    from torch.nested._internal.nested_tensor import NestedTensor
    from torch.testing._internal.two_tensor import TwoTensor

    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in (NestedTensor, TwoTensor)}


def is_jagged(cls: type) -> bool:
    """Return whether a class is that of tensors whose rows differ in length."""
    from torch.nested._internal.nested_tensor import NestedTensor

    return issubclass(cls, NestedTensor)


def graph_module_state(value: Any) -> dict[str, Any] | None:
    """Return what makes an FX module besides its class, and its graph apart; None for anything
    else.
    """
    if not issubclass(type(value), torch.fx.GraphModule):
        return None
    # The class that traced it is of no use to code that is there, and often a local one.
    left = ("_graph", "_tracer_cls")
    return {name: held for name, held in vars(value).items() if name not in left}


def operator_path(value: Any) -> str | None:
    """Where an operator is found from `torch.ops` on; None for anything else."""
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(value)
    if isinstance(value, torch._ops._OpNamespace):
        return value.__name__.removeprefix("torch.ops.")
    return None


def nested_compile_region(function: Any) -> Any:
    """The function that `torch.compiler.nested_compile_region` was given; None for any other."""
    return getattr(function, "__marked_compile_region_fn__", None)


def is_functorch_wrapper(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is wrapped by a functorch transform (vmap, grad, jvp)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def storage_of(tensor: torch.Tensor) -> tuple[int, object] | None:
    """A storage's identity and its size in bytes; None for tensors that have none."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
    return storage._cdata, storage.nbytes()


def unreplaced(node: Any) -> Any:
    """The expression of a SymNode, as it was made: `expr` is that after replacements."""
    return node._expr if isinstance(node, SymNode) else expression(node)


def within_wrapper(gm: Any) -> Any:
    """The graph module in the one that torch makes around it where its inputs are lists."""
    from torch._dynamo.utils import GmWrapper

    return gm.gm if isinstance(gm, GmWrapper) else gm


def is_fake(value: object) -> bool:
    """Return whether a value is a fake tensor, or a size without a number."""
    return isinstance(value, (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_traced_input(value: object) -> bool:
    """Return whether a real tensor is one that Dynamo has made a fake of, in the compile under
    way.
    """
    context = TracingContext.try_get()
    known = getattr(context, "tensor_to_context", None)
    return isinstance(value, torch.Tensor) and known is not None and value in known


def traced_env(gm: torch.fx.GraphModule) -> ShapeEnv | None:
    """The ShapeEnv of the values that the nodes of a graph were traced with."""
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, FakeTensor):
            return value.fake_mode.shape_env
        if isinstance(value, torch.SymInt):
            return value.node.shape_env  # type: ignore[no-any-return]
    return None


def converted_tensors(mode: FakeTensorMode) -> int:
    """Return how many tensors a fake mode has converted: symbols without a source are named by
    it.
    """
    return len(mode.fake_tensor_converter.meta_converter.tensor_memo)


def forget_converted(mode: FakeTensorMode) -> None:
    """Have a fake mode count its tensors from 0."""
    mode.fake_tensor_converter.meta_converter.tensor_memo.clear()


def subgraph_name() -> str | None:
    """The name of the region that regional compilation is at: torch's trace records have it."""
    from torch.fx import traceback

    find = getattr(traceback, "_get_regional_inductor_subgraph_name", None)  # since 2.13
    name = find() if find is not None else None
    return name if isinstance(name, str) else None


def range_of(node: SymNode) -> tuple[int | None, int | None]:
    """The least and the most that a symbol can be; None where there is no limit."""
    env = node.shape_env
    found = env.var_to_range.get(node.expr) if env is not None else None
    bounds = (found.lower, found.upper) if found is not None else (None, None)
    least, most = [int(b) if isinstance(b, sympy.Integer) else None for b in bounds]
    # Sizes of tensors end here, and torch writes that down as well as an infinite one.
    return least, None if most is not None and most >= sys.maxsize - 1 else most


def is_specialised(sizes: Iterable[int | torch.SymInt]) -> bool:
    """Return whether one of them is a symbol that became a number."""
    return any(isinstance(size, torch.SymInt) and expression(size.node).is_number for size in sizes)


def fake_of_meta(
    mode: FakeTensorMode,
    size: Iterable[int | torch.SymInt],
    stride: Iterable[int | torch.SymInt],
    options: Mapping[str, Any],
) -> FakeTensor:
    """A fake made of a meta tensor, as the conversion of a real tensor makes one.

    It has symbolic sizes though all of them are numbers by now; one that a FakeTensorMode makes in
    `torch.empty_strided` has not.
    """
    with no_dispatch():
        meta = torch.empty_strided(tuple(size), tuple(stride), **{**options, "device": "meta"})
        return FakeTensor(mode, meta, torch.device(options["device"]))


def expression(node: Any) -> sympy.Basic:
    """The expression of a SymInt's node; a nested int (the length of each row of a jagged tensor)
    has no symbol, and SymPy's name for it is a SingletonInt."""
    if not isinstance(node, SymNode) and node.is_nested_int():
        return SingletonInt(node.nested_int(), coeff=node.nested_int_coeff())
    return node.expr


def singleton_parts(expr: Any) -> tuple[int, int]:
    """The number of a nested int, and the factor before it."""
    return int(expr._val), int(expr._coeff)


def nested_hint(env: ShapeEnv, expr: sympy.Basic) -> torch.SymInt | None:
    """The hint of a length that is none: a nested int, or a multiple of one; None otherwise."""
    known = {symbol: env.backed_var_to_val.get(symbol) for symbol in expr.free_symbols}
    if not any(isinstance(value, SingletonInt) for value in known.values()):
        return None
    factors = [known.get(factor, factor) for factor in sympy.Mul.make_args(expr)]
    # By its own operator: SymPy would leave the product as it is.
    product = functools.reduce(operator.mul, factors)
    return nested_int(product) if isinstance(product, SingletonInt) else None


def nested_int(expr: Any) -> torch.SymInt:
    """The nested int that a SingletonInt stands for, as jagged tensors make them."""
    from torch.nested._internal.nested_int import NestedIntNode

    return torch.SymInt(NestedIntNode(*singleton_parts(expr)))  # type: ignore[no-untyped-call]


def last_sequence() -> int:
    """The number that a node of a graph is traced with now (torch/fx/proxy.py: _get_seq_nr)."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def item_memo(tensor: torch.Tensor) -> torch.SymInt | torch.SymFloat | None:
    """The symbol that Dynamo gave to the value of a 0-d input, if any (read without a check)."""
    memo = getattr(tensor, "_item_memo", None) if isinstance(tensor, FakeTensor) else None
    return memo if isinstance(memo, (torch.SymInt, torch.SymFloat)) else None


def set_item_memo(tensor: torch.Tensor, value: object) -> None:
    """Restore what `item_memo` gave."""
    if isinstance(tensor, FakeTensor) and isinstance(value, (torch.SymInt, torch.SymFloat)):
        tensor.item_memo = value


def hint_of(node: SymNode) -> object:
    """A SymNode's hint, without computing one."""
    return getattr(node, "_hint", None)


def no_hint() -> object:
    """Return what tells a SymNode not to compute a hint."""
    from torch.fx.experimental.sym_node import _NO_HINT

    return _NO_HINT


def shape_guard(expr: sympy.Basic, size_oblivious: bool) -> ShapeGuard:
    """A guard of a ShapeEnv, without a source location."""
    return ShapeGuard(expr, torch._guards.SLoc(None, None), size_oblivious)


def runtime_assert(expr: sympy.Basic, message: str) -> RuntimeAssert:
    """A deferred runtime assert, without a stack."""
    from torch.utils._traceback import CapturedTraceback

    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    return RuntimeAssert(expr, message, stack)


def restore_guards(env: ShapeEnv, guards: Iterable[tuple[sympy.Basic, bool]]) -> None:
    """Give a ShapeEnv its guards, without source locations."""
    nowhere = torch._guards.SLoc(None, None)
    env.guards = [ShapeGuard(expr, nowhere, oblivious) for expr, oblivious in guards]


def restore_deferred(
    env: ShapeEnv, asserts: Mapping[sympy.Symbol | None, list[tuple[sympy.Basic, str]]]
) -> None:
    """Give a ShapeEnv its deferred runtime asserts, without stacks."""
    from torch.utils._traceback import CapturedTraceback

    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    env.deferred_runtime_asserts = {
        symbol: [RuntimeAssert(expr, message, stack) for expr, message in rows]
        for symbol, rows in asserts.items()
    }


def settle_shape_env(env: ShapeEnv) -> None:
    """Fill what goes beside the state (locations, stacks), and drop what was cached from it."""
    from torch.utils._traceback import CapturedTraceback

    nowhere = torch._guards.SLoc(None, None)
    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    for symbol in env.var_to_range:
        env.var_to_range_sloc[symbol] = symbolic_shapes.ValueRangesSLoc(nowhere, nowhere)
        env.var_to_stack.setdefault(symbol, stack)
    for symbol in env.replacements:
        env.replacements_slocs[symbol] = nowhere
    env._resimplify_floor_div_axioms = True
    env._replacements_version_counter += 1
    env._update_version_counter()


@cache
def config_keys(module: ModuleType) -> frozenset[str]:
    """The names of a config module's entries."""
    return frozenset(module._config)


@cache
def record_classes() -> dict[str, type]:
    """AOTAutograd's descriptors, and the keys of the paths at which unbacked symbols are bound."""
    import torch._functorch._aot_autograd.descriptors as descriptors
    import torch.utils._pytree as pytree

    keys = (
        pytree.SequenceKey, pytree.MappingKey, pytree.GetAttrKey, symbolic_shapes.ConvertIntKey,
        symbolic_shapes.CallMethodKey, symbolic_shapes.InnerTensorKey, symbolic_shapes.DivideByKey,
    )  # fmt: skip
    own = {
        name: value
        for name, value in vars(descriptors).items()
        if isinstance(value, type) and value.__module__ == descriptors.__name__
    }
    return {**own, **{key.__name__: key for key in keys}}


def node_sources(data: Any) -> object:
    """A chain of node origins (`meta["from_node"]`) from plain data."""
    from torch.fx.traceback import NodeSource

    return [NodeSource._from_dict(item) for item in data]


def tensor_metadata(tensor: torch.Tensor) -> object:
    """Return what ShapeProp notes of a tensor (`meta["tensor_meta"]`)."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return _extract_tensor_metadata(tensor)


def holds_tensors(value: object) -> bool:
    """Return whether a tensor or a symbolic scalar stands anywhere in a nested value."""
    if value is None or isinstance(value, (str, int)):
        return False
    from torch.utils._pytree import tree_leaves

    kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(isinstance(leaf, kinds) for leaf in tree_leaves(value))


def without_addresses(text: str) -> str:
    """The text of a target without the address that Python prints for unnamed objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A GraphModule as Dynamo makes one (compiled lazily where torch does so)."""
    from torch.fx._lazy_graph_module import _make_graph_module

    return _make_graph_module(root, graph)


def no_dispatch() -> Any:
    """A context in which no mode of the program sees what an encoder touches."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def fake_mode_of(
    gm: torch.fx.GraphModule | None, inputs: Iterable[object]
) -> FakeTensorMode | None:
    """The fake mode of the compile under way; without one, that of the inputs or of a graph."""
    context = TracingContext.try_get()
    if context is not None and context.fake_mode is not None:
        return context.fake_mode
    from torch._guards import detect_fake_mode

    nodes = () if gm is None else gm.graph.nodes
    metas = [n.meta.get("val", n.meta.get("example_value")) for n in nodes]
    return detect_fake_mode([*inputs, *metas])


def fake_mode_settings(mode: FakeTensorMode | None) -> dict[str, bool]:
    """The settings of a fake mode that change what operators return."""
    names = ("allow_non_fake_inputs", "allow_scalar_outputs", "static_shapes", "allow_meta")
    return {name: bool(getattr(mode, name)) for name in names if hasattr(mode, name)}


def objects_of_compile(backend: object) -> dict[str, object]:
    """The program's own code that decides a compile, by name.

    Config entries (`inductor.post_grad_custom_post_pass`) and options (`options.NAME`) that hold
    what is no plain value, and the backend (`backend`), where it is none of torch's.
    """
    found: dict[str, object] = {
        f"{module}.{key}": value
        for module, config in config_modules().items()
        for key, value in non_default_entries(config).items()
        if _holds_code(value)
    }
    name, options = backend_of(backend)
    found |= {f"options.{key}": value for key, value in options.items() if _holds_code(value)}
    return {**found, "backend": _innermost(backend)} if ":" in name else found


_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _holds_code(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_holds_code, value))
    if isinstance(value, dict):
        return any(map(_holds_code, value.values()))
    return not isinstance(value, _PLAIN_VALUES)


def _innermost(backend: object) -> object:
    """The callable that the program gave, without torch's wrappers around it."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    return backend.compiler_fn if isinstance(backend, torch._TorchCompileWrapper) else backend


def backend_of(backend: object) -> tuple[str, dict[str, Any]]:
    """A backend's portable name and the options of its `torch.compile` call."""
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
    """Return whether a backend is one of torch's own that gives on the one graph that it is
    given.
    """
    module = getattr(_innermost(backend), "__module__", "")
    return ":" not in backend_of(backend)[0] and module.partition(".")[0] == "torch"


def aot_graph_name() -> list[str]:
    """The name of the AOT graph under way (`0_forward`): it stands in the output code."""
    from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name

    context = TracingContext.try_get()
    stack = getattr(context, "aot_graph_name", None) if context is not None else None
    return [str(name) for name in stack] if stack else [str(get_aot_graph_name())]


def specialized_floats() -> list[str]:
    """The float symbols that an earlier attempt of this compile told Dynamo to specialise.

    AOTAutograd asks for another restart when one of them is missing here.
    """
    from torch._dynamo.symbolic_convert import TensorifyState

    return sorted(TensorifyState.force_specializations)


def set_specialized_floats(names: Iterable[str]) -> None:
    """Restore what `specialized_floats` gave."""
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.clear()
    for name in names:
        TensorifyState.specialize(name)


def donated_inputs() -> list[int] | None:
    """The inputs of a backward graph whose memory Inductor may reuse (saved, and dead after it)."""
    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    donated = getattr(metadata, "bw_donated_idxs", None)
    return None if donated is None else [int(index) for index in donated]


def is_aot_compilation() -> bool:
    """Return whether Inductor compiles for AOTInductor: into a library, with the weights in it."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    return virtualized is not None and bool(virtualized.V.aot_compilation)


def is_compiled_autograd() -> bool:
    """Return whether what compiled autograd captured is compiled: AOTAutograd does other things
    then.
    """
    found = sys.modules.get("torch._dynamo.compiled_autograd")
    return found is not None and bool(found.in_compiled_autograd_region)


@contextlib.contextmanager
def compiled_autograd(active: bool) -> Iterator[None]:
    """Have what is compiled count as what compiled autograd captured, or not."""
    if active == is_compiled_autograd():
        yield
        return
    module = _compiled_autograd()
    before, module.in_compiled_autograd_region = module.in_compiled_autograd_region, active
    try:
        yield
    finally:
        module.in_compiled_autograd_region = before


def may_be_written_into_code(constant: torch.Tensor) -> bool:
    """Return whether Inductor writes the values of a small constant of this kind into its
    output code.

    A weight is one only where freezing makes constants of weights; AOTInductor keeps all apart.
    """
    weight = isinstance(constant, torch.nn.Parameter)
    return (is_freezing() or not weight) and not is_aot_compilation()


def is_freezing() -> bool:
    """Return whether Inductor makes constants of weights."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.freezing)


# -- frames -------------------------------------------------------------------------------------


def dynamic_of(backend: object) -> bool | None:
    """Return what `dynamic` the `torch.compile` call of a backend was given."""
    while hasattr(backend, "_torchdynamo_orig_backend"):
        backend = backend._torchdynamo_orig_backend
    found = getattr(backend, "dynamic", None)
    return found if isinstance(found, bool) else None


def errors_on_graph_break() -> bool:
    """Return whether `torch._dynamo.error_on_graph_break` is on."""
    from torch._dynamo.utils import _get_error_on_graph_break

    return bool(_get_error_on_graph_break())


def function_modes() -> tuple[str | None, list[str]]:
    """The default device, and the classes of the other torch function modes, outermost first."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    devices = [str(mode.device) for mode in modes if isinstance(mode, DeviceContext)]
    others = [type(mode).__qualname__ for mode in modes if not isinstance(mode, DeviceContext)]
    return devices[-1] if devices else None, others


def open_transforms() -> list[str]:
    """The functorch transforms that are open, outermost first."""
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return [str(layer.key()) for layer in retrieve_all_functorch_interpreters()]


def frame_counters() -> dict[str, int]:
    """Where the counters stand that number what a compile makes."""
    from torch._dynamo import bytecode_transformation, output_graph

    return {
        "unique": _peek(bytecode_transformation._unique_id_counter),
        "output": _peek(output_graph._compile_id_counter),
        "aot": aot_counter() if "torch._functorch.aot_autograd" in sys.modules else 0,
        "graph": graph_counter(),
        "checkpoint": checkpoint_counter(),
    }


def set_frame_counters(counters: Mapping[str, int], compile_id: str) -> None:
    """Restore what `frame_counters` gave; the next frame gets this `CompileId`."""
    from torch._dynamo import bytecode_transformation, convert_frame, output_graph

    bytecode_transformation._unique_id_counter = itertools.count(counters.get("unique", 0))
    if "output" in counters:
        output_graph._compile_id_counter = itertools.count(counters["output"])
    set_aot_counter(counters.get("aot", 0))
    if counters.get("graph") or "torch._inductor.compile_fx" in sys.modules:
        set_graph_counter(counters.get("graph", 0))
    if "checkpoint" in counters:
        set_checkpoint_counter(counters["checkpoint"])
    found = None if compile_id == UNNAMED else CompileId.from_string(compile_id)
    if found is not None and found.frame_id is not None and found.frame_compile_id is not None:
        convert_frame.FRAME_COUNTER = found.frame_id
        convert_frame.FRAME_COMPILE_COUNTER[found.frame_id] = found.frame_compile_id


_MOST_CODES = 50
"""Code objects whose sizes are kept, the latest ones: a process may have seen any number."""


def seen_sizes(code: CodeType, closure: Any) -> list[Json]:
    """Return what automatic dynamic shapes has seen of the sizes of sources, by code object.

    `own` marks what it has seen of `code` itself; a code object with a closure is known by the hash
    of that, which means nothing in another process.
    """
    from torch._dynamo import pgo

    if not pgo._CODE_STATE:
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
        for key, state in pgo._CODE_STATE.items()
        if state.automatic_dynamic and (key.closure_hash is None or key == own)
    ]
    return [*(row for row in found[:-_MOST_CODES] if row["own"]), *found[-_MOST_CODES:]]


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
    """Restore what `seen_sizes` gave, and nothing else: a reset forgets what was seen."""
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
    """Return what Dynamo knows of a function that it made to go on after a graph break."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    found: object = ContinueExecutionCache.generated_code_metadata.get(code)
    return found


def traced_module(code: CodeType) -> dict[str, Any] | None:
    """Return what Dynamo copies to its graph from the FX module whose forward `code` is.

    That is the metadata of the nodes, and which line is which node's.
    """
    from torch._dynamo.code_context import code_context
    from torch.fx.proxy import _COPY_META_FIELDS

    if not code_context.has_context(code):
        return None
    module = code_context.get_context(code).get("orig_graphmodule", lambda: None)()
    if not isinstance(module, torch.fx.GraphModule):
        return None
    fields = ("stack_trace", *_COPY_META_FIELDS)
    metas = [{k: node.meta[k] for k in fields if k in node.meta} for node in module.graph.nodes]
    return {"metas": metas, "lines": module._lineno_map}


def set_traced_module(code: CodeType, function: Any, found: Mapping[str, Any]) -> None:
    """Restore what `traced_module` gave."""
    from torch._dynamo.code_context import code_context

    graph = torch.fx.Graph()
    *metas, last = found["metas"]
    for place, meta in enumerate(metas):
        graph.placeholder(f"node_{place}").meta = dict(meta)  # of the nodes, the metadata is read
    graph.output(None).meta = dict(last)
    module = torch.fx.GraphModule({}, graph)
    module._lineno_map, module.forward = found["lines"], function
    code_context.get_context(code)["orig_graphmodule"] = lambda: module


def set_resume_metadata(code: CodeType, metadata: object) -> None:
    """Restore what `resume_metadata` gave."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    ContinueExecutionCache.generated_code_metadata[code] = metadata


# What ShapeEnv keeps in caches of functools: `shape_env.answers` reads and fills them.


def evaluation_cache() -> functools._lru_cache_wrapper[Any]:
    """The last answers of any ShapeEnv to `evaluate_expr`."""
    return ShapeEnv._inner_evaluate_expr


def static_cache(env: ShapeEnv) -> functools._lru_cache_wrapper[Any] | None:
    """Return what could be told without a guard; None where that is of another state or ShapeEnv.

    `symbolic_shapes._lru_cache` keeps it, and the version of it, in the cells of a closure.
    """
    wrapper: Any = ShapeEnv._maybe_evaluate_static
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    if cells["prior_version"].cell_contents != env._version_counter:
        return None
    found: functools._lru_cache_wrapper[Any] = cells["fn_cache"].cell_contents
    return found


def keyword_mark(cache: functools._lru_cache_wrapper[Any]) -> object:
    """Return what stands between positional and keyword arguments in the keys of a cache."""
    return next(item for item in reversed(gc.get_referents(cache)) if type(item) is object)


def has_stale_axioms(env: ShapeEnv) -> bool:
    """Return whether the next question has the axioms with divisions simplified anew, and some
    added.
    """
    return env._resimplify_floor_div_axioms


def set_stale_axioms(env: ShapeEnv, stale: bool) -> None:
    """Say whether the next question has the axioms with divisions simplified anew."""
    env._resimplify_floor_div_axioms = stale


def remember_answer(env: ShapeEnv, question: tuple[Any, ...], answer: sympy.Basic) -> None:
    """Put an answer into the cache of `evaluate_expr`: the next one to this is not evaluated."""
    _with_attributes(
        env,
        {"_evaluate_expr": lambda *_, **__: answer},
        lambda: ShapeEnv._inner_evaluate_expr(env, *question),
    )


def remember_unknown(env: ShapeEnv, expr: sympy.Basic, keywords: Mapping[str, bool]) -> None:
    """Put into the cache of `_maybe_evaluate_static` that this can't be told without a guard."""
    module: Any = symbolic_shapes
    worker = module._maybe_evaluate_static_worker
    module._maybe_evaluate_static_worker = lambda *_: None
    try:
        _with_attributes(
            env,
            {"simplify": lambda unchanged, *_, **__: unchanged, "axioms": {}},
            lambda: env._maybe_evaluate_static(expr, **keywords),
        )
    finally:
        module._maybe_evaluate_static_worker = worker


def _with_attributes(
    env: ShapeEnv, attributes: Mapping[str, Any], call: Callable[[], object]
) -> None:
    """Call while the ShapeEnv has these in place of its own methods and fields."""
    before = dict(vars(env))
    vars(env).update(attributes)
    try:
        call()
    finally:
        vars(env).clear()
        vars(env).update(before)


def default_decompositions() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The tables with which torch decomposes an exported program, if it is given none.

    For operators that are defined by others, and for those that AOTAutograd traces.
    """
    from torch.export import exported_program

    table = exported_program.default_decompositions().materialize()
    return exported_program._split_decomp_table_to_cia_and_python_decomp(table)  # type: ignore[return-value]


def decompositions_of(operator: Any) -> dict[str, Any]:
    """Return what torch itself has for an operator, by what it does."""
    from torch._decomp import global_decomposition_table
    from torch._export import utils

    found = {"preserve": utils._special_op_to_preserve_cia}
    if isinstance(operator, torch._ops.OpOverload):
        found["decompose"] = utils._get_decomp_for_cia(operator)
    for kind, table in global_decomposition_table.items():
        if operator in table:
            found[kind] = table[operator]
    return found


def export_verifier(dialect: str) -> Any:
    """Return what checks an exported program of a dialect ('ATEN', 'TRAINING')."""
    from torch._export.verifier import load_verifier

    try:
        return load_verifier(dialect)
    except KeyError:
        raise UnsupportedError(f"this torch has no dialect {dialect!r:.60} of exports") from None


def known_of_fake(fake: object, real: object) -> str:
    """Return what the mode of a fake tensor knows it for: a real 'tensor', its 'storage', or ''.

    'another' where the mode has made another fake tensor of the real one. With ' constant' where
    it takes the value for one.
    """
    if not isinstance(fake, FakeTensor) or not isinstance(real, torch.Tensor):
        return ""
    converter = fake.fake_mode.fake_tensor_converter
    made = converter._get_memo(real)
    if made is not None:
        what = "tensor" if made is fake else "another"
        return what if made.constant is None else f"{what} constant"
    if real.layout is not torch.strided or is_wrapper_subclass(real):
        return ""
    metas = converter.meta_converter
    number = metas.describer.lookup_storage.get(real.untyped_storage())  # type: ignore[no-untyped-call]
    known = metas.storage_memo.get(number)
    return "storage" if known is not None and known._cdata == fake.untyped_storage()._cdata else ""


def set_known_of_fake(fake: object, real: torch.Tensor, what: str) -> object:
    """Let the mode of a fake tensor know what `known_of_fake` gave.

    Returns what has to live as long as the mode is to know it.
    """
    if not isinstance(fake, FakeTensor):
        return None
    converter = fake.fake_mode.fake_tensor_converter
    what, _, constant = what.partition(" ")
    if what in ("tensor", "another"):
        known = fake if what == "tensor" else _again(fake, real)
        known.constant = real.detach() if constant else None  # type: ignore[attr-defined]
        converter.set_tensor_memo(real, known)  # type: ignore[arg-type]
        return known
    if what == "storage":
        metas = converter.meta_converter
        number = metas.describer.get_storage_id(real.untyped_storage())
        metas.storage_memo[number] = fake.untyped_storage()
    return None


def _again(fake: FakeTensor, real: torch.Tensor) -> torch.Tensor:
    """Another fake tensor of a real one, with the storage of the first."""
    with fake.fake_mode, torch.no_grad():
        made = fake.detach()
        if isinstance(real, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=real.requires_grad)
        return made.requires_grad_(real.requires_grad)


def is_tracer_disabled() -> bool:
    """Return True if Dynamo leaves FX's tracer out, as it does once torch.compile was used."""
    return hasattr(torch.fx.Tracer.trace, "_torchdynamo_disable")


def disable_tracer() -> None:
    """Have Dynamo leave FX's tracer out."""
    from torch._dynamo.eval_frame import TorchPatcher

    TorchPatcher.patch()


def guards_of_export(program: Any) -> list[str]:
    """The conditions on the inputs of an exported program, as code."""
    return list(program._guards_code)


def decompose(program: Any, composite: Any, python: Any, loss: int | None, triton: bool) -> Any:
    """Decompose an exported program as its `run_decompositions` does."""
    from torch.export import exported_program

    return exported_program._decompose_exported_program(
        program,
        cia_to_decomp=composite,
        python_decomp_table=python,
        joint_loss_index=loss,
        decompose_custom_triton_ops=triton,
    )


def autograd_node_name(function: object) -> str:
    """The name of the autograd node whose backward compiled autograd calls as this function.

    "" for anything else.
    """
    if type(function).__name__ != "Op":  # before torch's module is imported for it
        return ""
    cls, ops = getattr(_compiled_autograd(), "Op", None), _autograd_nodes()
    if cls is None or type(function) is not cls or function.is_custom_function:  # type: ignore[attr-defined]
        return ""
    name = str(function.__name__)  # type: ignore[attr-defined]
    return name if getattr(ops, name, None) is function else ""


def autograd_node_function(name: str) -> Callable[..., object] | None:
    """The backward of a node as a function, where compiled autograd has captured such a node."""
    found = getattr(_autograd_nodes(), name, None)
    return found if autograd_node_name(found) == name else None


def _autograd_nodes() -> object | None:
    """Return what compiled autograd has bound in this process; None in a torch that binds
    nothing.
    """
    return getattr(_compiled_autograd(), "ops", None)


def _compiled_autograd() -> Any:
    from torch._dynamo import compiled_autograd

    return compiled_autograd


def aten_overloads() -> list[tuple[str, str]]:
    """The registered operators of torch's own namespace: name and overload."""
    names = [name.partition("::") for name in torch._C._dispatch_get_all_op_names()]
    parts = [name.partition(".") for namespace, _, name in names if namespace == "aten"]
    return sorted((packet, overload or "default") for packet, _, overload in parts)


def ones(*, requires_grad: bool = False) -> torch.Tensor:
    """A small tensor that no mode sees; one with a gradient is no leaf, so it may be written to."""
    with _disable_current_modes(), torch.enable_grad():
        made = torch.ones(2, 2, dtype=torch.float32, device="cpu", requires_grad=requires_grad)
        return made.clone() if requires_grad else made


class _WithoutKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers every operator below autograd with tensors of ones."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = [self._answer(returned, func, args) for returned in func._schema.returns]
        return found[0] if len(found) == 1 else tuple(found) or None

    def _answer(self, returned: Any, func: Any, args: Sequence[object]) -> object:
        alias = returned.alias_info
        for argument, value in zip(func._schema.arguments, args, strict=False):
            # What is written to comes back.
            written = argument.alias_info if alias is not None and alias.is_write else None
            if written is not None and written.before_set == alias.before_set:
                return value
        kind = str(returned.type)
        if kind == "Tensor":
            return ones()
        return [ones(), ones()] if kind.startswith("List[") else {"float": 1.0}.get(kind, 1)


class _Captured(Exception):
    """Ends a capture, so that nothing is compiled."""


def capture_backward(operator: Any, args: Sequence[object], kwargs: Mapping[str, Any]) -> None:
    """Let compiled autograd capture the backward of one operator, and compile nothing.

    What the process counts stays as it was.  Raises what the operator raises.
    """
    from torch._dynamo.utils import counters

    def end(graph: object) -> None:
        raise _Captured

    autograd, nodes = _compiled_autograd(), torch._C._dynamo.compiled_autograd
    count, counted = autograd.COMPILE_COUNTER, dict(counters["compiled_autograd"])
    autograd.COMPILE_COUNTER = itertools.count()
    try:
        with _disable_current_modes(), torch.enable_grad(), torch._C.DisableTorchFunction():
            with _WithoutKernels():  # type: ignore[no-untyped-call]
                result = operator(*args, **kwargs)
            for tensor in pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                    compiler = functools.partial(autograd.AutogradCompilerInstance, end)
                    before = nodes.set_autograd_compiler(compiler, True)
                    try:
                        with torch.autograd.set_multithreading_enabled(False):
                            tensor.backward(ones())  # type: ignore[no-untyped-call]
                    except _Captured:
                        pass
                    finally:
                        nodes.set_autograd_compiler(*before)
    finally:
        autograd.COMPILE_COUNTER = count
        counters["compiled_autograd"].clear()
        counters["compiled_autograd"].update(counted)


_PROLOGUE = "AutogradCompilerInstance.proxy_call_aot_backward.<locals>.call_aot_bwd_prologue"


def prologue_metadata(function: object) -> Any:
    """Return what AOTAutograd knows of the function whose backward has this prologue.

    None for any other function, for one that is gone, and for one of tensor subclasses.
    """
    if getattr(function, "__qualname__", "") != _PROLOGUE:
        return None
    own = inspect.getclosurevars(function).nonlocals.get("bw_prologue_fn")  # type: ignore[arg-type]
    for compiled in torch.autograd.Function.__subclasses__():
        if own is not None and vars(compiled).get("_bw_prologue_fn") is own:
            return None if compiled.maybe_subclass_metadata is not None else compiled.metadata  # type: ignore[attr-defined]
    return None


def has_tangent(info: Any) -> bool:
    """Return whether the backward takes the gradient of an output."""
    from torch._functorch._aot_autograd.schemas import OutputType

    own = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
    is_tensor = issubclass(info.raw_type, torch.Tensor)
    return info.output_type in own and is_tensor and bool(info.requires_grad_for_backward)


def output_with_tangent(kept: bool) -> object:
    """An output of which `has_tangent` is that."""
    from torch._functorch._aot_autograd.schemas import OutputType

    return SimpleNamespace(
        output_type=OutputType.non_alias, raw_type=torch.Tensor, requires_grad_for_backward=kept
    )


def memory_format_of_tangent(**facts: Any) -> object:
    """The memory format that a backward was compiled for."""
    from torch._functorch._aot_autograd.schemas import MemoryFormatMeta

    return MemoryFormatMeta(**facts)


def prologue(metadata: object) -> Callable[..., object]:
    """The prologue of a backward, named as compiled autograd names it.

    Raises `UnsupportedError` in a torch that writes none.
    """
    from torch._functorch._aot_autograd import runtime_wrappers

    write = getattr(runtime_wrappers, "_codegen_backward_prologue", None)
    if write is None:
        raise UnsupportedError("this torch writes no prologues of backwards")
    own = write(metadata, None, None)

    def call_aot_bwd_prologue(*args: object) -> object:
        return own(*args)

    call_aot_bwd_prologue.__module__ = "torch._dynamo.compiled_autograd"
    call_aot_bwd_prologue.__qualname__ = _PROLOGUE
    return call_aot_bwd_prologue


def numpy_functions() -> dict[str, Callable[..., object]]:
    """The functions and scalar types of `torch._numpy` that NumPy has too, by qualified name."""
    from torch._dynamo import utils as dynamo_utils

    found = {}
    for numpy, ours in dynamo_utils.NP_TO_TNP_MODULE.items():
        for name, value in vars(ours).items():
            own = str(getattr(value, "__module__", "")).startswith("torch._numpy.")
            scalar = isinstance(value, type) and issubclass(value, torch._numpy._dtypes.generic)
            if own and (scalar or isinstance(value, FunctionType)) and hasattr(numpy, name):
                found[f"{ours.__name__}.{name}"] = value
    return found


def array_methods() -> frozenset[str]:
    """The names of the methods of `torch._numpy`'s arrays."""
    from torch._numpy._ndarray import ndarray

    return frozenset(
        name for name, value in vars(ndarray).items() if isinstance(value, FunctionType)
    )


def numpy_wrapped(target: object) -> tuple[str, object]:
    """What Dynamo put around what for NumPy code (see `numpy_calls`); ("", None) for neither."""
    if getattr(target, "__module__", "") != "torch._dynamo.utils":  # before that is imported for it
        return "", None
    from torch._dynamo import utils as dynamo_utils

    if target is dynamo_utils.numpy_attr_wrapper:
        return "attribute", None
    if type(target) is dynamo_utils.numpy_to_tensor_wrapper:
        return "function", target.f
    if type(target) is dynamo_utils.numpy_operator_wrapper:
        return "operator", target.op
    if type(target) is dynamo_utils.numpy_method_wrapper:
        return "method", target.method
    return "", None


def numpy_wrapper(kind: str, wrapped: Any) -> Callable[..., object]:
    """What Dynamo puts around a function, an operator or a method for NumPy code."""
    from torch._dynamo import utils as dynamo_utils

    if kind == "attribute":
        return dynamo_utils.numpy_attr_wrapper
    wrappers: Mapping[str, Any] = {
        "function": dynamo_utils.numpy_to_tensor_wrapper,
        "operator": dynamo_utils.numpy_operator_wrapper,
        "method": dynamo_utils.numpy_method_wrapper,
    }
    return wrappers[kind](wrapped)  # type: ignore[no-any-return]
