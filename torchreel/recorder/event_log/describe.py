"""Cheap, immutable descriptions of live values: what an event may hold instead of them.

Lives here: sizes, tensors and results of operators as tuples of plain data.  Not here: the portable
form of a value that a replay is fed with (`torchreel.formats.tensors`).  Called by probes
thousands of times per compile: what is spelled once is looked up from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import sympy
import torch

from torchreel.formats.event_values import spell_torch
from torchreel.torch_compat.tensors.fake_tensors import FakeTensor

Described = object
"""A nest of tuples, text, numbers and None."""

_MOST_SPELLED = 20_000
"""Expressions whose text is kept, and results; a process of many compiles begins anew."""
_texts: dict[object, object] = {}
_results: dict[Described, Described] = {}


def _text(value: Any) -> object:
    """Return the spelling of an expression, a dtype or a device."""
    found = _texts.get(value)
    if found is None:
        if len(_texts) > _MOST_SPELLED:
            _texts.clear()
        found = _texts[value] = spell_torch(value)
    return found


def size(value: Any) -> object:
    """Return an int as it is, a symbolic scalar as its expression, not simplified."""
    if type(value) is int:
        return value
    expr = value if isinstance(value, sympy.Basic) else getattr(_node(value), "_expr", None)
    if isinstance(expr, sympy.Basic):
        return _text(expr)
    return type(value).__name__


def _node(value: Any) -> Any:
    return getattr(value, "node", None)


def sizes(values: Any) -> tuple[object, ...]:
    """Return sizes or strides."""
    return tuple([value if type(value) is int else size(value) for value in values])


def _unseen(function: Callable[[Any], Described]) -> Callable[[Any], Described]:
    """Let no torch-function mode see what the description reads: tracers count what they see."""

    @wraps(function)
    def guarded(value: Any) -> Described:
        if torch._C._len_torch_function_stack() == 0:
            return function(value)
        with torch._C.DisableTorchFunction():
            return function(value)

    return guarded


def _shared(description: Described) -> Described:
    """Return the same one for the same tensors: few differ, and Python's collector has seen it
    already.

    There are no numbers in it but whole ones, so that what is equal is the same.
    """
    if len(_results) > _MOST_SPELLED:
        _results.clear()
    return _results.setdefault(description, description)


def _tensor(value: torch.Tensor) -> Described:
    strided = value.layout is torch.strided
    strides = sizes(value.stride()) if strided else _text(value.layout)
    return _shared((_text(value.dtype), sizes(value.shape), strides, _text(value.device)))


tensor = _unseen(_tensor)
"""(dtype, sizes, strides or layout, device) of a tensor that answers without dispatching."""


_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
"""Tensors that know their sizes; any other subclass may run code of its own to tell them."""


def _result(value: Any) -> Described:
    if type(value) in _PLAIN:
        return _tensor(value)
    if isinstance(value, torch.Tensor):
        return (type(value).__name__,)
    if isinstance(value, (list, tuple)):
        return _shared(tuple([_result(item) for item in value]))
    if value is None or value is NotImplemented:
        return None if value is None else "NotImplemented"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size(value)
    return type(value).__name__


result = _unseen(_result)
"""Describe what an operator returned: tensors, and symbolic scalars as expressions, no values."""


def _outline(value: Any) -> Described:
    if type(value) is FakeTensor and value._has_symbolic_sizes_strides:
        return _shared((_text(value.dtype), sizes(value.shape), None, _text(value.device)))
    if isinstance(value, (list, tuple)):
        return _shared(tuple([_outline(item) for item in value]))
    return _result(value)


outline = _unseen(_outline)
"""As `result`, but without symbolic strides: most of them are products that exist once, and to tell
that they are known already takes longer than all the rest."""

_op_names: dict[str, str] = {}


def op_name(op: Any) -> str:
    """Return an operator as a graph spells it: `aten.add.Tensor`."""
    qualified = getattr(op, "_name", None)
    if not isinstance(qualified, str):
        return getattr(op, "__name__", None) or str(op)
    found = _op_names.get(qualified)
    if found is None:
        found = _op_names[qualified] = str(op)
    return found
