"""Stored graphs as what is drawn of them: nodes, edges, lines of the program, origins in Dynamo.

Lives here: from a stored graph to a `GraphContent`.  Not here: the kernels that compute its nodes
(`kernels`).  A stored graph is a stranger's: what is malformed is left out, nothing is resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchreel.errors import DamagedStore
from torchreel.report.document import GraphContent, GraphNode, TraceLine
from torchreel.store.documents import graph_documents, spelling
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object

MOST_NODES = 20_000
"""Nodes of one graph that a page shows; the largest of real models that were seen has 9,000."""
_MAX_DEPTH = 100
_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]*)", line (?P<line>\d{1,9}), in (?P<name>[^\n]*)\n'
    r"(?: +(?P<code>.*)\n?)?",
    re.MULTILINE,
)


def read_graph(data: bytes) -> Mapping[str, Json]:
    """Return the stored form of a graph.  Raises DamagedStore for a blob that is none."""
    try:
        document = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored graph is not JSON: {error}.") from error
    if not isinstance(document, Mapping):
        raise DamagedStore(f"A stored graph is {document!r:.60}, and no graph.")
    return document


def content_of(document: Mapping[str, Json], forward: Mapping[int, list[str]]) -> GraphContent:
    """Return a graph with its edges and lines.

    `forward` has the Dynamo nodes that each sequence number of autograd belongs to: a node of the
    backward has no other way to say where it came from (`sequence_numbers`).
    """
    nodes = _nodes(document)
    places = {str(node.get("name")): place for place, node in enumerate(nodes)}
    lines = LineTable()
    rows = [_row(node, document, places, lines, forward) for node in nodes]
    return GraphContent(rows, lines.rows, dict(_bodies(document)))


def _nodes(document: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    found = [node for node in graph_documents.unfold(document) if isinstance(node, Mapping)]
    return found[:MOST_NODES]


def _row(
    node: Mapping[str, Json],
    document: Mapping[str, Json],
    places: Mapping[str, int],
    lines: LineTable,
    forward: Mapping[int, list[str]],
) -> GraphNode:
    meta = meta_of(node)
    used = dict.fromkeys(places[name] for name in _used(node) if name in places)
    return GraphNode(
        str(node.get("name")), str(node.get("op")), _short(str(node.get("target"))),
        spelling.node(node, document), list(used), lines.innermost(str(meta.get("stack_trace"))),
        origins_of(meta) or forward.get(_number(meta.get("seq_nr")), []), _module(meta),
    )  # fmt: skip


def meta_of(node: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the meta of a node; nothing where it has none."""
    return as_object(node.get("meta"))


def _number(value: Json) -> int:
    return value if type(value) is int else -1


def _short(target: str) -> str:
    """Return the call target of a node without its module: `aten.add.Tensor`, `linear`."""
    kind, _, name = target.partition(":")
    if not name:
        return target
    return name.rpartition(".")[2] if kind == "fn" else name


def _used(node: Mapping[str, Json]) -> Iterator[str]:
    """Yield the names of the nodes that a node's arguments refer to."""
    yield from _references(node.get("args"), 0)
    kwargs = node.get("kwargs")
    # By keyword: one may be called as what stands for a reference is.
    yield from _references(list(kwargs.values()) if isinstance(kwargs, Mapping) else None, 0)


def _references(tree: Json, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(tree, Mapping):
        if tree.keys() == {"n"}:
            yield str(tree["n"])
        else:
            for value in tree.values():
                yield from _references(value, depth + 1)
    elif isinstance(tree, Sequence) and not isinstance(tree, str):
        for value in tree:
            yield from _references(value, depth + 1)


def _module(meta: Mapping[str, Json]) -> str:
    """Return the innermost module of the model that a node belongs to: `L['self'].mlp.down`."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if isinstance(stack, list) and stack and isinstance(stack[-1], list) and len(stack[-1]) > 1:
        return str(stack[-1][1])
    return ""


def _bodies(document: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the graphs in a graph, as text, by their names."""
    for name, inner in as_object(document.get("modules")).items():
        if isinstance(inner, Mapping):
            yield name, text_of(inner)


def text_of(document: Mapping[str, Json], depth: int = 0) -> str:
    """Return a stored graph as lines, with the graphs in it."""
    if depth > _MAX_DEPTH:
        return "..."
    lines = [spelling.node(node, document) for node in _nodes(document)]
    for name, inner in as_object(document.get("modules")).items():
        if isinstance(inner, Mapping):
            body = text_of(inner, depth + 1).replace("\n", "\n    ")
            lines += ["", f"{name}:", f"    {body}"]
    return "\n".join(lines)


# -- where a node came from -----------------------------------------------------------------------


def origins_of(meta: Mapping[str, Json]) -> list[str]:
    """Return the nodes that a node was made from, by torch's own `from_node`: the first of each
    chain.
    """
    return list(dict.fromkeys(_roots(meta.get("from_node"), 0)))


def _roots(sources: Json, depth: int) -> Iterator[str]:
    if not isinstance(sources, list) or depth > _MAX_DEPTH:
        return
    for source in sources:
        if isinstance(source, Mapping):
            before = list(_roots(source.get("from_node"), depth + 1))
            yield from before or [str(source.get("name"))]


def sequence_numbers(documents: Iterable[Mapping[str, Json]]) -> dict[int, list[str]]:
    """Return the Dynamo nodes of each sequence number of autograd, as the forward nodes say."""
    found: dict[int, list[str]] = {}
    for document in documents:
        for node in _nodes(document):
            meta = meta_of(node)
            number = _number(meta.get("seq_nr"))
            if number >= 0 and meta.get("autograd_backward") is not True:
                known = found.setdefault(number, [])
                known += [name for name in origins_of(meta) if name not in known]
    return found


class LineTable:
    """The lines of stack traces, each once, and the calling line of each."""

    def __init__(self) -> None:
        self.rows: list[TraceLine] = []
        self._places: dict[TraceLine, int] = {}
        self._known: dict[str, int | None] = {}

    def innermost(self, trace: str) -> int | None:
        """Return the place of the innermost line of a stack trace; None for a trace without
        lines.
        """
        if trace not in self._known:
            self._known[trace] = self._add(trace)
        return self._known[trace]

    def _add(self, trace: str) -> int | None:
        place: int | None = None
        for match in _FRAME.finditer(trace):
            row = TraceLine(
                match["file"], int(match["line"]), match["name"], (match["code"] or "").strip(),
                place,
            )  # fmt: skip
            place = self._places.setdefault(row, len(self.rows))
            if place == len(self.rows):
                self.rows.append(row)
        return place


def last_line(text: str) -> TraceLine | None:
    """Return the last line of a program that a text with stack traces names; the user's own if
    any.
    """
    table = LineTable()
    place = table.innermost(text)
    if place is None:
        return None
    own = [row for row in table.rows if "/site-packages/" not in row.file]
    return (own or table.rows)[-1]
