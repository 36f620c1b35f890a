"""Events as they are read from a store: instances of their types.

Lives here: the type of each kind, and what a field holds that a store of another version does not
have.  Not here: which events there are (`store.queries`), what they mean (`analysis`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from torchreel.events import (  # noqa: F401 (each declares types)
    aot,
    backends,
    collectives,
    compiled_autograd,
    custom,
    export,
    fake_tensors,
    frames,
    guards,
    inductor,
    nondeterminism,
    output_graph,
    proxies,
    scalars,
    shape_env,
    subgraphs,
    trace,
)
from torchreel.events.event import EventType

_Type = TypeVar("_Type", bound=EventType)


@cache
def event_types() -> dict[str, type[EventType]]:
    """Return every type of event, by its kind."""
    return {found.kind: found for found in _below(EventType) if hasattr(found, "kind")}


def read_event(kind: str, data: object) -> EventType | None:
    """Return an event of a store as an instance of its type; None for a kind without a type.

    Raises ValueError for a field that holds what it cannot.
    """
    found = event_types().get(kind)
    return None if found is None else read_as(found, data)


def read_as(wanted: type[_Type], data: object) -> _Type:
    """Return the fields of an event as an instance of the type `wanted`.

    A field that is missing is empty: the version that wrote the store may have had none. One that
    the type does not have is left out. Raises ValueError for a field that holds what it cannot.
    """
    given = data if isinstance(data, Mapping) else {}
    try:
        return msgspec.convert({**_empty(wanted), **given}, wanted)
    except UnicodeEncodeError as error:  # msgspec quotes it, and cannot quote half a surrogate pair
        raise ValueError(f"an event {wanted.kind} has a text that is not valid UTF-8") from error
    except msgspec.ValidationError as error:
        raise ValueError(f"an event {wanted.kind} is malformed: {error}") from error


def _below(base: type[EventType]) -> Iterator[type[EventType]]:
    for found in base.__subclasses__():
        yield from (found, *_below(found))


@cache
def _empty(wanted: type[EventType]) -> dict[str, Any]:
    """Return what each field holds where nothing is known."""
    described = inspect.type_info(wanted)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: _nothing(field.type) for field in described.fields}


_NOTHING: dict[type[inspect.Type], Any] = {
    inspect.StrType: "", inspect.BoolType: False, inspect.IntType: 0, inspect.FloatType: 0.0,
    inspect.ListType: (), inspect.VarTupleType: (), inspect.DictType: {},
}  # fmt: skip


def _nothing(kind: inspect.Type) -> Any:
    return _NOTHING.get(type(kind))
