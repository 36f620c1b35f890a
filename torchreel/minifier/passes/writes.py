"""Calls that write to a tensor become calls that compute a new one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.side_effects import written_operand
from torchreel.minifier.passes.base import CaseEdit, CasePass, Path, graph_at, paths, with_graph_at
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list

_IN_PLACE_OPERATOR = re.compile(r"^fn:_operator\.i(?=[a-z])")


@dataclass(frozen=True)
class OutOfPlace(CaseEdit):
    """`node` computes a new tensor; what used the one it wrote to after it uses that, or not."""

    path: Path
    node: str
    follow: bool

    def on(self, case: Case) -> Case | None:
        """Return the case without the write; None if the node is gone or writes nothing."""
        graph = graph_at(case, self.path)
        node = graph.by_name.get(self.node) if graph is not None else None
        target = out_of_place(node) if node is not None else None
        if graph is None or node is None or target is None:
            return None
        new = replace(node, target=target)
        return with_graph_at(case, self.path, self._built(graph, new))

    def _built(self, graph: GraphDoc, new: NodeDoc) -> GraphDoc:
        written = written_operand(new) or next(iter(new.inputs()), None)

        def use(name: str) -> Json:
            return {"n": new.name if self.follow and name == written else name}

        at = graph.nodes.index(graph.by_name[new.name])
        later = [node.mapped(use) for node in graph.nodes[at + 1 :]]
        return replace(graph, nodes=(*graph.nodes[:at], new, *later))


class NoWrites(CasePass):
    """Write to no tensor."""

    name = "writes"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose two out-of-place forms for each call that writes to its first operand."""
        found: list[CaseEdit] = []
        for follow in (True, False):
            for path in paths(case.graph):
                graph = graph_at(case, path)
                assert graph is not None, "paths() names graphs that are there"
                writers = [node for node in graph.nodes if out_of_place(node) is not None]
                found += [OutOfPlace(path, node.name, follow) for node in reversed(writers)]
        return found


def out_of_place(node: NodeDoc) -> str | None:
    """Return the out-of-place name of a call that writes to its first operand; None for others."""
    if not node.is_call or not as_list(node.args):
        return None
    if _IN_PLACE_OPERATOR.search(node.target) and written_operand(node) is not None:
        return _IN_PLACE_OPERATOR.sub("fn:_operator.", node.target)
    kind, colon, rest = node.target.partition(":")
    name = rest if colon else node.target
    head, dot, overload = name.rpartition(".") if kind == "op" else (name, "", "")
    if written_operand(node) is None or not head.endswith("_"):
        return None
    return f"{kind}:{head[:-1]}{dot}{overload}" if colon else head[:-1]
