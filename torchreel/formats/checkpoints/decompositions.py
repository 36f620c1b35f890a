"""Tables of decompositions as data: what differs from those that torch has by default.

Lives here: the two tables with which torch decomposes an exported program, by the operators' names.
Not here: the program (`exported_programs`).  A function of the program's own is code: it is named
here, and loaded by whoever is trusted with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats import targets
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat.export import exports

Table = dict[Any, Callable[..., Any]]
OWN = "decomposition."
"""Prefix of the names under which functions of the program are kept."""


class Tables(NamedTuple):
    """The decomposition tables: of composite operators, and of those that AOTAutograd traces."""

    composite: Table
    python: Table


def encode(tables: Tables) -> Json:
    """Return two tables as the differences from the default ones."""
    usual = Tables(*exports.default_decompositions())
    return {
        "composite": _difference(tables.composite, usual.composite),
        "python": _difference(tables.python, usual.python),
    }


def own(tables: Tables) -> dict[str, object]:
    """Return the functions of the program's own, by the name under which they are kept."""
    return {
        f"{OWN}{targets.encode_target(operator)}": function
        for table in tables
        for operator, function in table.items()
        if _known(operator, function) is None
    }


def _difference(table: Table, usual: Table) -> Json:
    less: list[Json] = [*sorted(targets.encode_target(op) for op in usual if op not in table)]
    more: dict[str, Json] = {
        targets.encode_target(operator): _known(operator, function)
        for operator, function in table.items()
        if operator not in usual or not _alike(function, usual[operator])
    }
    return {"less": less, "more": dict(sorted(more.items()))}


def _known(operator: Any, function: Any) -> str | None:
    """Return torch's own name of a decomposition; None for a function of the program's own."""
    for name, find in exports.decompositions_of(operator).items():
        if _alike(function, find):
            return name
    return None


def _alike(one: Any, other: Any) -> bool:
    """Return True if two functions do the same, as torch makes some of them anew each time."""
    if one is other:
        return True
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        return _alike(one.func, other.func) and one.keywords == other.keywords
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return one.__code__ is other.__code__ and not one.__closure__
    return False


def decode(data: Json, own: Mapping[str, Callable[[], object]]) -> Tables:
    """Return the tables that `encode` was given; `own` loads the functions of the program's own.

    Raises `UntrustedError` where one of these is needed and `own` is empty, and `UnsupportedError`
    for a table that is none.
    """
    usual = exports.default_decompositions()
    found = as_object(data)
    keys = ("composite", "python")
    made = [_changed(table, found.get(key), own) for key, table in zip(keys, usual, strict=True)]
    return Tables(*made)


def _changed(usual: Table, data: Json, own: Mapping[str, Callable[[], object]]) -> Table:
    if not isinstance(data, Mapping):
        raise UnsupportedError("the exported program has no tables of decompositions")
    less, more = data.get("less"), data.get("more")
    if not isinstance(less, list) or not isinstance(more, Mapping):
        raise UnsupportedError("a table of decompositions is malformed")
    gone = {str(text) for text in less}
    table = {op: f for op, f in usual.items() if targets.encode_target(op) not in gone}
    for text, name in more.items():
        operator = targets.decode_target(str(text))
        table[operator] = _function(str(text), operator, name, own)
    return table


def _function(
    text: str, operator: Any, name: Json, own: Mapping[str, Callable[[], object]]
) -> Callable[..., Any]:
    if name is not None:
        known = exports.decompositions_of(operator)
        if str(name) not in known:
            raise UnsupportedError(f"this torch has no such decomposition of {text}: {name!r:.60}")
        return known[str(name)]  # type: ignore[no-any-return]
    if not own:
        raise UntrustedError(
            f"the program decomposes {text.partition(':')[2]} by a function of its own, which is "
            "code from the store: if you trust who made it, add --trust"
        )
    load = own.get(f"{OWN}{text}")
    function = load() if load is not None else None
    if not callable(function):
        raise UnsupportedError(f"the program's own decomposition of {text} was not kept")
    return function
