"""Regions that are opened and closed: autocast, levels of vmap; both ends go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.graph_edits import GraphEditor, users_of
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path, graph_at, paths
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list

_OPENS = "_vmap_increment_nesting"
_CLOSES = "_vmap_decrement_nesting"
_LOADS = "lazy_load_decompositions"


@dataclass(frozen=True)
class DropRegion(GraphEdit):
    """These nodes go; `uses` are used as the values that they wrapped."""

    path: Path
    nodes: tuple[str, ...]
    uses: tuple[tuple[str, str], ...] = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if all of it is still there."""
        if not all(editor.has(name) for name in self.nodes):
            return
        for name in self.nodes:
            editor.drop(name)
        for name, inner in self.uses:
            editor.substitute(name, {"n": inner})


class Regions(GraphPass):
    """Drop autocast regions and levels of vmap."""

    name = "regions"
    together = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose one edit for each region of every graph, the inner ones first."""
        found: list[GraphEdit] = []
        for path in paths(case.graph):
            graph = graph_at(case, path)
            assert graph is not None, "paths() names graphs that are there"
            found += [*_autocast(path, graph), *_levels(path, graph)]
        return found


def _autocast(path: Path, graph: GraphDoc) -> list[GraphEdit]:
    users = users_of(graph)
    found: list[GraphEdit] = []
    for node in reversed(graph.nodes):
        if _called(node) == "_enter_autocast":
            ends = sorted(users.get(node.name, ()))
            if all(_called(graph.by_name[name]) == "_exit_autocast" for name in ends):
                found.append(DropRegion(path, (node.name, *ends)))
    return found


def _levels(path: Path, graph: GraphDoc) -> list[GraphEdit]:
    """Return an edit for each opened level of vmap, with its end and the wrappers between."""
    found: list[GraphEdit] = []
    open_levels: list[tuple[list[str], list[tuple[str, str]]]] = []
    before = ""
    for node in graph.nodes:
        name = _called(node)
        if name == _OPENS:
            loader = [before] if before else []
            open_levels.append(([*loader, node.name], []))
        elif name in ("_add_batch_dim", "_remove_batch_dim"):
            _wrapped(node, open_levels)
        elif name == _CLOSES and open_levels:
            nodes, uses = open_levels.pop()
            found.append(DropRegion(path, (*nodes, node.name), tuple(uses)))
        before = node.name if name == _LOADS else ""
    return found


def _wrapped(node: NodeDoc, levels: list[tuple[list[str], list[tuple[str, str]]]]) -> None:
    """Note a value that is wrapped or unwrapped at its level, which is counted from 1."""
    args = as_list(node.args)
    level = args[2 if _called(node) == "_add_batch_dim" else 1] if len(args) > 2 else None
    inner = next(iter(node.inputs()), None)
    if isinstance(level, int) and 0 < level <= len(levels) and inner is not None:
        levels[level - 1][1].append((node.name, inner))


def _called(node: NodeDoc) -> Json:
    return node.target.rpartition(".")[2] if node.is_call else None
