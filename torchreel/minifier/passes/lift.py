"""Let a body get a value that it computes: one more operand, one more input of the outer graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input
from torchreel.minifier.cases.graph_edits import GraphEditor, users_of
from torchreel.minifier.cases.subgraphs import Group, HigherOrderCall, call_of, calls_in, sites
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class Lift(CaseEdit):
    """`node` of a body of `call` (in the outer graph) comes from outside."""

    call: str
    body: int
    node: str

    def on(self, case: Case) -> Case | None:
        """Return the case with one input and one operand more, and what computed the value gone."""
        graph = case.graph
        at = graph.by_name.get(self.call)
        call = call_of(graph, at) if at is not None else None
        group = _operands(call, self.body) if call is not None else None
        if call is None or group is None or len(sites(graph, call) or ()) != 1:
            return None
        node = call.bodies[self.body].by_name.get(self.node)
        description = as_input(node.value) if node is not None else None
        if node is None or not node.is_call or description is None:
            return None
        return _lifted(case, call, group, self, description)


class LiftValues(CasePass):
    """Values that bodies compute come from outside."""

    name = "body node to input"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose every used call in the bodies of the outer graph, the last first."""
        found: list[CaseEdit] = []
        for call in calls_in(case.graph):
            for body, graph in enumerate(call.bodies):
                if _operands(call, body) is None or call.names.index(call.names[body]) != body:
                    continue
                if body not in call.layout.givers and call.node.target == "hop:while_loop":
                    continue  # a condition from outside never changes: the loop would not end
                used = users_of(graph)
                found += [
                    Lift(call.node.name, body, node.name)
                    for node in reversed(graph.nodes)
                    if node.is_call and node.name in used and as_input(node.value) is not None
                ]
        return found


def _operands(call: HigherOrderCall, body: int) -> Group | None:
    return call.group("operand", body)


def _lifted(
    case: Case, call: HigherOrderCall, group: Group, edit: Lift, description: Json
) -> Case | None:
    graph = case.graph
    name = _fresh(edit.node, {node.name for node in graph.nodes})
    key = "val" if "val" in call.node.meta else "example_value"
    outer = NodeDoc(name, "placeholder", name, [], {}, {key: description})
    modules = dict(graph.modules)
    for body in group.bodies:
        if call.names.index(call.names[body]) == body:
            taken = {node.name for node in call.bodies[body].nodes}
            inner = replace(outer, name=_fresh(f"{edit.node}_in", taken))
            new = _with_input(call, body, inner)
            modules[call.names[body]] = new
            if call.names[body] == call.names[edit.body]:
                editor = GraphEditor(new)
                editor.substitute(edit.node, {"n": inner.name})
                made = editor.finish()
                if made is None:
                    return None
                modules[call.names[body]] = made[0]
    node = call.with_items(group, [*call.items(group), {"n": name}])
    calls = [node if n.name == node.name else n for n in graph.nodes if n.op != "placeholder"]
    new_graph = replace(graph, nodes=(*graph.placeholders, outer, *calls), modules=modules)
    return case.with_graph(new_graph, (*case.checkpoint.inputs, description))


def _with_input(call: HigherOrderCall, body: int, node: NodeDoc) -> GraphDoc:
    """Return a body with one input more, after all others: operands come last."""
    graph = call.bodies[body]
    rest = [n for n in graph.nodes if n.op != "placeholder"]
    return replace(graph, nodes=(*graph.placeholders, node, *rest))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
