"""Put the body of a higher-order operator in the place of its call.

The case may hold more nodes outside of bodies then; it holds fewer in all, which is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.node_arguments import map_tree
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input
from torchreel.minifier.cases.graph_edits import output_items, pruned, references, shaped_like
from torchreel.minifier.cases.subgraphs import HigherOrderCall, call_of, getitems
from torchreel.minifier.passes.base import CaseEdit, CasePass, Path, graph_at, with_graph_at
from torchreel.minifier.passes.operands import nested_calls
from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class InlineBody(CaseEdit):
    """The body at `index` once, instead of the call."""

    path: Path
    call: str
    index: int

    def on(self, case: Case) -> Case | None:
        """Return the case inlined; None if the call can't be.

        Slices that a body gets, and stacked results, become inputs.
        """
        graph = graph_at(case, self.path)
        node = graph.by_name.get(self.call) if graph is not None else None
        call = call_of(graph, node) if graph is not None and node is not None else None
        if graph is None or call is None:
            return None
        work = _Inlining(graph, call, self.index, outer=not self.path)
        new = work.build()
        if new is None:
            return None
        if self.path:
            return with_graph_at(case, self.path, new)
        return case.with_graph(new, (*case.checkpoint.inputs, *work.inputs.values()))


class InlineBodies(CasePass):
    """Inline bodies."""

    name = "inline bodies"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose, for each call, each of its bodies: those that make its results first."""
        found: list[CaseEdit] = []
        for path, _, call in nested_calls(case):
            numbers = range(len(call.bodies))
            others = [n for n in numbers if n not in call.layout.givers]
            order = [*call.layout.givers, *others]
            distinct = [n for n in order if call.names.index(call.names[n]) == n]
            found += [InlineBody(path, call.node.name, number) for number in distinct]
        return found


class _Inlining:
    """One body being put in the place of one call."""

    def __init__(self, graph: GraphDoc, call: HigherOrderCall, index: int, *, outer: bool) -> None:
        self.graph, self.call, self.index, self.outer = graph, call, index, outer
        self.body = call.bodies[index]
        self.inputs: dict[str, Json] = {}  # new inputs of the outer graph, by name
        taken = {node.name for node in graph.nodes}
        self._names = {node.name: _fresh(node.name, taken) for node in self.body.nodes}
        self._modules = _renamed(self.body.modules, graph.modules)
        self._attributes = _renamed(self.body.attributes, graph.attributes)

    def build(self) -> GraphDoc | None:
        """Return the graph with the body in it; None where it can't be."""
        handed = self._handed()
        picked = getitems(self.graph, self.call)
        if handed is None or picked is None or (self.inputs and not self.outer):
            return None

        def inside(name: str) -> Json:
            return handed.get(name, {"n": self._names[name]})

        nodes = [
            self._moved(replace(node.mapped(inside), name=self._names[node.name]))
            for node in self.body.nodes if node.op not in ("placeholder", "output")
        ]  # fmt: skip
        returned = [map_tree(item, inside) for item in self.call.returned(self.index)]
        results = self._results(picked, returned)
        return self._assembled(nodes, results, returned) if results is not None else None

    def _handed(self) -> dict[str, Json] | None:
        """Return the operands, or new inputs of the outer graph, that replace the body's inputs.

        None if such an input has no description.
        """
        placeholders = self.body.placeholders
        handed: dict[str, Json] = {}
        for group in self.call.layout.groups:
            for number, item in enumerate(self.call.items(group)):
                for at in self.call.inputs_of(self.index, group, number):
                    plain = group.kind in ("operand", "carry")
                    handed[placeholders[at].name] = item if plain else None
        for node in placeholders:
            if handed.get(node.name) is None:
                description = as_input(node.value)
                if description is None:
                    return None
                self.inputs[self._names[node.name]] = description
                handed[node.name] = {"n": self._names[node.name]}
        return handed

    def _results(self, picked: Mapping[str, int], returned: list[Json]) -> dict[str, Json] | None:
        """Return the values that replace the picked results of the call; None if there are none."""
        layout, found = self.call.layout, dict[str, Json]()
        for name, number in picked.items():
            carry = number < self.call.carries and self.call.group("pair") is None
            same = not layout.stacks or carry
            if self.index in layout.givers and same and number < len(returned):
                found[name] = returned[number]
                continue
            description = as_input(self.graph.by_name[name].value)
            if description is None or not self.outer:
                return None
            self.inputs[name] = description
            found[name] = {"n": name}
        return found

    def _moved(self, node: NodeDoc) -> NodeDoc:
        """Return a node that names nested graphs and constants as they are called outside."""
        if node.op not in ("get_attr", "call_module"):
            return node
        target = self._modules.get(node.target) or self._attributes.get(node.target, node.target)
        return replace(node, target=target)

    def _assembled(
        self, nodes: list[NodeDoc], results: Mapping[str, Json], returned: list[Json]
    ) -> GraphDoc:
        key = "val" if "val" in self.call.node.meta else "example_value"
        new = [NodeDoc(n, "placeholder", n, [], {}, {key: v}) for n, v in self.inputs.items()]
        gone = {self.call.node.name, *results}
        before, after = _split([n for n in self.graph.nodes if n.op != "placeholder"], self.call)

        def outside(name: str) -> Json:
            return results.get(name, {"n": name})

        rest = [node.mapped(outside) for node in after if node.name not in gone]
        graph = replace(
            self.graph,
            nodes=(*self.graph.placeholders, *new, *before, *nodes, *rest),
            modules={**self.graph.modules,
                     **{to: self.body.modules[name] for name, to in self._modules.items()}},
            attributes={**self.graph.attributes,
                        **{to: self.body.attributes[n] for n, to in self._attributes.items()}},
        )  # fmt: skip
        return pruned(self._all_returned(graph, returned) if self.outer else graph)

    def _all_returned(self, graph: GraphDoc, returned: list[Json]) -> GraphDoc:
        """Keep unused return values of the body alive as outputs."""
        used = {name for node in graph.nodes for name in node.inputs()}
        computed = {node.name for node in graph.nodes if node.is_call}
        more: list[Json] = []
        for item in returned:
            (name, *_) = references(item) or [""]
            if name in computed and name not in used and item not in more:
                more.append(item)
        output = graph.output
        args = shaped_like(output.args, [*output_items(graph), *more]) if more else output.args
        return replace(graph, nodes=(*graph.nodes[:-1], replace(output, args=args)))


def _split(nodes: Sequence[NodeDoc], call: HigherOrderCall) -> tuple[list[NodeDoc], list[NodeDoc]]:
    at = next(i for i, node in enumerate(nodes) if node.name == call.node.name)
    return list(nodes[:at]), list(nodes[at + 1 :])


def _fresh(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet; it is now."""
    number, fresh = 1, name
    while fresh in taken:
        fresh = f"{name}_in{number}"
        number += 1
    taken.add(fresh)
    return fresh


def _renamed(inner: Mapping[str, object], outer: Mapping[str, object]) -> dict[str, str]:
    taken = set(outer)
    return {name: _fresh(name, taken) for name in inner}
