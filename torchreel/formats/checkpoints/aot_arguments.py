"""Decompositions and partitioners of torch as data: by name, never by what a program made of them.

Lives here: what a call of AOTAutograd or Inductor is given of these, encoded and found again.  Not
here: the rest of such a call (`pieces`).  Called by the recorder and by replay.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

DECOMPOSITIONS, PARTITION = "decompositions", "partition_fn"
_PARTITIONS = ("default_partition", "min_cut_rematerialization_partition")
"""Those of torch._functorch.partitioners."""


def is_of_torch(function: object) -> bool:
    """Return True if a function, looked through partials and wrappers, is torch's; so is none."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    return function is None or str(getattr(function, "__module__", "")).startswith("torch.")


def encode(table: Mapping[Any, Any] | None, own: list[Json]) -> dict[str, Json]:
    """Encode a table of decompositions by its operators; where some are not torch's, into `own`."""
    if table is None:
        return {}
    if callable(table):
        table = table()
    tables = _tables()
    for name, known in tables.items():
        if len(known) == len(table) and all(table.get(op) is known[op] for op in known):
            return {DECOMPOSITIONS: name}
    found: dict[str, Json] = {}
    for op, function in table.items():
        name = next((name for name, known in tables.items() if known.get(op) is function), "")
        if not name:
            own.append(DECOMPOSITIONS)
            return {}
        found[str(op)] = name
    return {DECOMPOSITIONS: found}


def decode(data: Json) -> dict[Any, Any] | None:
    """Find the table again that `encode` wrote.

    Raises UnsupportedError for an operator that this torch has no decomposition for.
    """
    if data is None:
        return None
    tables = _tables()
    if isinstance(data, str) and data in tables:
        return dict(tables[data])
    if not isinstance(data, Mapping):
        raise UnsupportedError(f"malformed table of decompositions {data!r:.80}")
    by_name = {
        (str(op), name): (op, function)
        for name, known in tables.items()
        for op, function in known.items()
    }
    missing = [op for op, name in data.items() if (op, name) not in by_name]
    if missing:
        raise UnsupportedError(f"this torch has no decomposition of {', '.join(missing)!s:.200}")
    return dict(by_name[str(op), str(name)] for op, name in data.items())


def _tables() -> dict[str, Mapping[Any, Any]]:
    from torch._decomp import core_aten_decompositions, decomposition_table
    from torch._inductor.decomposition import select_decomp_table

    return {
        "inductor": select_decomp_table(),
        "core_aten": core_aten_decompositions(),
        "torch": decomposition_table,
    }


def encode_partition(function: Any, own: list[Json]) -> dict[str, Json]:
    """Encode a partitioner by its name; into `own` where it is not torch's."""
    keywords: Mapping[str, Json] = {}
    if isinstance(function, functools.partial) and not function.args:
        function, keywords = function.func, function.keywords
    if function is None:
        return {}
    name = getattr(function, "__name__", "")
    if not is_of_torch(function) or name not in _PARTITIONS or not _is_plain(keywords):
        own.append(PARTITION)
        return {}
    return {PARTITION: {"name": name, "keywords": dict(keywords)}}


def decode_partition(data: Json) -> Callable[..., Any] | None:
    """Find the partitioner again that `encode_partition` wrote; UnsupportedError for another."""
    from torch._functorch import partitioners

    if data is None:
        return None
    name = as_object(data).get("name")
    if name not in _PARTITIONS or not isinstance(data, Mapping):
        raise UnsupportedError(f"there is no partitioner {name!r:.80}")
    keywords = data.get("keywords")
    if not isinstance(keywords, Mapping) or not _is_plain(keywords):
        raise UnsupportedError(f"malformed keywords of a partitioner {keywords!r:.80}")
    return functools.partial(getattr(partitioners, str(name)), **keywords)


def _is_plain(keywords: Mapping[str, object]) -> bool:
    return all(isinstance(value, (str, int, bool)) for value in keywords.values())
