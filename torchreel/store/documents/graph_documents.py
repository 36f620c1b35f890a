"""Graphs as they are stored: what nodes have in common, each once.

Stack traces are most of what there is to say of a node, and nine of ten nodes repeat one; stacks of
modules come next.  A stored graph has them in lists (`stack_traces`, `nn_module_stacks`, ...), and
a node's meta has the place in the list.  Read by everything that reads stored graphs, with torch or
without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torchreel.store.documents.jsontypes import Json, canonical_json

_FOLDED = {
    "stack_trace": "stack_traces",
    "nn_module_stack": "nn_module_stacks",
    "fwd_nn_module_stack": "fwd_nn_module_stacks",
}
"""A key of a node's meta, and the list that its values are kept in."""


def fold(nodes: Iterable[Mapping[str, Json]]) -> dict[str, Json]:
    """Return the members of a stored graph that hold these nodes: `nodes`, and the lists they
    need.
    """
    lists = {key: _List() for key in _FOLDED}
    folded: list[Json] = []
    for node in nodes:
        meta = node["meta"]
        if isinstance(meta, Mapping):
            places = {
                key: lists[key].place(value)
                for key, value in meta.items()
                if key in _FOLDED and isinstance(value, (str, list))
            }
            node = {**node, "meta": {**meta, **places}} if places else node
        folded.append(node)
    kept = {_FOLDED[key]: found.values for key, found in lists.items() if found.values}
    return {"nodes": folded, **kept}


class _List:
    """A list of distinct values, in the order of their first use.

    Values are compared by content, so that equal graphs are stored as equal bytes.
    """

    def __init__(self) -> None:
        self.values: list[Json] = []
        self._places: dict[str | bytes, int] = {}
        # By id (and kept, so that it stays taken): most nodes have the very list of another one.
        self._known: dict[int, tuple[int, Json]] = {}

    def place(self, value: str | list[Json]) -> int:
        known = self._known.get(id(value))
        if known is not None:
            return known[0]
        key = value if isinstance(value, str) else canonical_json(value)
        place = self._places.setdefault(key, len(self.values))
        if place == len(self.values):
            self.values.append(value)
        self._known[id(value)] = place, value
        return place


def unfold(graph: Mapping[str, Json]) -> Iterator[Json]:
    """Yield the nodes of a stored graph as they were before `fold`, without those of nested graphs.

    Older stores, whose graphs have no lists, are read as well. A key of the meta is dropped if its
    index is outside of the list: nothing depends on the folded keys.
    """
    found = graph.get("nodes")
    lists = {key: _at_places(graph.get(name)) for key, name in _FOLDED.items()}
    for node in found if isinstance(found, list) else []:
        meta = node.get("meta") if isinstance(node, Mapping) else None
        if isinstance(meta, Mapping) and any(type(meta.get(key)) is int for key in _FOLDED):
            node = {**node, "meta": dict(_unfolded(meta, lists))}
        yield node


def _unfolded(
    meta: Mapping[str, Json], lists: Mapping[str, Mapping[int, Json]]
) -> Iterator[tuple[str, Json]]:
    for key, value in meta.items():
        if key not in _FOLDED or type(value) is not int:
            yield key, value
        elif value in lists[key]:
            yield key, lists[key][value]


def _at_places(values: Json) -> dict[int, Json]:
    return dict(enumerate(values)) if isinstance(values, list) else {}


def whole(graph: Json) -> Json:
    """Return a stored graph, and those in it, as before `fold`; anything else as it is."""
    return _each(graph, lambda nodes: {"nodes": list(nodes)})


def folded(graph: Json) -> Json:
    """Return a stored graph and its nested graphs in the form that `fold` writes now.

    Any other value is returned unchanged. Raises KeyError or TypeError for malformed nodes.
    """
    return _each(graph, fold)


def _each(graph: Json, members: Callable[[Iterator[Any]], Mapping[str, Json]]) -> Json:
    if not isinstance(graph, Mapping):
        return graph
    kept = {key: value for key, value in graph.items() if key not in _FOLDED.values()}
    modules = graph.get("modules")
    inner = modules if isinstance(modules, Mapping) else {}
    return {
        **kept,
        **members(unfold(graph)),
        "modules": {name: _each(module, members) for name, module in inner.items()},
    }
