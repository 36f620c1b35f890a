"""Let the inputs have the shape that a view gives a value on the way.

In `tanh -> view -> layer_norm` the view can't be walked around, because the norm is told the shape
that the view made; and no dimension of the input can go, because the view is told it. What stands
before a view is elementwise as a rule: with an input of the new shape there is nothing to view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input, compatible, is_tensor
from torchreel.minifier.cases.graph_edits import GraphEditor
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


@dataclass(frozen=True)
class Reshape(CaseEdit):
    """Users of `node` use `by`; what `by` is computed from and had its shape gets the node's."""

    node: str
    by: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the node.

        None if no input had the shape, or one of the two is gone.
        """
        known = case.graph.by_name
        if self.node not in known or self.by not in known:
            return None
        node, by = known[self.node], known[self.by]
        inputs = _inputs_like(case, by)
        made = as_object(as_input(node.value))
        if not inputs or "stride" not in made:
            return None
        editor = GraphEditor(case.graph, case.checkpoint.inputs)
        editor.substitute(node.name, {"n": by.name})
        finished = editor.finish()
        if finished is None:
            return None
        graph, values = finished
        shaped = tuple(
            {**as_object(value), **{key: made[key] for key in ("size", "stride")}, "offset": 0}
            if name in inputs
            else value
            for name, value in zip((p.name for p in graph.placeholders), values, strict=True)
        )
        return case.with_graph(_described(graph, shaped), shaped)


class ReshapeInputs(CasePass):
    """Walk around a call by an operand of another shape, and give inputs the shape it makes."""

    name = "bypass with inputs of another shape"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose each tensor operand of each call of the outer graph that has another shape."""
        used = {name for node in case.graph.nodes for name in node.operands}
        return [
            Reshape(node.name, name)
            for node in case.graph.nodes
            if node.is_call and node.name in used and is_tensor(node.value)
            for name in dict.fromkeys(node.inputs())
            if _is_reshaped(case.graph.by_name[name], node)
            and _inputs_like(case, case.graph.by_name[name])
        ]


def _is_reshaped(operand: NodeDoc, node: NodeDoc) -> bool:
    same = as_list(as_object(operand.value).get("size")) == as_list(
        as_object(node.value).get("size")
    )
    return compatible(operand.value, node.value, loose=True) and not same


def _inputs_like(case: Case, node: NodeDoc) -> set[str]:
    """Return the inputs with the sizes of a node that it is computed from; itself, if it is one."""
    known, wanted = case.graph.by_name, as_object(node.value).get("size")
    described = dict(
        zip((p.name for p in case.graph.placeholders), case.checkpoint.inputs, strict=True)
    )
    found: set[str] = set()
    seen, waiting = {node.name}, [node.name]
    while waiting:
        name = waiting.pop()
        fields = as_object(described.get(name))
        if is_tensor(fields) and fields.get("size") == wanted and "storage" not in fields:
            found.add(name)
        more = [above for above in known[name].operands if above not in seen]
        seen.update(more)
        waiting += more
    return found


def _described(graph: GraphDoc, inputs: Sequence[Json]) -> GraphDoc:
    """Return the graph with what its inputs are now."""
    values = dict(zip((p.name for p in graph.placeholders), inputs, strict=True))

    def with_value(node: NodeDoc) -> NodeDoc:
        if node.name not in values:
            return node
        key = "val" if "val" in node.meta else "example_value"
        return replace(node, meta={**node.meta, key: values[node.name]})

    return replace(graph, nodes=tuple(map(with_value, graph.nodes)))
