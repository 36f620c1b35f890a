"""Two graphs, whatever their nodes, placeholders and symbols are called.

Lives here: which nodes of one graph stand for which of the other, and where they part.  Not here:
names (`renaming`), decoding a graph (`torchreel.formats.graphs.codec`, which needs torch).

Graphs are compared by their nodes in order: operation, target, arguments, described value and the
metadata that the compiler reads, but not what only says where a node comes from (`_ORIGINS`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchreel.analysis.diff.alignment import align
from torchreel.analysis.diff.layers.renaming import Renaming, shape_of
from torchreel.analysis.diff.report import ABSENT, LayerDifference
from torchreel.errors import DamagedStore
from torchreel.store.documents import graph_documents, spelling
from torchreel.store.documents.jsontypes import Json, digest_of, parse_json
from torchreel.store.documents.kinds import as_object, list_only

_ORIGINS = frozenset({
    "stack_trace", "nn_module_stack", "fwd_nn_module_stack", "source_fn_stack",
    "fwd_source_fn_stack", "from_node", "seq_nr", "dynamo_source", "desc", "torch_fn",
    "original_aten", "creation_timestamp",
})  # fmt: skip
_MAX_NESTING = 20

Node = Mapping[str, Json]


def graph_of(data: bytes) -> Mapping[str, Json]:
    """Return a recorded graph.  Raises DamagedStore when the blob is none."""
    try:
        graph = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored graph is not JSON: {error}.") from error
    if not isinstance(graph, Mapping):
        raise DamagedStore("A stored graph is not an object.")
    return graph


_HINT = re.compile(rb'"(?:hint|storage_size)":-?\d+')
"""The numbers that `renaming` leaves out, as a stored graph spells them."""


def fingerprint(data: bytes) -> str:
    """Return a digest of a recorded graph, without the sizes of one run.

    Two graphs with one fingerprint are the same; others may be, under other names.
    """
    return digest_of(_HINT.sub(b"", data))


def compare_graphs(left: Mapping[str, Json], right: Mapping[str, Json]) -> list[LayerDifference]:
    """Return the differences between two graphs, in the order of their nodes.

    Raises DamagedStore for a graph that is nested deeper than any recorded one.
    """
    try:
        return list(_compare(_Both(left, right, Renaming(), 0)))
    except RecursionError as error:
        raise DamagedStore("A stored graph is nested too deeply to be read.") from error


@dataclass(frozen=True)
class _Both:
    """Two graphs and the names known so far."""

    left: Mapping[str, Json]
    right: Mapping[str, Json]
    names: Renaming
    depth: int


def _compare(both: _Both) -> Iterator[LayerDifference]:
    for one, other, same in _pairs(both):
        if not same:
            yield _difference(one, other, both.left, both.right)
        if one is not None and other is not None:
            yield from _inner(one, other, both)


def _pairs(both: _Both) -> Iterator[tuple[Node | None, Node | None, bool]]:
    """Yield the nodes that stand for each other, and True where they compute the same."""
    left, right, names = both.left, both.right, both.names
    ours, theirs = _nodes(left), _nodes(right)
    keys = [_key(node, left) for node in ours], [_key(node, right) for node in theirs]
    for i, j in align(*keys):
        one, other = None if i is None else ours[i], None if j is None else theirs[j]
        same = i is not None and j is not None and keys[0][i] == keys[1][j]
        if one is not None and other is not None:
            same &= names.bind("node", str(one.get("name")), str(other.get("name")))
            same = same and names.agree(_compared(one, left), _compared(other, right))
        yield one, other, same


def _inner(one: Node, other: Node, both: _Both) -> Iterator[LayerDifference]:
    if (inner := _bodies(one, other, both)) is not None:
        for found in _compare(inner):
            yield LayerDifference(f"{one.get('target')}: {found.what}", found.left, found.right)


def _bodies(one: Node, other: Node, both: _Both) -> _Both | None:
    """Return the bodies that two nodes name, such as the branches of a `cond`."""
    left, right = _body(one, both.left), _body(other, both.right)
    if left is None or right is None or both.depth > _MAX_NESTING:
        return None
    return _Both(left, right, both.names, both.depth + 1)


# -- side by side ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodePair:
    """Two nodes that stand for each other, as lines; None on the side that has none there."""

    left: str | None
    right: str | None
    same: bool
    """True if they compute the same, whatever they are called."""


def node_pairs(left: Mapping[str, Json], right: Mapping[str, Json]) -> list[NodePair]:
    """Return two graphs side by side, the bodies of a node after it.

    Raises DamagedStore for a graph that is nested deeper than any recorded one.
    """
    try:
        return list(_lines(_Both(left, right, Renaming(), 0)))
    except RecursionError as error:
        raise DamagedStore("A stored graph is nested too deeply to be read.") from error


def _lines(both: _Both) -> Iterator[NodePair]:
    indent = "    " * both.depth
    for one, other, same in _pairs(both):
        ours, theirs = (
            None if node is None else indent + spelling.node(node, graph)
            for node, graph in ((one, both.left), (other, both.right))
        )
        yield NodePair(ours, theirs, same)
        if one is not None and other is not None:
            inner = _bodies(one, other, both)
            yield from () if inner is None else _lines(inner)


def _key(node: Node, graph: Mapping[str, Json]) -> str:
    """Return all of a node but names: equal for nodes that may stand for each other."""
    return shape_of(_compared(node, graph))


def _compared(node: Node, graph: Mapping[str, Json]) -> Json:
    op, meta = node.get("op"), as_object(node.get("meta"))
    value = meta.get("val", meta.get("example_value"))
    kept = {
        key: _bindings(item) if key == "unbacked_bindings" else item
        for key, item in meta.items()
        if key not in _ORIGINS and key not in ("val", "example_value")
    }
    return {
        "op": op, "target": _target(node, graph), "args": node.get("args"),
        "kwargs": node.get("kwargs"), "value": value, "meta": kept,
    }  # fmt: skip


def _target(node: Node, graph: Mapping[str, Json]) -> Json:
    """Return the call target of a node; for a graph member its description, for an input None."""
    op, target = node.get("op"), str(node.get("target"))
    if op in ("call_function", "call_method"):
        return target
    if op in ("placeholder", "output"):
        return None
    if target in as_object(graph.get("modules")):
        return "graph"
    return ["attribute", as_object(graph.get("attributes")).get(target)]


def _bindings(value: Json) -> Json:
    rows = list_only(value)
    return [{"expr": row[0], "path": row[1]} if isinstance(row, list) and len(row) == 2 else row
            for row in rows]  # fmt: skip


def _body(node: Node, graph: Mapping[str, Json]) -> Mapping[str, Json] | None:
    if node.get("op") not in ("get_attr", "call_module"):
        return None
    found = as_object(graph.get("modules")).get(str(node.get("target")))
    return found if isinstance(found, Mapping) else None


def _difference(
    one: Node | None, other: Node | None, left: Mapping[str, Json], right: Mapping[str, Json]
) -> LayerDifference:
    ours = spelling.node(one, left) if one is not None else ABSENT
    theirs = spelling.node(other, right) if other is not None else ABSENT
    name = str((one or other or {}).get("name"))
    if ours == theirs and one is not None and other is not None:
        ours, theirs = _metadata(one, other)
    return LayerDifference(f"node {name}", ours, theirs)


def _metadata(one: Node, other: Node) -> tuple[str, str]:
    """Return the differing metadata of two nodes that print alike."""
    left, right = as_object(one.get("meta")), as_object(other.get("meta"))
    keys = [k for k in sorted({*left, *right}) if left.get(k) != right.get(k) and k not in _ORIGINS]
    found = [", ".join(f"{k} {_text(side.get(k))}" for k in keys) for side in (left, right)]
    return found[0] or "(used elsewhere)", found[1] or "(used elsewhere)"


def _text(value: Json) -> str:
    return str(value)[:200]


def _nodes(graph: Mapping[str, Json]) -> list[Node]:
    nodes = graph_documents.unfold(graph)
    return [node if isinstance(node, Mapping) else {"op": str(node)} for node in nodes]
