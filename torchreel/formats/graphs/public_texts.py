"""The texts of a graph document that the compiler itself needs, and that are no secret therefore.

Lives here: telling the arguments of torch's own operators (the equation of an einsum, `reduction=
"mean"`), names of nodes and descriptions of tensors from the texts of the program.  Not here: what
is done about them (`recorder.redaction`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchreel.formats import namespaces
from torchreel.store.documents.kinds import as_object

# A function of the program is in a graph as well if it allows that (`allow_in_graph`).
_TORCHS = ("fn:torch.", "fn:_operator.", "fn:builtins.", "fn:math.", "hop:", "op:", "packet:")
_HOLD_VALUES = frozenset({"t", "d", "slice", "size"})
"""Tags of values that hold others; all others but `literal` say what a text stands for."""
_HOLD_GRAPHS = ("graph", "modules", "attributes")
_OPERANDS = "literal"
_FIXED = re.compile(
    rb'"(?:op|k|entry|partition|dtype|device|layout|memory_format|type|backend)":"([^"\\]{1,200})"'
)
"""Keys of a document whose values are words of torch or of the format."""


def words(data: bytes, document: object) -> set[str]:
    """Return the texts that the compiler needs of a document; `data` is its JSON."""
    found = {match.decode() for match in _FIXED.findall(data)}
    if isinstance(document, Mapping):
        found.update(_texts(document.get("ambient")))
    for node in _nodes(document):
        found.update(_of_node(node))
    return found


def text_inputs(document: object) -> Iterator[tuple[str, str]]:
    """Yield name and value of each input of a graph that is a text, as those of an export are."""
    for node in _nodes(document):
        value = as_object(node.get("meta")).get("val")
        if node.get("op") == "placeholder" and isinstance(value, Mapping) and "v" in value:
            yield str(node.get("name")), str(value["v"])


def computes(target: str) -> bool:
    """Return True if a function is torch's own, and makes a value of its arguments.

    The message of an assertion is the program's, as all is that an operator of its own is given.
    """
    return (
        target.startswith(_TORCHS) and not namespaces.is_custom(target) and "assert" not in target
    )


def _nodes(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of a graph, and of those within it."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key == "nodes" and isinstance(value, list):
                yield from (node for node in value if isinstance(node, Mapping))
            elif isinstance(value, Mapping) and (key in _HOLD_GRAPHS or "nodes" in value):
                yield from _nodes(value)


def _of_node(node: Mapping[str, Any]) -> Iterator[str]:
    target = str(node.get("target"))
    yield from (target, str(node.get("name")))
    needs_all = node.get("op") == "call_method" or computes(target)
    named = [*as_object(node.get("kwargs")).values()]
    for operands in (node.get("args"), named):
        yield from _texts(operands) if needs_all else _tagged(operands)


def _texts(value: object) -> Iterator[str]:
    """Yield all texts of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


def _tagged(value: object) -> Iterator[str]:
    """Yield the texts that stand for a dtype, a device, a node."""
    if isinstance(value, list):
        for item in value:
            yield from _tagged(item)
    elif isinstance(value, Mapping):
        for tag, item in value.items():
            if tag in _HOLD_VALUES or (isinstance(item, (list, Mapping)) and tag != _OPERANDS):
                yield from _tagged(item)
            elif tag != _OPERANDS and len(value) == 1:
                yield from _texts(item)
