"""The allow-list of targets: resolves the name that a graph node calls to a live function.

Lives here: the name of a target, and the one way back from a name to a function.  Not here: the
rule for functions (`allowed.functions`), the arguments (`node_arguments`).  Called by `graphs`.

A name resolves only to what Dynamo and AOTAutograd themselves put into graphs: registered
operators of torch's own namespaces, registered higher-order operators, and functions that compute.
It never resolves to what touches files, processes, libraries or the network, and never imports a
module.  A function of the program's own (`torch.compiler.allow_in_graph`) has no portable form; a
replay that is trusted loads it, and admits it here (`admit`).
"""

from __future__ import annotations

import builtins
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType

import torch
import torch._ops

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats import autograd_nodes, backward_prologues, numpy_calls
from torchreel.formats.allowed import functions
from torchreel.torch_compat import distributed, fx
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.graph_calls import local_functions
from torchreel.torch_compat.graph_calls.local_functions import MARK
from torchreel.torch_compat.operators import dispatcher

Target = functions.Target

NOT_PORTABLE = "opaque:"
"""Before the name of a target that has no portable form."""
_admitted: dict[str, Target] = {}
"""The program's own functions that were loaded on trust, by the names of their targets."""

# Operators of torch's own namespaces that reach outside the process.
_DENIED_OPERATORS = frozenset(["aten.from_file", "aten._print", "aten.save", "prim.Print"])


def encode_target(target: object) -> str:
    """Return the portable name of a call_function target (`opaque:` when it has none)."""
    if isinstance(target, torch._ops.OpOverload):
        return f"op:{target}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"packet:{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"hop:{dispatcher.operator_name(target)}"
    if prologue := backward_prologues.encode(target):
        return prologue
    if call := numpy_calls.encode(target):
        return call
    name = _function_name(target)
    if name is not None and _is(functions.resolve(name), target):
        return f"fn:{name}"
    return f"{NOT_PORTABLE}{_describe(target)}"


def admit(text: str, function: Target) -> None:
    """Let a target without a portable form stand for a function, from now on in this process.

    For a function that was loaded because the user trusts who made the store.
    """
    _admitted[text] = function


def is_admitted(text: str) -> bool:
    """Return True if a target is a function of the program's own that was loaded on trust."""
    return text in _admitted


def _is(found: object, target: object) -> bool:
    """Return True if a function is the target, or was made of the very same code."""
    if found is target:
        return True
    return MARK in getattr(found, "__qualname__", "") and found.__code__ is target.__code__  # type: ignore[attr-defined]


def _describe(target: object) -> str:
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{getattr(target, '__qualname__', type(target).__qualname__)}"


def _function_name(target: object) -> str | None:
    if name := autograd_nodes.name_of(target) or distributed.name_of(target):
        return name
    if (name := local_functions.local_name(target)) and _is(functions.resolve(name), target):
        return name
    if isinstance(target, MethodDescriptorType) and hasattr(torch.Tensor, _name_of(target)):
        return f"torch.Tensor.{_name_of(target)}"
    if isinstance(target, type) or getattr(builtins, _name_of(target), None) is target:
        return f"{getattr(target, '__module__', '')}.{_name_of(target)}"
    if not isinstance(target, (FunctionType, BuiltinFunctionType)):
        return _by_identity().get(id(target))
    try:
        name = fx.qualified_name(target)
    except (RuntimeError, AttributeError):
        name = ""
    if name and functions.resolve(name) is target:
        return name
    return _by_identity().get(id(target))


def _name_of(target: object) -> str:
    return str(getattr(target, "__name__", ""))


@cache
def _by_identity() -> dict[int, str]:
    """Return Dynamo's allowed table the other way round, for functions that FX cannot name."""
    found: dict[int, str] = {}
    for name in [*rules.in_graph_names(), *dispatcher.reference_names()]:
        function = functions.resolve(name)
        if function is not None:
            found.setdefault(id(function), name)
    return found


def decode_target(text: str) -> Target:
    """Return the function that a portable name stands for.

    Raises `UntrustedError` for an operator of a foreign namespace that is not registered,
    `UnsupportedError` for everything that is not on the allow-list.
    """
    if text in _admitted:
        return _admitted[text]
    kind, _, name = text.partition(":")
    if kind == "op":
        return _operator(name)
    if kind == "packet":
        return _packet(name)
    if kind == "hop":
        return _higher_order_operator(name)
    if text.startswith(backward_prologues.TAG):
        return backward_prologues.decode(text)
    if text.startswith(numpy_calls.TAG):
        return numpy_calls.decode(text)
    if kind == "fn":
        function = functions.resolve(name)
        if function is not None:
            return function
    raise UnsupportedError(
        f"the target {text!r} is not one that Dynamo or AOTAutograd puts into a graph, "
        "so it is not resolved from a store"
    )


def is_of_capture(text: str) -> bool:
    """Return True if a target is a function that compiled autograd makes while it captures a
    backward.
    """
    return text.startswith((backward_prologues.TAG, f"fn:{autograd_nodes.PREFIX}"))


def _packet(name: str) -> Target:
    namespace, _, packet = name.partition(".")
    if f"{namespace}.{packet}" in _DENIED_OPERATORS or "." in packet:
        raise UnsupportedError(f"the operator {name!r} is never resolved from a store")
    found = dispatcher.operator_by_name(namespace, packet)
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
    denied = functions.DENIED_HIGHER_ORDER.get(name)
    if denied is not None:
        raise UnsupportedError(f"{name!r} {denied}, so it is never resolved from a store")
    found = dispatcher.higher_order_operator(name)
    if isinstance(found, torch._ops.HigherOrderOperator):
        return found
    raise UnsupportedError(
        f"this torch has no higher-order operator {name!r}; "
        "if a module of yours defines it, name that with --import MODULE"
    )
