"""A recorded graph as text, straight from its JSON: nothing is resolved, torch is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torchreel.console.text import clean
from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.store import spelling
from torchreel.store.jsontypes import Json, parse_json

_MAX_NESTING = 20


def graph_text(document: bytes) -> str:
    """The print-out of a graph document; DamagedStore when the blob is none."""
    try:
        graph = parse_json(document)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored graph is not JSON: {error}.") from error
    return "\n".join(_lines(graph, "", 0))


def _lines(graph: Json, indent: str, depth: int) -> Iterator[str]:
    if not isinstance(graph, Mapping) or depth > _MAX_NESTING:
        yield f"{indent}<no graph>"
        return
    for node in _items(graph.get("nodes")):
        if isinstance(node, Mapping):
            yield indent + clean(_line(node, graph))
    for name, inner in _object(graph.get("modules")).items():
        yield ""
        yield clean(f"{indent}{name}:")
        yield from _lines(inner, indent + "    ", depth + 1)


def _line(node: Mapping[str, Json], graph: Mapping[str, Json]) -> str:
    name, op, target = (str(node.get(key)) for key in ("name", "op", "target"))
    meta = _object(node.get("meta"))
    described = meta.get("val", meta.get("example_value"))
    value = f": {spelling.value(described)}" if described is not None else ""
    if op == "placeholder":
        return f"input {name}{value}"
    if op == "output":
        (returned, *_) = _items(node.get("args")) or [None]
        return f"return {_argument(returned)}"
    if op == "get_attr" and target in _object(graph.get("attributes")):
        value = f": {spelling.value(_object(graph.get('attributes'))[target])}"
    return f"{name}{value} = {_call(node, op, target)}"


def _call(node: Mapping[str, Json], op: str, target: str) -> str:
    try:
        return spelling.call(op, target, node.get("args"), node.get("kwargs"), str)
    except (UnsupportedError, RecursionError):
        return f"{target}(...)"


def _argument(tree: Json) -> str:
    try:
        return spelling.argument(tree, str)
    except (UnsupportedError, RecursionError):
        return "..."


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, (list, tuple)) else []


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
