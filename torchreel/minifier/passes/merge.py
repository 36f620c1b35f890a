"""Fewer values from outside: two inputs become one, a constant becomes an input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input, compatible
from torchreel.minifier.cases.graph_edits import GraphEditor, pruned, users_of
from torchreel.minifier.passes.base import (
    CaseEdit,
    CasePass,
    GraphEdit,
    GraphPass,
    Path,
    graph_at,
    paths,
)
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object


@dataclass(frozen=True)
class MergeInput(GraphEdit):
    """Uses of input `node` become uses of input `by`."""

    path: Path
    node: str
    by: str

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it; an input of a body stays (its call hands it over), without a use."""
        if editor.has(self.node) and editor.has(self.by):
            editor.substitute(self.node, {"n": self.by}, keep=bool(self.path))


@dataclass(frozen=True)
class ConstantToInput(CaseEdit):
    """A constant tensor of the outer graph (by its attribute) is an input."""

    name: str

    def on(self, case: Case) -> Case | None:
        """Return the case with the input.

        None if there is no such constant, or it can be no input.
        """
        graph = case.graph
        description = as_input(graph.attributes.get(self.name))
        nodes = [n for n in graph.nodes if n.op == "get_attr" and n.target == self.name]
        if description is None or not nodes:
            return None
        key = "val" if case.checkpoint.entry == "aot" else "example_value"
        new = NodeDoc(nodes[0].name, "placeholder", nodes[0].name, [], {}, {key: description})
        editor = GraphEditor(
            _with_input(graph, nodes[0], new), (*case.checkpoint.inputs, description)
        )
        for node in nodes[1:]:
            editor.substitute(node.name, {"n": new.name})
        made = editor.finish()
        return case.with_graph(pruned(made[0]), made[1]) if made is not None else None


class MergeInputs(GraphPass):
    """Let one input be used for another of the same description; in bodies as well."""

    name = "merge inputs"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose to replace each used input by the first that is like it."""
        found: list[GraphEdit] = []
        for path in paths(case.graph):
            graph = graph_at(case, path)
            assert graph is not None, "paths() names graphs that are there"
            values = [node.value for node in graph.placeholders]
            if not path:
                values = list(case.checkpoint.inputs)
            found += _alike(path, graph, values)
        return found


class ConstantsToInputs(CasePass):
    """Constants become inputs."""

    name = "constants"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each constant of the outer graph."""
        return [ConstantToInput(name) for name in sorted(case.graph.attributes)]


def _alike(path: Path, graph: GraphDoc, values: list[Json]) -> list[GraphEdit]:
    used = users_of(graph)
    names = [node.name for node in graph.placeholders]
    found: list[GraphEdit] = []
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        if name not in used:
            continue
        first = next((i for i in range(at) if _same(values[i], value)), None)
        if first is not None:
            found.append(MergeInput(path, name, names[first]))
    return found


def _same(one: Json, other: Json) -> bool:
    a, b = as_object(one), as_object(other)
    equal = a.get("stride") == b.get("stride") and a.get("requires_grad") == b.get("requires_grad")
    return compatible(one, other) and equal and (a.get("k") == "tensor" or one == other)


def _with_input(graph: GraphDoc, old: NodeDoc, new: NodeDoc) -> GraphDoc:
    rest = [n for n in graph.nodes if n.op != "placeholder" and n.name != old.name]
    return replace(graph, nodes=(*graph.placeholders, new, *rest))
