"""The order over cases: one total order that says which one is simpler.

A candidate is accepted only if it is smaller in this order, whatever pass proposed it. From the
most to the least important:

1.  call nodes, those in bodies of higher-order operators included (each body once), then those
    outside of bodies: a body in the place of its call is simpler than the call;
2.  inputs, constants and outputs;
3.  symbols;
4.  how deep graphs are nested;
5.  elements of all inputs and constants (a symbol counts as its hint), then their dimensions;
6.  inputs that are not plain: gradients, parameters, strides, shared storages, flags, constants;
7.  dtypes: float32, then int64, bool, float64, complex64, then all others;
8.  the backend (AOTAutograd alone, with decompositions, Inductor, any other), then what is done
    with the case: compile, run, train, compare;
9.  calls that write to an operand; arguments that are written down (`literals.leaves`), by their
    number, then by how far they are from the plainest;
10. config entries and options, then pieces of ambient state;
11. the length of the canonical text, then the text itself, which makes the order total.

Nothing else decides, and nothing is proposed here. Called by the search for every candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import singledispatch

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.canonical_text import key_of, memoized, memoized_by_identity
from torchreel.minifier.cases.case import BACKENDS, HARNESSES, Case
from torchreel.minifier.cases.descriptions import contiguous, is_tensor, sizes
from torchreel.minifier.cases.graph_edits import output_items
from torchreel.minifier.cases.literals import dtype_rank, leaves, weight
from torchreel.minifier.cases.protocol import AnyCase, Key
from torchreel.minifier.cases.side_effects import written_operand
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.cases.source_order import source_key
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


@singledispatch
def sort_key(case: AnyCase) -> Key:
    """Return the key of a case; the smaller, the simpler. Keys are equal only for the same case."""
    raise TypeError(f"no order is known for {type(case).__name__}")


@sort_key.register
def _(case: SourceCase) -> Key:
    return source_key(case)


@sort_key.register
def _(case: Case) -> Key:
    doc, graph = case.checkpoint, case.graph
    text, constants = case.canonical, _constants(graph)
    inputs, hints = [_facts_of(value) for value in (*doc.inputs, *constants)], doc.hints
    return (
        graph.total_call_nodes,
        graph.call_nodes,
        len(inputs) + len(output_items(graph)),
        len(as_object(doc.shape_env.get("symbols"))),
        _depth(graph),
        sum(_elements(*sized, hints) for sized, *_ in inputs),
        sum(dimensions for _, dimensions, _, _ in inputs),
        sum(oddities for _, _, oddities, _ in inputs) + len(constants),
        sum(rank for *_, rank in inputs),
        BACKENDS.index(case.backend) if case.backend in BACKENDS else len(BACKENDS),
        HARNESSES.index(case.harness),
        *_written(graph),
        len(doc.config) + len(as_list(doc.extra.get("options"))),
        len(doc.ambient),
        len(text),
        text,
    )


def _depth(graph: GraphDoc) -> int:
    return max((1 + _depth(inner) for inner in graph.modules.values()), default=0)


@memoized_by_identity
def _facts_of(value: Json) -> tuple[tuple[int, list[str]], int, int, int]:
    """Return the facts of an input: static elements with dynamic sizes, dimensions, oddities,
    dtype.
    """
    size = sizes(value)
    static = math.prod(number for number in size if isinstance(number, int))
    dynamic = [name for name in size if isinstance(name, str)]
    elements = static if is_tensor(value) else 0
    return (elements, dynamic), len(size), _oddities(value), _dtype_rank(value)


def _elements(static: int, dynamic: list[str], hints: Mapping[str, Json]) -> int:
    """Count the elements of a tensor.

    A dynamic size counts as its hint if it is a symbol, else as 1.
    """
    numbers = (hints.get(name, 1) for name in dynamic)
    return static * math.prod(number for number in numbers if isinstance(number, int))


def _oddities(value: Json) -> int:
    """Count what sets an input apart from a contiguous tensor with no special properties."""
    fields = as_object(value)
    size = [s for s in sizes(value) if isinstance(s, int)]
    static = len(size) == len(sizes(value)) and "stride" in fields
    return (
        bool(fields.get("requires_grad"))
        + bool(fields.get("parameter"))
        + (static and as_list(fields["stride"]) != contiguous(size))
        + (fields.get("offset", 0) != 0)
        + ("storage" in fields)
        + ("contents" in fields)
        + len(as_list(fields.get("flags")))
        + (fields.get("k") not in ("tensor", "symint"))
    )


def is_plain(value: Json) -> bool:
    """Return True if an input is a contiguous tensor of known sizes, with nothing special
    about it.
    """
    size = [s for s in sizes(value) if isinstance(s, int)]
    return is_tensor(value) and len(size) == len(sizes(value)) and not _oddities(value)


def _dtype_rank(value: Json) -> int:
    return dtype_rank(as_object(value).get("dtype")) if is_tensor(value) else 0


@memoized
def _constants(graph: GraphDoc) -> tuple[Json, ...]:
    """Return the constant of each node that names one: they count as inputs, and as odd ones."""
    if not graph.attributes and not graph.modules:
        return ()
    targets = [node.target for node in graph.nodes if node.op == "get_attr"]
    here = [graph.attributes[name] for name in targets if name in graph.attributes]
    return (*here, *(value for inner in graph.modules.values() for value in _constants(inner)))


@memoized
def _written(graph: GraphDoc) -> tuple[int, int, int]:
    """Count the calls that write to an operand, and the literals; add up their weights."""
    writes = literals = weights = 0
    for node in graph.nodes:
        # As `_written_in` would, without a call: see `canonical_text.canonical_text`.
        w, n, s = node.__dict__.get(_WRITTEN_IN) or _written_in(node)
        writes, literals, weights = writes + w, literals + n, weights + s
    for inner in graph.modules.values():
        w, n, s = _written(inner)
        writes, literals, weights = writes + w, literals + n, weights + s
    return writes, literals, weights


@memoized
def _written_in(node: NodeDoc) -> tuple[int, int, int]:
    if not node.is_call:
        return 0, 0, 0
    found = [weight(leaf) for _, leaf in leaves([node.args, node.kwargs])]
    return int(written_operand(node) is not None), len(found), sum(found)


_WRITTEN_IN = key_of(_written_in)
