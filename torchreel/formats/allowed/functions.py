"""Resolves function names of a store, by a rule over what torch itself puts into graphs.

Lives here: from a qualified name to a function, and what a few of them give back.  Not here: the
arguments that they may have (`graphs`, `strings`), operators by their names (`targets`).

A function is admitted if torch says that it may stand in a graph, and if it is of a module that
computes.  Torch says so in Dynamo's table of in-graph functions, in the list of Python's operators
that Dynamo keeps, in the magic methods of symbolic numbers, and by registering an operator of that
name.  A module that touches files, processes, libraries, devices or memory does not compute.

A function that tells without arguments whether a flag is set is admitted (`torch._C._is_tracing`).
A function that sets a flag is admitted too (`torch.set_default_dtype`), if torch has a function
that gives the flag's value, and the value is plain data: what is set is no object, and no code.
"""

from __future__ import annotations

import builtins
import math
import operator
import re
from collections.abc import Callable, Iterable
from functools import cache
from types import FunctionType

import torch
import torch._ops

from torchreel.formats import autograd_nodes
from torchreel.formats.allowed import members, value_kinds
from torchreel.formats.allowed.value_kinds import ValueKind
from torchreel.patterns import lazy_text
from torchreel.torch_compat import distributed
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.graph_calls.local_functions import MARK, local_function
from torchreel.torch_compat.operators import dispatcher

Target = Callable[..., object]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Not among the operators that Dynamo lists, and written into graphs all the same.
_OPERATORS = _words("setitem contains is_ is_not truth")
_BUILTINS = _words("abs bool complex divmod float getattr int len max min pow round sum")
# What torch binds as `torch.NAME` without an operator of that name, and which only computes.
_FLAT = _words("as_tensor asarray tensor dsmm hsmm saddmm spmm")
_DENIED_FLAT = _words("from_file _print")  # open a file, write to the screen

# Modules of functions that compute.  Of the second the helpers alone: their public functions take
# functions and give functions back.
_MODULES = frozenset(
    f"torch.{name}"
    for name in _words(
        "_C._nn _C._linalg _C._special _C._fft _C._sparse _C._nested _C._functorch _C._autograd "
        "nn.functional special linalg fft sparse functional nn.grad masked._ops nested "
        "nested._internal.nested_tensor signal.windows.windows _functorch.predispatch "
        "fx.experimental.symbolic_shapes"
    )
)
_MODULES_OF_HELPERS = frozenset(
    f"torch.{name}"
    for name in _words(
        "_functorch.eager_transforms _functorch.vmap amp.autocast_mode autograd.grad_mode "
        "autograd.forward_ad"
    )
)
_SETTER = lazy_text(r"torch(?:\._C)?\._?set_(\w+)")
_QUESTION = lazy_text(r"torch\._C\._(?:is|are)_\w+|torch\.are_\w+")
"""Public ones of the first kind are partly deprecated: to ask them would warn the program."""
# Helpers that modules of functions import, or that put values together.
_DENIED_HELPERS = _words("_add_docstr merge_dicts")
_DENIED = {
    "torch.nn.functional.handle_torch_function": "calls a function that it is given",
    "torch.nn.functional.boolean_dispatch": "gives a function back",
    "torch.nn.functional.has_torch_function": "looks attributes up on any object",
    "torch._C._functorch.peek_interpreter_stack": "gives an interpreter of functorch back",
}
# What Dynamo writes for context managers, transforms and assertions without an entry of its table.
SINGLE = frozenset(
    f"torch.{name}"
    for name in _words(
        "_C._set_grad_enabled set_grad_enabled is_grad_enabled _C._set_fwd_grad_enabled "
        "autograd.grad _assert _C._log_api_usage_once nn.attention._sdpa_kernel "
        "nn.attention._backend_from_string "
        "_C._autograd._unsafe_set_version_counter _C._autograd._get_data_attr "
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
        "amp.autocast_mode._enter_autocast amp.autocast_mode._exit_autocast "
        "autograd.grad_mode._enter_inference_mode autograd.grad_mode._exit_inference_mode "
        "autograd.forward_ad._set_fwd_grad_enabled"
    )
)

# What Dynamo's variables define where they write it into a graph: `x.data = y` ends with it.
_LOCAL = lazy_text(r"torch\._dynamo\.variables(?:\.\w+)+\.<locals>\._lower_version_count_by_1")
_METHOD = "torch.Tensor."
"""Before the name of a method that Dynamo calls as a function."""

# Higher-order operators that do not run a graph of the store, but something from elsewhere.
DENIED_HIGHER_ORDER = {
    "call_torchbind": "calls a method of an object by its name",
    "aoti_call_delegate": "runs a compiled library",
    "executorch_call_delegate": "runs a compiled library",
    "inductor_compiled_code": "runs code that the process keeps by a number",
    "invoke_leaf_function": "runs code that the process keeps by a number",
    "inline_asm_elementwise": "runs machine code out of a text",
    "flat_apply": "calls a function out of a description of it",
    "trace_wrapped": "calls a function that it is given",
    "custom_function_call": "calls a class that it is given",
}

_OBJECTS = _words(
    "torch.amp.autocast_mode._enter_autocast torch.autograd.grad_mode._enter_inference_mode "
    "torch.nn.attention._backend_from_string"
)
_TAKING_OBJECTS = _words(
    "torch.amp.autocast_mode._exit_autocast torch.autograd.grad_mode._exit_inference_mode "
    "torch.nn.attention._sdpa_kernel"
)
"""The two ends of regions: what one gives back is an object, which the other takes."""


def takes_objects(name: str) -> bool:
    """Return True if a function is the end of a region, which takes what its beginning gave
    back.
    """
    return name in _TAKING_OBJECTS


def result(name: str, function: Target, args: Iterable[ValueKind]) -> ValueKind:
    """Return the kind of a function's result; Python's own operators have another rule.

    A class makes an object, as `set_grad_enabled` does, except for the classes of tensors.

    Some functions may return an argument: those of symbolic numbers, those of torch.func that wrap
    and unwrap tensors, and those named like a method of text (`torch.split` calls that method of
    any argument). A function that is written in Python may return its arguments in a tuple, but
    gets no text.
    """
    args = list(args)
    if name in _OBJECTS or (isinstance(function, type) and not is_class(name)):
        return value_kinds.of("opaque")
    attribute = name.rpartition(".")[2]
    handed_on = attribute.startswith("sym_") or hasattr(str, attribute)
    if handed_on or name.startswith("torch._functorch."):
        return value_kinds.union([value_kinds.RESULT, *args])
    if isinstance(function, FunctionType):
        held = value_kinds.union(args).everything - {"str", *value_kinds.NO_DATA}
        return value_kinds.RESULT | ValueKind(frozenset(), held)
    return value_kinds.RESULT


def is_python(name: str) -> bool:
    """Return True if a function is Python's own: it may give back one of its arguments."""
    return name.partition(".")[0] in ("_operator", "operator", "builtins", "math")


def is_class(name: str) -> bool:
    """Return True if a name stands for a class of tensors or sizes, which is called as a
    constructor.
    """
    return name in dispatcher.tensor_classes()


def method_of(name: str) -> str:
    """Return the method of tensors that a function is; '' for any other function."""
    method = name.removeprefix(_METHOD)
    return method if method != name and method in members.tensor_methods() else ""


def resolve(name: str) -> Target | None:
    """Return the function of a qualified name; None where the rule does not admit it."""
    module, _, attribute = name.rpartition(".")
    if module in ("_operator", "operator"):
        return getattr(operator, attribute) if attribute in _operators() else None
    if module == "math":
        return getattr(math, attribute, None) if not attribute.startswith("_") else None
    if module == "builtins":
        return getattr(builtins, attribute) if attribute in _BUILTINS else None
    if is_class(name):
        return dispatcher.tensor_classes()[name]
    if name == distributed.FROM_LOCAL:
        found = distributed.from_local()
        return found if callable(found) else None
    if method := method_of(name):
        found = getattr(torch.Tensor, method)
        return found if callable(found) else None
    if MARK in name:
        return local_function(name) if _LOCAL.fullmatch(name) else None
    if name.startswith(autograd_nodes.PREFIX):
        return autograd_nodes.resolve(name)
    if _is_admitted(name, module, attribute):
        found = _walk(name)
        return found if callable(found) else None
    return None


@cache
def _operators() -> frozenset[str]:
    """Return the names of Python's operators that torch writes into graphs."""
    return rules.graph_operators() | _OPERATORS


def _is_admitted(name: str, module: str, attribute: str) -> bool:
    if module == "torch" and not is_setting(name) and not is_question(name):
        return attribute not in _DENIED_FLAT and (
            _is_operator(attribute)
            or attribute in torch.functional.__all__
            or name in SINGLE
            or bool(re.fullmatch(r"_?sym_\w+|_check\w*", attribute))
        )
    if name in SINGLE or name in dispatcher.reference_names() or is_setting(name):
        return True
    if is_question(name):
        return True
    if attribute in _DENIED_HELPERS:
        return False
    known = rules.in_graph_names().get(name) == "TorchInGraphFunctionVariable"
    computes = module in _MODULES or (module in _MODULES_OF_HELPERS and attribute.startswith("_"))
    return known and name not in _DENIED and computes


@cache
def is_setting(name: str) -> bool:
    """Return True if a function sets a flag of torch whose value is plain data, by its name."""
    found = _SETTER.fullmatch(name)
    if found is None or rules.in_graph_names().get(name) != "TorchInGraphFunctionVariable":
        return False
    getters = (_walk(f"torch._C.{prefix}{found[1]}") for prefix in ("get_", "_get_"))
    return any(map(_gives_data, getters))


@cache
def is_question(name: str) -> bool:
    """Return True if a function, by its name, tells without arguments if a flag of torch is set."""
    known = rules.in_graph_names().get(name) == "TorchInGraphFunctionVariable"
    return known and _QUESTION.fullmatch(name) is not None and _gives_data(_walk(name))


def _gives_data(getter: object) -> bool:
    try:
        value = getter()  # type: ignore[operator]
    except (TypeError, RuntimeError):  # there is none, it is told of what, or not of this build
        return False
    return isinstance(value, (bool, int, float, str, torch.dtype))


def _is_operator(attribute: str) -> bool:
    """Return True if `torch.NAME` is the binding of a registered operator."""
    bound = hasattr(dispatcher.variable_functions(), attribute)
    operators = dispatcher.aten_names()
    return bound and (
        attribute in _FLAT or attribute in operators or attribute.removesuffix("_") in operators
    )


def _walk(name: str) -> object:
    """Follow attributes from `torch`, through modules that torch has already imported."""
    value: object = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
        if value is None:
            return None
    return value
