"""All that leaves: every text and every number of a case, and what its sizes reveal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.graphs.policies import answers_of
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.literals import float_of, leaves
from torchreel.sharing.neutral import sizes_in
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.store.failures.signature import Signature

_FLOATS = re.compile(r'Float\("([^"]*)"')
_COMPLEX = re.compile(r"complex\(([^,]*), ([^)]*)\)")
_TELLING = 16
"""Sizes above this say something about a model."""


@dataclass(frozen=True)
class Leaving:
    """All that a bundle says, by kind."""

    operators: tuple[str, ...]
    options: tuple[str, ...]
    """Texts in calls, all of them torch's own words or pseudonyms."""
    types: tuple[str, ...]
    numbers: tuple[str, ...]
    """Numbers in calls and constants."""
    needed: tuple[str, ...]
    """Those that reveal something: without them the failure was another, or none."""
    sizes: tuple[int, ...]
    hints: tuple[str, ...]
    """Symbols with the numbers that they had."""
    config: tuple[str, ...]
    message: str
    reveals: tuple[str, ...]
    """Facts that an expert on models can learn from these values."""


def _saved(case: Case) -> Iterator[str]:
    """Yield the operators that policies of activation checkpointing save."""
    for graph in case.graph.graphs():
        for name in answers_of(graph.extra) or ():
            yield f"op:{name}" if "." in name else f"hop:{name}"


def leaving(case: Case, signature: Signature, needed: Sequence[str] = ()) -> Leaving:
    """Return all that leaves with a case and its signature.

    `needed` are the revealing numbers without which it does not fail.
    """
    nodes = [node for graph in case.graph.graphs() for node in graph.nodes]
    literals = [leaf for node in nodes if node.is_call for leaf in _leaves(node)]
    sizes = sizes_in(case)
    return Leaving(
        operators=_sorted(chain((node.target for node in nodes if node.is_call), _saved(case))),
        options=_sorted(leaf for leaf in literals if isinstance(leaf, str)),
        types=_sorted(_types([*case.checkpoint.inputs, *(node.value for node in nodes)])),
        numbers=_sorted(iter(_literals(case))),
        needed=tuple(needed),
        sizes=tuple(sorted(sizes)),
        hints=_hints(case),
        config=tuple(_entry(entry) for entry in case.checkpoint.config),
        message=signature.message,
        reveals=tuple(_reveals(case, sizes)),
    )


def numbers_in(case: Case) -> frozenset[str]:
    """Return the numbers that a neutral one was tried for: of calls, constants, float hints,
    config.

    Of a complex number, its parts.
    """
    hints = [as_list(row)[1] for row in _rows(case)]
    texts = [text for hint in hints for text in _FLOATS.findall(str(hint))]
    parts = [part for number in _literals(case) for part in _COMPLEX.findall(number)]
    return frozenset(
        chain(
            _literals(case),
            (repr(float.fromhex(text)) for text in texts),
            map(_spelled, hints),
            chain.from_iterable(parts),
            (_spelled(as_object(entry).get("value")) for entry in case.checkpoint.config),
        )
    )


def _literals(case: Case) -> set[str]:
    graphs = list(case.graph.graphs())
    nodes = [node for graph in graphs for node in graph.nodes if node.is_call]
    found = [leaf for node in nodes for leaf in _leaves(node)]
    found += [number for graph in graphs for number in _constants(graph)]
    found += [held.get("v") for held in map(as_object, case.checkpoint.inputs) if "v" in held]
    return {_spelled(value) for value in found} - {""}


def _rows(case: Case) -> list[Json]:
    state = as_object(case.checkpoint.shape_env.get("state"))
    return as_list(state.get("backed_var_to_val"))


def _sorted(found: Iterator[str] | map[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found)))


def _leaves(node: NodeDoc) -> Iterator[Json]:
    return (leaf for _, leaf in leaves([node.args, node.kwargs]))


def _constants(graph: GraphDoc) -> Iterator[Json]:
    held = [as_object(value).get("data") for value in graph.attributes.values()]
    while held:
        value = held.pop()
        if isinstance(value, list):
            held += value
        elif value is not None:
            yield value


def _spelled(value: Json) -> str:
    """Return a number as a person reads it; '' for any other value."""
    if type(value) is int:
        return str(value)
    fields = as_object(value)
    if "c" in fields:
        parts = [float.fromhex(str(part)) for part in as_list(fields["c"])]
        return f"complex({parts[0]!r}, {parts[1]!r})"
    number = float_of(value)
    return "" if number is None else repr(number)


def _types(values: list[Json]) -> Iterator[str]:
    for value in values:
        fields = as_object(value)
        for key in ("dtype", "device", "layout"):
            if isinstance(fields.get(key), str):
                yield str(fields[key])


def _hints(case: Case) -> tuple[str, ...]:
    rows = [as_list(row) for row in _rows(case)]
    return tuple(
        f"{row[0]} = {as_list(row[1])[0] if as_list(row[1]) else _spelled(row[1])}" for row in rows
    )


def _entry(entry: Json) -> str:
    fields: Mapping[str, Json] = as_object(entry)
    return f"{fields.get('module')}.{fields.get('key')} = {fields.get('value')}"


def _reveals(case: Case, sizes: frozenset[int]) -> Iterator[str]:
    weights = [
        as_list(held.get("size"))
        for held in map(as_object, case.checkpoint.inputs)
        if held.get("parameter") and len(as_list(held.get("size"))) > 1
    ]
    telling = sorted({" x ".join(map(str, size)) for size in weights if max_of(size) > _TELLING})
    if telling:
        yield (
            f"the sizes of {len(weights)} weights ({', '.join(telling[:6])}"
            f"{', ...' if len(telling) > 6 else ''}): how wide the layers are, and with that "
            "which model it may be"
        )
    large = sorted(size for size in sizes if size > _TELLING)
    if large and not telling:
        yield f"sizes above {_TELLING} ({', '.join(map(str, large[:8]))}): of data or of layers"
    calls = case.total_call_nodes
    if calls > 20:
        yield f"the order of {calls} calls: the architecture around the failure; --minimise cuts it"


def max_of(size: list[Json]) -> int:
    """Return the largest number among sizes."""
    return max((item for item in size if type(item) is int), default=0)
