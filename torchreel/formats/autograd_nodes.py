"""The backward of torch's own autograd nodes as functions: what compiled autograd puts into graphs.

Lives here: from the name of a node (`PowBackward0`) to the function that computes its backward.
Not here: the prologue of what AOTAutograd made (`backward_prologues`).  Called by
`allowed.functions` and `targets`.

torch binds such a function when compiled autograd captures a node of that class for the first time
in a process.  So a node is made and captured here: an operator of the name that the node is called
after gets small tensors.  No kernel runs, because everything below autograd is answered with
tensors of ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from torchreel.patterns import lazy_text
from torchreel.torch_compat.autograd import compiled_autograd
from torchreel.torch_compat.operators import dispatcher

PREFIX = "torch._dynamo.compiled_autograd.ops."
_OWN = frozenset({"validate_outputs", "AccumulateGrad"})
"""Functions that torch binds in every capture; they are no nodes of operators."""
_NODE = lazy_text(
    r"(?:torch::autograd::)?(\w+Backward)(?:s|\d+(?:_copy|List|Tensor|Scalar|ScalarList)?)"
)
_OF_A_PROGRAM = "CppNode"
"""Name of the nodes of a `torch::autograd::Function`, which are code of an extension."""


def name_of(function: object) -> str:
    """Return the qualified name of the backward of a node of torch's own; "" for anything else."""
    name = compiled_autograd.autograd_node_name(function)
    return f"{PREFIX}{name}" if name and _is_known(name) else ""


def resolve(name: str) -> Callable[..., object] | None:
    """Return the function of a qualified name; None where torch has no such node, or can't capture
    it.
    """
    node = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not _is_known(node):
        return None
    if (found := compiled_autograd.autograd_node_function(node)) is not None:
        return found
    for operator in _operators_of(node):
        _bind(operator)
        if (found := compiled_autograd.autograd_node_function(node)) is not None:
            return found
    return None


def _is_known(node: str) -> bool:
    is_node = _NODE.fullmatch(node) is not None and not node.startswith(_OF_A_PROGRAM)
    return node in _OWN or is_node


def _operators_of(node: str) -> Iterator[Any]:
    """Yield the operators whose autograd node may have that name."""
    if node in _OWN:
        yield torch.ops.aten.clone.default
        return
    match = _NODE.fullmatch(node)
    assert match is not None
    for packet, overload in _operators().get(match[1], ()):
        yield getattr(getattr(torch.ops.aten, packet), overload)


@cache
def _operators() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the overloads of torch's operators by the name of their autograd node, without its
    number.
    """
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for packet, overload in dispatcher.aten_overloads():
        # As in torchgen's `_create_op_prefix`; `view_copy` has the node of `view`.
        for name in dict.fromkeys((packet, packet.removesuffix("_copy"))):
            camel = "".join(part.title() for part in name.split("_"))
            node = f"{camel}Backward".replace("ForwardBackward", "Backward")
            found[node].append((packet, overload))
    return found


def _bind(operator: Any) -> None:
    """Let compiled autograd see each node that an operator makes."""
    schema = operator._schema
    if any(argument.is_out for argument in schema.arguments):
        return  # it has no derivative
    for differentiable in _choices(schema):
        # Of an operator without a derivative for these arguments there is no node.
        with suppress(RuntimeError, TypeError, ValueError, IndexError):
            compiled_autograd.capture_backward(operator, *_arguments(schema, differentiable))


def _choices(schema: torch.FunctionSchema) -> Iterator[frozenset[str]]:
    """Yield the choices of tensor arguments to get a gradient: all of them, then each alone."""
    tensors = [found.name for found in schema.arguments if "Tensor" in str(found.type)]
    yield frozenset(tensors)
    yield from (frozenset({name}) for name in tensors)


def _arguments(
    schema: torch.FunctionSchema, differentiable: frozenset[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments of the types of a schema; their values mean nothing, as no kernel runs."""
    args, kwargs = [], {}
    for argument in schema.arguments:
        value = _value(str(argument.type), argument, argument.name in differentiable)
        if not argument.kwarg_only:
            args.append(value)
        elif not argument.has_default_value():
            kwargs[argument.name] = value
    return args, kwargs


def _value(type_name: str, argument: Any, is_differentiable: bool) -> object:
    if type_name.startswith("Optional[") and "Tensor" not in type_name:
        return None
    inner = type_name.removeprefix("Optional[").rstrip("]")
    if type_name.startswith("List["):
        item = inner.removeprefix("List[")
        return [_value(item.rstrip("]"), argument, is_differentiable)] * (argument.N or 2)
    if inner == "Tensor" or type_name.startswith("List[Optional[Tensor"):
        return compiled_autograd.ones(requires_grad=is_differentiable)
    return _NUMBERS.get(inner)


_NUMBERS: Mapping[str, object] = {
    "int": 1, "SymInt": 1, "float": 1.0, "number": 2, "Scalar": 2, "bool": True, "str": "none",
    "Device": torch.device("cpu"),
}  # fmt: skip
