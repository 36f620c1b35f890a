"""Values of torch's inside events, as data: expressions, Sources, operators, dtypes.

Lives here: one speller per type.  Not here: anything that is read back into an object, except what
`symbols` and `sources` spell (an event's other values are for people).  Called by the thread that
writes the event log: the values are immutable, and nothing of them is changed.
"""

from __future__ import annotations

import enum
from functools import singledispatch
from typing import Any

import sympy
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import sources, symbols
from torchreel.formats.deferred_values import DeferredValue
from torchreel.formats.shape_env import calls
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import fx
from torchreel.torch_compat.dynamo.contexts import Source
from torchreel.torch_compat.shapes import ValueRanges


@singledispatch
def spell_torch(value: object) -> Json:
    """Return a value as data; text for a type that has no speller."""
    if isinstance(value, Source):
        return sources.encode_source(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return fx.without_addresses(str(value))


@spell_torch.register
def _(value: DeferredValue) -> Json:
    return calls.spell(value)


@spell_torch.register
def _(value: sympy.Basic) -> Json:
    try:
        return symbols.encode_expr(value)
    except UnsupportedError:
        return str(value)


@spell_torch.register(ValueRanges)
def _(value: Any) -> Json:
    return [spell_torch(value.lower), spell_torch(value.upper)]


@spell_torch.register(torch.dtype)
@spell_torch.register(torch.layout)
def _(value: object) -> Json:
    return str(value).removeprefix("torch.")


@spell_torch.register
def _(value: enum.Enum) -> Json:
    return value.name
