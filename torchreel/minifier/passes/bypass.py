"""Let the users of a node use one of the values it was computed from.

This shortens a path through a graph, which cutting can't: in `sin -> a -> b -> cos` nothing may be
cut when the failure needs the sine to reach the cosine, but `a` and `b` can be walked around.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.canonical_text import memoized
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import compatible, is_tensor, likeness
from torchreel.minifier.cases.graph_edits import GraphEditor
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path, graph_at, paths

# How many values a search upwards looks at: a ladder of views around a matmul is about ten.
_REACH = 40
# A node is walked around by the nearest such value first; more than three seldom pays.
_CHOICES = 3


@dataclass(frozen=True)
class Bypass(GraphEdit):
    """Users of `node` use `by` instead."""

    path: Path
    node: str
    by: str

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if both nodes are still there."""
        if editor.has(self.node) and self.by in editor.graph.by_name:
            editor.substitute(self.node, {"n": self.by})


class BypassByEqual(GraphPass):
    """By the nearest values it was computed from that have the same description."""

    name = "bypass"
    gentle = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose the nearest choice for each node first, then all second choices, then
        the third.
        """
        found = [(path, node, _ancestors(graph, node)) for path, graph, node in _used_calls(case)]
        choices = [(path, node, list(islice(names, _CHOICES))) for path, node, names in found]
        return [
            Bypass(path, node.name, names[rank])
            for rank in range(_CHOICES)
            for path, node, names in choices
            if rank < len(names)
        ]


class BypassByAny(GraphPass):
    """By any tensor operand, of any shape: the rest often makes sense all the same."""

    name = "bypass by another shape"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose each operand of each node."""
        return [
            Bypass(path, node.name, name)
            for path, graph, node in _used_calls(case)
            if is_tensor(node.value)
            for name in dict.fromkeys(node.inputs())
            if _is_other_tensor(graph.by_name[name], node)
        ]


def _is_other_tensor(operand: NodeDoc, node: NodeDoc) -> bool:
    equal = compatible(operand.value, node.value)
    return compatible(operand.value, node.value, loose=True) and not equal


def _used_calls(case: Case) -> Iterator[tuple[Path, GraphDoc, NodeDoc]]:
    """Yield the call nodes of every graph that something uses, in order."""
    for path in paths(case.graph):
        graph = graph_at(case, path)
        assert graph is not None, "paths() names graphs that are there"
        used = {name for node in graph.nodes for name in node.inputs()}
        for node in graph.nodes:
            if node.is_call and node.name in used:
                yield path, graph, node


def _ancestors(graph: GraphDoc, node: NodeDoc) -> Iterator[str]:
    """Yield the ancestors of a node that have its description, breadth first."""
    wanted, nodes = _likeness(node), graph.by_name
    queue = deque(node.operands)
    seen: set[str] = set()
    while queue and len(seen) < _REACH:
        name = queue.popleft()
        if name in seen:
            continue
        seen.add(name)
        above = nodes[name]
        if wanted is not None and _likeness(above) == wanted:
            yield name
        queue.extend(above.operands)


@memoized
def _likeness(node: NodeDoc) -> str | None:
    return likeness(node.value)
