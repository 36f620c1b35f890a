"""The fields of a description: their names, and reading one.

Lives here: what those who make a value of a description share (`fakes`, `synthetic`), fields that
are no such thing refused.  Not here: making one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import sympy
import torch
from torch.fx.immutable_collections import immutable_list

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

INFERENCE = "inference"
"""The flag of a tensor that was made in inference mode."""
SEQUENCES: dict[type, str] = {
    list: "list", tuple: "tuple", torch.Size: "size", immutable_list: "immutable_list",
}  # fmt: skip
"""The kind (`k`) of a description of several values, by their container."""
SYMBOLIC: dict[str, tuple[type, type]] = {
    "int": (torch.SymInt, int),
    "float": (torch.SymFloat, float),
    "bool": (torch.SymBool, bool),
}
"""The classes of a symbolic scalar and of its hint, by the kind of its description."""


def no_leaf(kind: str, data: Json) -> object:
    """Refuse a tagged value in a place where only plain ones stand.  Raises UnsupportedError."""
    raise UnsupportedError(f"a plain value holds no {kind!r}, found {data!r:.80}")


def list_of(data: Json) -> list[Json]:
    """Return a list that a description holds.  Raises UnsupportedError for anything else."""
    if not isinstance(data, list):
        raise UnsupportedError(f"expected a list, found {data!r:.80}")
    return data


def options_of(description: Mapping[str, Json]) -> dict[str, object]:
    """Return dtype and device, as keywords of a factory function of torch."""
    return {
        "dtype": node_arguments.torch_constant("dtype", description.get("dtype")),
        "device": node_arguments._device(description.get("device")),
    }


def evaluate_hint(
    expr: sympy.Basic, python: type, hints: Mapping[str, Json]
) -> int | float | bool | None:
    """Return the value of an expression under the recorded hints; None where a symbol has none."""
    known: dict[sympy.Basic, object] = {}
    for symbol in expr.free_symbols:
        hint = hints.get(str(symbol))
        if not isinstance(hint, (int, float)):
            return None
        known[symbol] = sympy.Integer(hint) if type(hint) is int else sympy.Float(hint)
    value = _reevaluate(expr.xreplace(known))
    try:
        return python(value)  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        return None


def _reevaluate(expr: sympy.Basic) -> sympy.Basic:
    """Rebuild a closed expression bottom up: `xreplace` leaves unevaluated nodes unevaluated."""
    if expr.is_Atom or not expr.args:  # the size of a ragged dimension has numbers as arguments
        return expr
    args = [_reevaluate(arg) for arg in expr.args]
    if expr.func.__name__ in _GROWING and _bits(*args) > _MOST_BITS:
        raise UnsupportedError(f"{expr.func.__name__} of such numbers is not computed")
    found = expr.func(*args)
    if _size(found) > _MOST_BITS:
        raise UnsupportedError(f"{expr.func.__name__} of such numbers is not computed")
    return found


_GROWING = ("Pow", "PowByNatural", "LShift")
_MOST_BITS = 1 << 16
"""Bits of a size: more than any has."""


def _bits(base: sympy.Basic, exponent: sympy.Basic) -> int:
    """Return how many bits a power, or a shifted number, has about."""
    if not isinstance(exponent, sympy.Number) or not isinstance(base, sympy.Rational):
        return 0
    return max(1, _size(base)) * min(abs(int(exponent)), _MOST_BITS + 1)


def _size(number: sympy.Basic) -> int:
    """Return how many bits a whole number or a fraction has; 0 for anything else."""
    if not isinstance(number, sympy.Rational):
        return 0
    return max(int(number.p).bit_length(), int(number.q).bit_length())


def inner_of(description: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the inner tensors of a subclass, by attribute.

    Raises `UnsupportedError` for a description of an older version, without strides.
    """
    found = description.get("inner")
    if not isinstance(found, Mapping) or "stride" not in description:
        raise UnsupportedError(
            f"an input of class {description.get('type')} was recorded by an older torchreel, "
            "which did not note its strides: record it again"
        )
    return found


def each_of(
    inner: Mapping[str, Json], make: Callable[[Json], object], known: dict[int, object]
) -> dict[str, object]:
    """Return the inner values of a subclass, made by `make`; a shared tensor is made once."""
    found: dict[str, object] = {}
    for name, held in inner.items():
        number = as_object(held).get("object")
        again = known.get(number) if isinstance(number, int) else None
        found[name] = make(held) if again is None else again
        if isinstance(number, int):
            known[number] = found[name]
    return found


def itemsize_of(description: Mapping[str, Json]) -> int:
    """Return the bytes of one element."""
    dtype = node_arguments.torch_constant("dtype", description.get("dtype"))
    assert isinstance(dtype, torch.dtype)
    return dtype.itemsize


def inference_mode_of(description: Mapping[str, Json]) -> AbstractContextManager[object]:
    """Enter or leave inference mode, so that a new tensor is an inference tensor as recorded.

    The mode of a compile does not determine which of its inputs are such tensors.
    """
    wanted = INFERENCE in list_of(description.get("flags") or [])
    if wanted is torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(wanted)
