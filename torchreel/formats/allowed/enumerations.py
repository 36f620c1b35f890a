"""Checks numbers where torch takes a dtype, a layout or a memory format.

Lives here: the places, by the schemas of operators, the parameters of functions, and what autograd
nodes save.  Called by `graphs`.

An operator takes the number of a dtype for the dtype, also as a tensor with one element, and looks
it up in a table without looking at the table's end: `aten.clone(x, memory_format=-1)` makes a
Python object of whatever stands before the table in memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import torch

from torchreel.errors import ForbiddenError
from torchreel.formats.allowed.value_kinds import ValueKind
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.autograd import compiled_autograd

# The numbers that every supported torch has (c10's ScalarType.h, Layout.h, MemoryFormat.h).
_COUNTS = {"ScalarType": 44, "Layout": 8, "MemoryFormat": 4}
_PARAMETERS = ("dtype", "layout", "memory_format")
_OF_OPTIONS = {1: "MemoryFormat", 3: "ScalarType", 4: "Layout"}
"""The places of these in the tuple of six that is a `TensorOptions` of an autograd node."""
_BEFORE_SAVED = 2
"""Arguments of the backward of a node before what it saved: gradients, and which are needed."""
_HANDING_ON = frozenset({
    "run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state", "with_effects",
    "auto_functionalized", "auto_functionalized_v2",
})  # fmt: skip
"""Higher-order operators that call the operator they are given with all that stands after it."""
_Place = int | str


def check_operator(
    schemas: Sequence[torch.FunctionSchema],
    literals: Mapping[_Place, Json],
    given: Mapping[_Place, ValueKind],
) -> None:
    """Refuse a number of an operator that may stand for nothing; of a packet, for any overload."""
    for place, count in _places(schemas):
        if place in given and not _is_known(literals.get(place), count):
            _check_kind(schemas[0].name, place, given[place])


def check_handed_on(
    name: str,
    schema: torch.FunctionSchema,
    literals: Mapping[_Place, Json],
    given: Mapping[_Place, ValueKind],
) -> None:
    """Check the call of an operator that a higher-order operator is given.

    Of those that do not simply hand on what they are given it is not known which argument goes
    where, so the operator has to be one that takes no number for a dtype.
    """
    if name in _HANDING_ON:
        check_operator([schema], literals, given)
    elif any(_places([schema])):
        raise ForbiddenError(f"{name!r:.60} is given {schema.name!r:.60}, which takes a dtype")


def check_function(
    name: str,
    function: object,
    literals: Mapping[_Place, Json],
    given: Mapping[_Place, ValueKind],
) -> None:
    """Refuse any number where a function or a method takes a dtype, a layout or a format.

    Places among `*args` are those of the operator with the function's name.
    """
    parameters = _parameters(function)
    names = [parameter.name for parameter in parameters]
    for place, kind in given.items():
        named = names[place] if isinstance(place, int) and place < len(names) else str(place)
        if named.endswith(_PARAMETERS):
            _check_kind(name, named, kind)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name.rpartition('.')[2]}")
        positions: dict[_Place, ValueKind] = {
            place: kind for place, kind in given.items() if isinstance(place, int)
        }
        if schemas:
            check_operator(schemas, literals, positions)


def check_backward(name: str, args: Sequence[Json]) -> None:
    """Refuse a number that an autograd node may have saved for a dtype or a layout, and did not."""
    _check_options(name, args)
    saved = compiled_autograd.saved_types(name)
    if saved is None:
        raise ForbiddenError(f"it is not known what {name!r:.60} saves")
    for place, argument in enumerate(args[_BEFORE_SAVED:]):
        word = next((word for word in _COUNTS if place < len(saved) and word in saved[place]), "")
        for number in _items(argument) if word else ():
            if number is not None and not _is_known(number, _COUNTS[word]):
                raise _forbidden(name, place + _BEFORE_SAVED)


def _check_options(name: str, tree: Json) -> None:
    """Check each tuple of six in the arguments of a node as a `TensorOptions`."""
    items = _items(tree)
    if isinstance(tree, Mapping) and "t" in tree and len(items) == len(_OF_OPTIONS) * 2:
        for place, word in _OF_OPTIONS.items():
            if isinstance(items[place], int) and not _is_known(items[place], _COUNTS[word]):
                raise _forbidden(name, place)
            if isinstance(items[place], Mapping) and "n" in items[place]:  # type: ignore[operator]
                raise _forbidden(name, place)
    for held in items:
        if held is not tree:
            _check_options(name, held)


def _items(tree: Json) -> Sequence[Json]:
    """Return the items of a list or tuple, or the value itself."""
    inner = tree.get("t", tree) if isinstance(tree, Mapping) else tree
    return inner if isinstance(inner, (list, tuple)) else [inner]


def _is_known(number: Json, count: int) -> bool:
    return isinstance(number, int) and 0 <= number < count


def _check_kind(name: str, place: _Place, kind: ValueKind) -> None:
    if kind.types & {"int", "float", "complex", "tensor"}:
        raise _forbidden(name, place)


def _forbidden(name: str, place: _Place) -> ForbiddenError:
    which = f"argument {place}" if isinstance(place, int) else repr(f"{place:.60}")
    return ForbiddenError(
        f"{name!r:.60} takes a dtype, a layout or a memory format for {which}, found a number that "
        "may be none"
    )


def _places(schemas: Iterable[torch.FunctionSchema]) -> Iterator[tuple[_Place, int]]:
    """Yield the places and keywords of enumerations, each with how many values that has."""
    for schema in schemas:
        for place, argument in enumerate(schema.arguments):
            if word := _enumeration(argument):
                yield argument.name, _COUNTS[word]
                if not argument.kwarg_only:
                    yield place, _COUNTS[word]


def _enumeration(argument: torch.Argument) -> str:
    """Return the enumeration that an argument is of; TorchScript's own operators say int."""
    real = str(argument.real_type)
    said = next((word for word in _COUNTS if word in real), "")
    is_number = real.removeprefix("Optional[").rstrip("]") == "int"
    return said or ("ScalarType" if is_number and argument.name.endswith("dtype") else "")


@cache
def _parameters(function: object) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C: its parser takes no number there
        return ()
