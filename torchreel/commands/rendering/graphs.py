"""A recorded graph as text, straight from its JSON: nothing is resolved, torch is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchreel.errors import DamagedStore
from torchreel.escaping.characters import visible
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_list, as_object

_MAX_NESTING = 20


def graph_text(document: bytes) -> str:
    """Return the print-out of a graph document; DamagedStore when the blob is none."""
    try:
        graph = parse_json(document)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored graph is not JSON: {error}.") from error
    return "\n".join(_lines(graph, "", 0))


def _lines(graph: Json, indent: str, depth: int) -> Iterator[str]:
    if not isinstance(graph, Mapping) or depth > _MAX_NESTING:
        yield f"{indent}<no graph>"
        return
    for node in as_list(graph.get("nodes")):
        if isinstance(node, Mapping):
            yield indent + visible(spelling.node(node, graph))
    for name, inner in as_object(graph.get("modules")).items():
        yield ""
        yield visible(f"{indent}{name}:")
        yield from _lines(inner, indent + "    ", depth + 1)
