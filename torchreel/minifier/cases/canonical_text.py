"""The canonical text of a graph, put together from the texts of its nodes.

Candidates share nearly all of their nodes, and nodes never change. So the text of a node is kept
with it, and a case of thousands of nodes is written in a millisecond or two. Lives here: the
canonical text, over which digests are taken, and the document. Called by `case`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TypeVar

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.store.documents.jsontypes import Json, canonical_json

D = TypeVar("D", NodeDoc, GraphDoc)
T = TypeVar("T")

_MOST_PARTS = 10_000

DERIVED_META = ("val", "example_value", "unbacked_bindings")
"""The entries of a node's meta that a run computes anew: they do not tell two cases apart."""


def key_of(function: Callable[..., object]) -> str:
    """Return the key under which `memoized` keeps the result of a function."""
    return f"_{function.__module__}.{function.__name__}"


def memoized(function: Callable[[D], T]) -> Callable[[D], T]:
    """Keep what a function says of a node or graph with it: they never change."""
    key = key_of(function)

    @wraps(function)
    def wrapper(doc: D) -> T:
        found: T | None = doc.__dict__.get(key)
        if found is None:
            found = doc.__dict__[key] = function(doc)
        return found

    return wrapper


def memoized_by_identity(function: Callable[[Json], T]) -> Callable[[Json], T]:
    """Keep what a function says of a part of a document, by its identity.

    Candidates share the descriptions of inputs, the config and the rest with the case that they are
    made of, and no part of a document is ever changed.  As many are kept as a large case has.
    """
    known: dict[int, tuple[Json, T]] = {}

    @wraps(function)
    def wrapper(part: Json) -> T:
        found = known.get(id(part))
        if found is None or found[0] is not part:
            if len(known) > _MOST_PARTS:
                known.clear()
            # The part is kept as well: its id means nothing else as long as it is there.
            found = known[id(part)] = part, function(part)
        return found[1]

    return wrapper


def text_of(value: Json) -> str:
    """Return the canonical JSON of a value."""
    return canonical_json(value).decode("utf-8", "surrogatepass")


text_of_part = memoized_by_identity(text_of)
"""The same of a part of a document that candidates share."""


def text_of_parts(parts: Iterable[Json]) -> str:
    """Return the canonical JSON of the list of these."""
    return f"[{','.join(map(text_of_part, parts))}]"


def text_of_members(data: Mapping[str, Json]) -> str:
    """Return the members of a canonical JSON object, without its braces."""
    return ",".join(f"{text_of(key)}:{text_of_part(data[key])}" for key in sorted(data))


@memoized
def _document(node: NodeDoc) -> str:
    return text_of(node.to_json())


_DOCUMENT = key_of(_document)


@memoized
def _template(node: NodeDoc) -> tuple[str, tuple[str, ...]]:
    """Return a call without the names of its operands, and these, in the order of the holes."""
    names: dict[str, int] = {}

    def hole(name: str) -> Json:
        return {"n": names.setdefault(name, len(names))}

    target = "" if node.op == "placeholder" else node.target
    mapped = node.mapped(hole)
    kept = {key: value for key, value in node.meta.items() if key not in DERIVED_META}
    return text_of([node.op, target, mapped.args, mapped.kwargs, kept]), tuple(names)


_TEMPLATE = key_of(_template)


def canonical_text(graph: GraphDoc) -> str:
    """Return a graph in which nodes are numbered and nothing derived is left."""
    numbers: dict[str, int] = {}
    parts = []
    for number, node in enumerate(graph.nodes):
        numbers[node.name] = number
        # As `_template` would, without a call: most nodes of a candidate are those of the last.
        template, operands = node.__dict__.get(_TEMPLATE) or _template(node)
        if len(operands) == 1:
            parts.append(f"[{template},[{numbers[operands[0]]}]]")
        elif operands:
            parts.append(f"[{template},{[numbers[name] for name in operands]}]")
        else:
            parts.append(template)
    return _put_together(graph, parts, canonical_text)


def document_text(graph: GraphDoc) -> str:
    """Return the canonical JSON of `GraphDoc.to_json`."""
    texts = (node.__dict__.get(_DOCUMENT) or _document(node) for node in graph.nodes)
    return _put_together(graph, texts, document_text)


def _put_together(graph: GraphDoc, nodes: Iterable[str], nested: Callable[[GraphDoc], str]) -> str:
    modules = ",".join(
        f"{text_of(name)}:{nested(inner)}" for name, inner in sorted(graph.modules.items())
    )
    return (
        f'{{"attributes":{text_of(graph.attributes)},"extra":{text_of(graph.extra)},'
        f'"modules":{{{modules}}},"nodes":[{",".join(nodes)}]}}'
    )
