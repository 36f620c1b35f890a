"""Checks numbers where torch takes a dtype, a layout or a memory format.

Lives here: the places, by the schemas of operators and the parameters of functions.  Called by
`graphs`.

An operator takes the number of a dtype for the dtype, and looks it up in a table without looking
at the table's end: `aten.clone(x, memory_format=-1)` makes a Python object of whatever stands
before the table in memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import torch

from torchreel.errors import ForbiddenError
from torchreel.formats.allowed.value_kinds import ValueKind
from torchreel.store.documents.jsontypes import Json

# The numbers that every supported torch has (c10's ScalarType.h, Layout.h, MemoryFormat.h).
_COUNTS = {"ScalarType": 44, "Layout": 8, "MemoryFormat": 4}
_PARAMETERS = ("dtype", "layout", "memory_format")  # of functions, which take no number there
_Place = int | str


def check_operator(
    schemas: Sequence[torch.FunctionSchema],
    literals: Mapping[_Place, Json],
    given: Mapping[_Place, ValueKind],
) -> None:
    """Refuse a number of an operator that may stand for nothing; of a packet, for any overload."""
    for place, count in _places(schemas):
        literal = literals.get(place)
        is_known = isinstance(literal, int) and 0 <= literal < count
        if place in given and _may_be_number(given[place]) and not is_known:
            raise _forbidden(schemas[0].name, place)


def check_function(
    name: str, function: object, args: Sequence[ValueKind], named: Mapping[str, ValueKind]
) -> None:
    """Refuse any number where a function or a method takes a dtype, a layout or a format."""
    placed = zip(_names(function), args, strict=False)
    for parameter, kind in [*placed, *named.items()]:
        if parameter.endswith(_PARAMETERS) and _may_be_number(kind):
            raise _forbidden(name, parameter)


def _forbidden(name: str, place: _Place) -> ForbiddenError:
    which = f"argument {place}" if isinstance(place, int) else repr(f"{place:.60}")
    return ForbiddenError(
        f"{name!r:.60} takes a dtype, a layout or a memory format for {which}, found a number that "
        "may be none"
    )


def _may_be_number(kind: ValueKind) -> bool:
    return bool(kind.types & {"int", "float"})


def _places(schemas: Iterable[torch.FunctionSchema]) -> Iterator[tuple[_Place, int]]:
    """Yield the places and keywords of enumerations, each with how many values that has."""
    for schema in schemas:
        for place, argument in enumerate(schema.arguments):
            for word, count in _COUNTS.items():
                if word in str(argument.real_type):
                    yield argument.name, count
                    if not argument.kwarg_only:
                        yield place, count


@cache
def _names(function: object) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C: its parser takes no number there
        return ()
