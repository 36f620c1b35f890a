"""Methods and attributes: allowed by the type of the object that they are looked up on.

Lives here: the two closed tables, computed from torch, and the checks by kind.  Called by `graphs`,
and by `formats.descriptors` for the paths at which unbacked symbols are bound.

A value may have one of several types.  A name is allowed on it if each of these types either has
the name in its table or has no such member at all: then the lookup fails, and nothing happens.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from inspect import getattr_static

import torch

from torchreel.errors import ForbiddenError
from torchreel.formats.allowed import value_kinds
from torchreel.formats.allowed.value_kinds import NO_DATA, NUMBERS, TYPES, ValueKind
from torchreel.torch_compat import distributed
from torchreel.torch_compat.operators import dispatcher


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operators of torch that are methods too, and that take a callable or hand out memory.
_DENIED_METHODS = _words(
    "apply_ map_ map2_ data_ptr const_data_ptr share_memory_ register_hook storage untyped_storage "
    "register_post_accumulate_grad_hook module_load"
)
# Methods without an operator of that name, which do what operators do.
_CONVERSIONS = _words(
    "bfloat16 bool byte cdouble cfloat char cpu cuda double float half int ipu long mtia short xpu "
    "type dim_order element_size ndimension nelement new new_tensor unique lu to_sparse_coo"
)
_ARITHMETIC = frozenset(
    f"__{name}__"
    for name in _words(
        "add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv rfloordiv "
        "ifloordiv mod rmod pow rpow ipow matmul rmatmul and rand iand or ror ior xor rxor ixor "
        "lshift rlshift ilshift rshift rrshift irshift eq ne lt le gt ge neg pos abs invert "
        "bool int float index"
    )
)
_ITEMS = frozenset(f"__{name}__" for name in _words("getitem setitem len contains"))
_OF_NUMBERS = _ARITHMETIC | _words("as_integer_ratio bit_length conjugate is_integer")
_OF_SEQUENCES = _ARITHMETIC | _ITEMS | _words("count index numel sort")
_OF_TEXT = _ARITHMETIC | _ITEMS | _words("count index split")
_OF_DTENSORS = frozenset(distributed.METHODS)  # a tensor may be one; others have no such method
_PLAIN_DATA = _words(  # of dtypes and devices; each is a property or a method without arguments
    "index is_complex is_floating_point is_signed itemsize type"
)


@cache
def tensor_methods() -> frozenset[str]:
    """Return the methods of tensors that a graph may call: those that are operators, and
    conversions.
    """
    operators = dispatcher.aten_names()
    found = {
        name
        for name in dir(torch.Tensor)
        if not name.startswith("_")
        and callable(getattr_static(torch.Tensor, name))
        and (name in operators or name.removesuffix("_") in operators or name in _CONVERSIONS)
    }
    return (frozenset(found) | _ARITHMETIC | _ITEMS | _OF_DTENSORS) - _DENIED_METHODS


@cache
def tensor_attributes() -> Mapping[str, ValueKind]:
    """Return the attributes of tensors that a graph may read, with the kind of their values.

    Properties whose values are data; a tensor's gradient and views of it are tensors or None.
    """
    sample = torch.ones(1, 1, dtype=torch.complex64)
    found = {}
    for name in dir(torch.Tensor):
        plain = isinstance(
            getattr_static(torch.Tensor, name), (property, types.GetSetDescriptorType)
        )
        if plain and not name.startswith("_") and name not in _DENIED_ATTRIBUTES:
            kind = value_kinds.of_value(getattr(sample, name))
            found[name] = (
                kind | value_kinds.of("tensor") if kind == value_kinds.of("NoneType") else kind
            )
    return found


NAMING = _words("type")
"""Methods that may give back a text: the name of a type."""

# `grad_fn` is an object of autograd, whose attributes lead anywhere; `name` is that of a Variable,
# and raises; `volatile` warns and is nothing any more.
_DENIED_ATTRIBUTES = _words("grad_fn name volatile")


@cache
def _methods(type_name: str) -> frozenset[str]:
    """Return the methods that values of a type have for a graph."""
    if type_name == "tensor":
        return tensor_methods()
    if type_name in NUMBERS:
        return _OF_NUMBERS
    if type_name in ("tuple", "list", "size", "range"):
        return _OF_SEQUENCES
    if type_name == "str":
        return _OF_TEXT
    if type_name == "dict":
        return _ITEMS
    return _ARITHMETIC | (_PLAIN_DATA if type_name in ("dtype", "device") else frozenset())


def _has(type_name: str, member: str) -> bool:
    if type_name == "tensor" and member in _OF_DTENSORS:
        return True
    return any(hasattr(cls, member) for cls in TYPES[type_name])


def check_method(name: str, kind: ValueKind = value_kinds.TENSOR) -> str:
    """Return the name of a method that may be called on a value of that kind.

    Raises `ForbiddenError` for one that is not, or that no value of that kind has.
    """
    _check_data(f"the method {name!r:.60} is called on", kind)
    allowed = [found for found in kind.types if name in _methods(found)]
    wrong = [found for found in kind.types if found not in allowed and _has(found, name)]
    if wrong or not any(_has(found, name) for found in allowed) or kind.types == {"str"}:
        owner = value_kinds.of(*wrong) if wrong else kind
        raise ForbiddenError(f"{name!r:.60} is no method that a graph may call on {owner}")
    return name


def check_attribute(name: str, kind: ValueKind = value_kinds.TENSOR) -> ValueKind:
    """Return the kind of an attribute that may be read of a value of that kind: one of tensors.

    Raises `ForbiddenError` for any other, and for a value that is no tensor.
    """
    _check_data(f"the attribute {name!r:.60} is read of", kind)
    found = tensor_attributes().get(name)
    others = [held for held in kind.types - {"tensor"} if _has(held, name)]
    if found is None or "tensor" not in kind.types:
        raise ForbiddenError(f"{name!r:.60} is no attribute that a graph may read of {kind}")
    return value_kinds.union([found, *(_of_other(held, name) for held in others)])


def _of_other(type_name: str, attribute: str) -> ValueKind:
    """Return the kind of an attribute of a number, a dtype or a device that tensors have as well.

    Raises `ForbiddenError` for any other type.
    """
    if type_name in NUMBERS or type_name in ("dtype", "device", "generator"):
        return value_kinds.ValueKind(NUMBERS | {"device", "str"})
    raise ForbiddenError(f"{attribute!r:.60} is no attribute that a graph may read of {type_name}")


def _check_data(what: str, kind: ValueKind) -> None:
    if kind.types & NO_DATA or not kind.types:
        raise ForbiddenError(f"{what} {value_kinds.of(*(kind.types & NO_DATA))}")
