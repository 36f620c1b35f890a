"""Make values inputs: what computed them is no longer needed.

`Prefix` cuts the first so many nodes at once, `Cut` any single one, `Chunks` regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input
from torchreel.minifier.cases.graph_edits import GraphEditor, users_of
from torchreel.minifier.cases.side_effects import is_end
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path

# Regions smaller than this are left to the passes that try single nodes.
_SMALLEST_CHUNK = 3
# Halves, quarters, ... down to this share of the graph.
_FINEST = 16


@dataclass(frozen=True)
class ToInput(GraphEdit):
    """`node` becomes an input with the layout it has."""

    node: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if the node is still there."""
        if editor.has(self.node):
            editor.cut(self.node)


@dataclass(frozen=True)
class CutPrefix(GraphEdit):
    """`node` comes before the part that is kept: an input if it can be one, else nothing."""

    node: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it; a node that others still need and that can't be an input stays."""
        if not editor.has(self.node):
            return
        editor.cut(self.node)
        closes = is_end(editor.graph.by_name[self.node])
        if editor.has(self.node) and self.node not in editor.users and not closes:
            editor.drop(self.node)


@dataclass(frozen=True)
class Region(GraphEdit):
    """None of these nodes is computed; what others use of them becomes inputs."""

    nodes: tuple[str, ...]
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it for those that are still there; what only the region used goes by itself."""
        inside = set(self.nodes)
        for name in filter(editor.has, self.nodes):
            users = editor.users.get(name, set())
            if not users and not is_end(editor.graph.by_name[name]):
                editor.drop(name)
            elif users and not users <= inside:
                editor.cut(name)


class Prefix(GraphPass):
    """Start later: the values that the first k nodes leave behind become inputs."""

    name = "prefix"
    only_prefix = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose the calls in order, so that a run of edits is a prefix."""
        return [CutPrefix(node.name) for node in case.graph.nodes if node.is_call]


class Cut(GraphPass):
    """Make a single node an input."""

    name = "node to input"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose every used call that has a description to make an input of, the last first."""
        used = users_of(case.graph)
        return [
            ToInput(node.name)
            for node in reversed(case.graph.nodes)
            if node.is_call and node.name in used and as_input(node.value) is not None
        ]


class Chunks(GraphPass):
    """Delta debugging over the dependency graph: leave out what belongs together."""

    name = "chunks"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose halves, quarters and so on of the nodes in depth-first order from the outputs."""
        order = depth_first(case.graph)
        found: list[GraphEdit] = []
        parts = 2
        while parts <= _FINEST and len(order) // parts >= _SMALLEST_CHUNK:
            size = -(-len(order) // parts)
            found += [Region(tuple(order[at : at + size])) for at in range(0, len(order), size)]
            parts *= 2
        return found


def depth_first(graph: GraphDoc) -> list[str]:
    """Return the calls in the order in which a depth-first walk from the output leaves them.

    What only one node needs stands right before it, so that a chunk is a connected region.
    """
    order: list[str] = []
    seen: set[str] = set()
    for root in reversed(graph.nodes):
        stack = [(root, iter(root.inputs()))] if root.name not in seen else []
        seen.add(root.name)
        while stack:
            node, operands = stack[-1]
            name = next((name for name in operands if name not in seen), None)
            if name is None:
                order.append(node.name)
                stack.pop()
            else:
                seen.add(name)
                stack.append((graph.by_name[name], iter(graph.by_name[name].inputs())))
    return [name for name in order if graph.by_name[name].is_call]
