"""Numbers that a graph computes become the numbers they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import UNBACKED_SIZE, constant_of, is_unbacked
from torchreel.minifier.cases.graph_edits import GraphEditor
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path
from torchreel.store.documents.jsontypes import Json, json_text, parse_json
from torchreel.store.documents.kinds import as_object


@dataclass(frozen=True)
class Constant(GraphEdit):
    """The uses of `node` become its value."""

    node: str
    value: str
    """The argument as JSON: an edit is hashed, and a float is an object."""
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if the node is still there."""
        if editor.has(self.node):
            editor.substitute(self.node, parse_json(self.value))


class Scalars(GraphPass):
    """Replace computed sizes and conditions by their hints."""

    name = "numbers"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose every call whose value is a number with a hint."""
        found = [(node.name, _number(node.value)) for node in case.graph.nodes if node.is_call]
        return [Constant(name, json_text(value)) for name, value in found if value is not None]


def _number(value: Json) -> Json:
    """Return the number as an argument; None where there is none."""
    described = as_object(value)
    symbolic = described.get("k") in ("symint", "symbool", "symfloat")
    if described.get("k") == "symint" and is_unbacked(described.get("expr")):
        return UNBACKED_SIZE
    return described.get("hint") if symbolic else constant_of(value)
