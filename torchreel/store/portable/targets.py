"""What a graph node may call, by name: the allow-list between a store and live functions.

Lives here: the name of a target, and the one way back from a name to a function.  Not here: the
arguments (`values`).  Called by `graphs`.

A name resolves only to what Dynamo and AOTAutograd themselves put into graphs: registered
operators of torch's own namespaces, functions of Dynamo's in-graph table that compute, tensor
methods, `operator`, `math` and a few builtins, registered higher-order operators.  It never
resolves to what touches files, processes, libraries or the network, and never imports a module.
"""

from __future__ import annotations

import builtins
import math
import operator
import re
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, FunctionType

import torch
import torch._ops

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.store.jsontypes import Json
from torchreel.store.portable import torch_names

Target = Callable[..., object]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operator namespaces that torch itself registers and that only compute.
_NAMESPACES = _words(
    "aten prims prim inductor quantized _quantized quantized_decomposed mkldnn mkl onednn rngprims "
    "_c10d_functional _c10d_functional_autograd c10d_functional _dtensor streams bucketing fsdp"
)
# Operators of those namespaces that reach outside the process.
_DENIED_OPERATORS = _words("aten.from_file aten._print aten.save prim.Print")

_OPERATOR_DENIED = _words("call attrgetter itemgetter methodcaller")
_BUILTINS = _words("abs bool complex divmod float getattr int len max min pow round sum")
_TYPES = {"torch.Size": torch.Size}

# Modules of Dynamo's in-graph table whose functions only compute on tensors.
_COMPUTING = (
    r"torch\._C\._(nn|linalg|special|fft|sparse|nested)\.\w+"
    r"|torch\.(nn\.functional|special|linalg|fft|sparse|functional|nn\.grad|signal\.windows\.windows"
    r"|masked\._ops|nested|_functorch\.predispatch)\.\w+"
)
# Other in-graph functions, one by one: regions of grad mode and autocast, vmap levels, symbols.
_SINGLE = frozenset(
    f"torch.{name}"
    for name in _words(
        "_C._set_grad_enabled set_grad_enabled is_grad_enabled _C._set_fwd_grad_enabled "
        "amp.autocast_mode._enter_autocast amp.autocast_mode._exit_autocast "
        "autograd.grad_mode._enter_inference_mode autograd.grad_mode._exit_inference_mode "
        "autograd.forward_ad._set_fwd_grad_enabled "
        "_C._autograd._unsafe_set_version_counter "
        "_C._autograd._saved_tensors_hooks_disable _C._autograd._saved_tensors_hooks_enable "
        "_C._functorch._add_batch_dim _C._functorch._remove_batch_dim "
        "_C._functorch._vmap_increment_nesting _C._functorch._vmap_decrement_nesting "
        "_C._functorch._grad_increment_nesting _C._functorch._grad_decrement_nesting "
        "_C._functorch._jvp_increment_nesting _C._functorch._jvp_decrement_nesting "
        "_C._functorch._wrap_for_grad _C._functorch._unwrap_for_grad "
        "_C._functorch._wrap_functional_tensor _C._functorch._unwrap_functional_tensor "
        "_C._functorch.is_batchedtensor _C._functorch.get_unwrapped "
        "_functorch.vmap._vmap_increment_nesting _functorch.vmap._vmap_decrement_nesting "
        "_functorch.vmap._add_batch_dim _functorch.vmap._remove_batch_dim "
        "_functorch.eager_transforms._set_tensor_requires_grad "
        "fx.experimental.symbolic_shapes.guard_size_oblivious _assert _assert_async "
        "_C._log_api_usage_once"
    )
)
# Functions of those modules that call a function they are given.
_DISPATCHING = _words("handle_torch_function boolean_dispatch has_torch_function")
_DENIED_FLAT = _words("from_file _load_global_deps _preload_cuda_deps")

# Tensor methods that take a callable, or that hand out memory.
_DENIED_METHODS = _words(
    "apply_ map_ map2_ data_ptr share_memory_ register_hook register_post_accumulate_grad_hook "
    "storage untyped_storage module_load"
)
_DUNDER_METHODS = frozenset(
    f"__{name}__"
    for name in _words(
        "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv "
        "ifloordiv mod rmod pow rpow ipow matmul rmatmul and rand iand or ror ior xor rxor ixor "
        "lshift rlshift ilshift rshift rrshift irshift eq ne lt le gt ge neg pos abs invert "
        "getitem setitem len bool int float contains index"
    )
)


def encode_target(target: object) -> str:
    """The portable name of a call_function target (`opaque:` when it has none)."""
    if isinstance(target, torch._ops.OpOverload):
        return f"op:{target}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"packet:{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"hop:{torch_names.operator_name(target)}"
    name = _function_name(target)
    if name is not None and _resolve_function(name) is target:
        return f"fn:{name}"
    return f"opaque:{_describe(target)}"


def _describe(target: object) -> str:
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{getattr(target, '__qualname__', type(target).__qualname__)}"


def _function_name(target: object) -> str | None:
    if isinstance(target, type):
        return next((name for name, value in _TYPES.items() if value is target), None) or (
            f"builtins.{target.__name__}" if target.__module__ == "builtins" else None
        )
    if not isinstance(target, (FunctionType, BuiltinFunctionType)):
        return _by_identity().get(id(target))
    try:
        name = torch_names.qualified_name(target)
    except (RuntimeError, AttributeError):
        name = ""
    if name and _resolve_function(name) is target:
        return name
    return _by_identity().get(id(target))


@cache
def _by_identity() -> dict[int, str]:
    """Dynamo's allowed table the other way round, for functions that FX cannot name."""
    found: dict[int, str] = {}
    for name in torch_names.in_graph_names():
        function = _resolve_function(name)
        if function is not None:
            found.setdefault(id(function), name)
    return found


def decode_target(text: str) -> Target:
    """The function that a portable name stands for.

    Raises `UntrustedError` for an operator of a foreign namespace that is not registered,
    `UnsupportedError` for everything that is not on the allow-list.
    """
    kind, _, name = text.partition(":")
    if kind == "op":
        return _operator(name)
    if kind == "packet":
        return _packet(name)
    if kind == "hop":
        return _higher_order_operator(name)
    if kind == "fn":
        function = _resolve_function(name)
        if function is not None:
            return function
    raise UnsupportedError(
        f"the target {text!r} is not one that Dynamo or AOTAutograd puts into a graph, "
        "so it is not resolved from a store"
    )


def is_custom(text: str) -> bool:
    """Whether a target is an operator of a namespace that torch itself does not register."""
    kind, _, name = text.partition(":")
    return kind in ("op", "packet") and name.partition(".")[0] not in _NAMESPACES


def check_method(name: str) -> str:
    """A call_method target that may be called.  Raises `UnsupportedError` otherwise."""
    public = not name.startswith("_") or name in _DUNDER_METHODS
    if name in _DENIED_METHODS or not public or not hasattr(torch.Tensor, name):
        raise UnsupportedError(f"the method {name!r} is not a tensor method that a graph may call")
    return name


def check_builtin(text: str, args: Json, kwargs: Json) -> None:
    """Refuse a call of a builtin that Dynamo would not write.

    `max(..., key=f)` calls what it is given, and `getattr` reaches every object from a tensor.
    """
    if not text.startswith("fn:builtins."):
        return
    if kwargs:
        raise UnsupportedError(f"{text!r} is called with keywords, which no traced graph does")
    if text == "fn:builtins.getattr":
        name = args[1] if isinstance(args, list) and len(args) == 2 else None
        if not isinstance(name, str) or name.startswith("_") or name in _DENIED_METHODS:
            raise UnsupportedError(f"getattr of {name!r} is not what a traced graph does")


def _packet(name: str) -> Target:
    namespace, _, packet = name.partition(".")
    if f"{namespace}.{packet}" in _DENIED_OPERATORS or "." in packet:
        raise UnsupportedError(f"the operator {name!r} is never resolved from a store")
    found = torch_names.operator_by_name(namespace, packet)
    if isinstance(found, torch._ops.OpOverloadPacket):
        return found
    raise UntrustedError(
        f"the operator {name!r} is not registered in this process; "
        "name the module that defines it with --import MODULE"
    )


def _operator(name: str) -> Target:
    packet, _, overload = name.rpartition(".")
    found = getattr(_packet(packet), overload, None)
    if isinstance(found, torch._ops.OpOverload):
        return found
    raise UnsupportedError(f"the operator {packet!r} has no overload {overload!r} in this torch")


def _higher_order_operator(name: str) -> Target:
    found = torch_names.higher_order_operators().get(name)
    if isinstance(found, torch._ops.HigherOrderOperator):
        return found
    raise UnsupportedError(f"this torch has no higher-order operator {name!r}")


def _resolve_function(name: str) -> Target | None:
    """A function by qualified name, if the name is on the allow-list."""
    module, _, attribute = name.rpartition(".")
    if module in ("_operator", "operator"):
        allowed = attribute in operator.__all__ and attribute not in _OPERATOR_DENIED
        return getattr(operator, attribute, None) if allowed else None
    if module == "math":
        return getattr(math, attribute, None) if not attribute.startswith("_") else None
    if module == "builtins":
        return getattr(builtins, attribute) if attribute in _BUILTINS else None
    if name in _TYPES:
        return _TYPES[name]
    if _is_allowed(name, module, attribute):
        found = _walk(name)
        return found if callable(found) else None
    return None


def _is_allowed(name: str, module: str, attribute: str) -> bool:
    if module == "torch":
        return attribute not in _DENIED_FLAT and (
            hasattr(torch_names.variable_functions(), attribute)
            or attribute in torch.functional.__all__
            or bool(re.fullmatch(r"_?sym_\w+|_check\w*", attribute))
        )
    if name in _SINGLE:
        return True
    known = torch_names.in_graph_names().get(name) == "TorchInGraphFunctionVariable"
    return known and bool(re.fullmatch(_COMPUTING, name)) and attribute not in _DISPATCHING


def _walk(name: str) -> object:
    """Follow attributes from `torch`, through modules that torch has already imported."""
    value: object = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
        if value is None:
            return None
    return value
