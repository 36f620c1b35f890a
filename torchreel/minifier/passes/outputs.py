"""Outputs of the graph: fewer values, or earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import is_symbolic, is_tensor
from torchreel.minifier.cases.graph_edits import GraphEditor, output_items, references, users_of
from torchreel.minifier.cases.side_effects import is_end
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path
from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class DropOutput(GraphEdit):
    """The graph no longer returns the value at `index` (`value` says which that was)."""

    index: int
    value: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if the value is still returned."""
        items = editor.outputs
        for index, item in enumerate(items):
            if _spelled(item) == self.value:
                editor.set_outputs(items[:index] + items[index + 1 :])
                return


@dataclass(frozen=True)
class DropLast(GraphEdit):
    """`node`, which only the output uses, goes; the graph returns its operands instead."""

    node: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if nothing else uses the node by now."""
        if not editor.has(self.node) or not editor.is_output_only(self.node):
            return
        if is_end(editor.graph.by_name[self.node]):
            return
        kept = [item for item in editor.outputs if self.node not in references(item)]
        present = {name for item in kept for name in references(item)}
        operands = [name for name in _returnable(editor, self.node) if name not in present]
        editor.set_outputs(kept + [{"n": name} for name in operands])
        editor.drop(self.node)


@dataclass(frozen=True)
class Keep(GraphEdit):
    """`node` becomes an input; what only it used is returned instead, and so stays alive."""

    node: str
    path: Path = ()

    def apply_to(self, editor: GraphEditor) -> None:
        """Note it, if the node is still there and can be an input."""
        if not editor.has(self.node):
            return
        editor.cut(self.node)
        if editor.has(self.node):
            return
        operands = _returnable(editor, self.node)
        editor.also_return(name for name in operands if editor.users.get(name) == {self.node})


class KeepAlive(GraphPass):
    """Keep values alive as outputs instead of through the node that uses them."""

    name = "outputs instead of users"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose calls that something but the output uses and that alone keep an operand alive."""
        users, output = users_of(case.graph), {case.graph.output.name}
        return [
            Keep(node.name)
            for node in reversed(case.graph.nodes)
            if node.is_call
            and users.get(node.name, output) != output
            and any(
                users[name] == {node.name} and case.graph.by_name[name].is_call
                for name in node.inputs()
            )
        ]


class Outputs(GraphPass):
    """Return less."""

    name = "outputs"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose one edit for each output, the last first."""
        items = list(enumerate(output_items(case.graph)))
        return [DropOutput(index, _spelled(item)) for index, item in reversed(items)]


class Suffix(GraphPass):
    """Stop earlier: values are kept alive as outputs, not through what uses them."""

    name = "suffix"
    only_prefix = True

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose the calls, the last first, so that a run of edits is a suffix."""
        return [DropLast(node.name) for node in reversed(case.graph.nodes) if node.is_call]


class LastCalls(GraphPass):
    """Leave out single calls that only the output uses; their operands are returned instead."""

    name = "ends"

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """Propose such calls, the last first."""
        users, output = users_of(case.graph), {case.graph.output.name}
        return [
            DropLast(node.name)
            for node in reversed(case.graph.nodes)
            if node.is_call and users.get(node.name) == output
        ]


def _spelled(item: Json) -> str:
    names = references(item)
    return names[0] if names else repr(item)


def _returnable(editor: GraphEditor, name: str) -> list[str]:
    """Return the operands of a node that a graph may return.

    Computed tensors and symbolic numbers.
    """
    by_name = editor.graph.by_name
    operands = [by_name[operand] for operand in dict.fromkeys(by_name[name].inputs())]
    return [
        node.name
        for node in operands
        if node.is_call and (is_tensor(node.value) or is_symbolic(node.value))
    ]
