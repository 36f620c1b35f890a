"""Unused nodes (with effects or without) and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.graph_edits import GraphEditor, users_of
from torchreel.minifier.cases.side_effects import is_effectful, is_end
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path, graph_at, paths


@dataclass(frozen=True)
class DropNode(GraphEdit):
    """An unused node goes."""

    node: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if the node is still there."""
        if editor.has(self.node):
            editor.drop(self.node)


class DeadCode(GraphPass):
    """Drop calls that nothing uses: those without effects first, then regions, checks, writes."""

    name = "dead code"
    together = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose to drop every unused call of every graph."""
        dead = []
        for path in paths(case.graph):
            graph = graph_at(case, path)
            assert graph is not None, "paths() names graphs that are there"
            used = users_of(graph)
            dead += [(is_effectful(n), path, n.name) for n in reversed(graph.nodes)
                     if n.op not in ("placeholder", "output") and n.name not in used
                     and not is_end(n)]  # fmt: skip
        return [DropNode(name, path) for _, path, name in sorted(dead, key=lambda row: row[0])]


class UnusedInputs(GraphPass):
    """Drop inputs that nothing uses."""

    name = "unused inputs"
    together = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose to drop every unused placeholder of the outer graph."""
        used = users_of(case.graph)
        return [DropNode(node.name) for node in case.graph.placeholders if node.name not in used]
