"""Operands and results of the bodies of a higher-order operator: fewer of both.

A body and its call change together, and with them every other call of the same body. Reducing
inside a body is what the passes over nodes do; here is what they leave behind: operands that no
body reads, results that nobody uses, carries that need not change, a branch that is never decisive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.graph_edits import output_items, pruned, shaped_like, users_of
from torchreel.minifier.cases.subgraphs import (
    Group,
    HigherOrderCall,
    call_of,
    calls_in,
    getitems,
    sites,
)
from torchreel.minifier.passes.base import CaseEdit, CasePass, Path, graph_at, paths, with_graph_at
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list

Change = Callable[[GraphDoc, HigherOrderCall], GraphDoc | None]


@dataclass(frozen=True)
class DropOperand(CaseEdit):
    """No body gets that item of a group of arguments any more (none uses it)."""

    path: Path
    call: str
    at: int
    index: int

    def on(self, case: Case) -> Case | None:
        """Return the case without it, in the call and in the bodies.

        None if a body uses it after all.
        """

        def change(graph: GraphDoc, call: HigherOrderCall) -> GraphDoc | None:
            group = _group(call, self.at)
            found = sites(graph, call)
            if group is None or found is None or not _is_unused(call, group, self.index):
                return None
            if group.kind != "operand" and len(call.items(group)) == 1:
                return None  # there has to be something to go through
            if group.kind != "pair":
                return without_item(graph, found, group, self.index)
            less = without_result(graph, found, self.index)  # the output that belongs to it
            nodes = [less.by_name[site.node.name] for site in found] if less is not None else []
            if less is None:
                return None
            modules = tuple(less.modules[name] for name in call.names)
            again = [replace(call, node=node, bodies=modules) for node in nodes]
            return without_item(less, again, group, self.index)

        return _changed(case, self.path, self.call, change)


@dataclass(frozen=True)
class DropResult(CaseEdit):
    """The call no longer has that result (nobody uses it)."""

    path: Path
    call: str
    index: int

    def on(self, case: Case) -> Case | None:
        """Return the case without it, in the bodies and in what picks the others."""

        def change(graph: GraphDoc, call: HigherOrderCall) -> GraphDoc | None:
            found = sites(graph, call)
            if found is None or not call.carries <= self.index < call.results:
                return None
            return without_result(graph, found, self.index)

        return _changed(case, self.path, self.call, change)


@dataclass(frozen=True)
class Freeze(CaseEdit):
    """A carry stays what it was at first: an ordinary operand of the bodies."""

    path: Path
    call: str
    index: int

    def on(self, case: Case) -> Case | None:
        """Return the case with an operand for the carry.

        Whoever used its last value uses its first.
        """

        def change(graph: GraphDoc, call: HigherOrderCall) -> GraphDoc | None:
            carry, operand = _of_kind(call, "carry"), _of_kind(call, "operand")
            found = sites(graph, call)
            if carry is None or operand is None or found is None or len(found) != 1:
                return None
            if self.index >= len(call.items(carry)) or len(call.items(carry)) == 1:
                return None
            if call.node.target == "hop:while_loop" and _is_decisive(call, carry, self.index):
                return None  # the loop would not end
            return _frozen(graph, call, carry, operand, self.index)

        return _changed(case, self.path, self.call, change)


@dataclass(frozen=True)
class SameBranch(CaseEdit):
    """Both branches of a cond are the one at `index`."""

    path: Path
    call: str
    index: int

    def on(self, case: Case) -> Case | None:
        """Return the case with one branch twice, under one name."""

        def change(graph: GraphDoc, call: HigherOrderCall) -> GraphDoc | None:
            if call.node.target != "hop:cond" or call.names[0] == call.names[1]:
                return None
            args = as_list(call.node.args)
            args[2 - self.index] = args[1 + self.index]
            return pruned(_with_nodes(graph, {call.node.name: replace(call.node, args=args)}))

        return _changed(case, self.path, self.call, change)


class BodyOperands(CasePass):
    """Drop operands that no body uses, and results that nobody does."""

    name = "operands of bodies"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose, for each call: its results, then its operands, the last first."""
        found: list[CaseEdit] = []
        for path, graph, call in nested_calls(case):
            alike = sites(graph, call)
            if alike is None or alike[0].node.name != call.node.name:
                continue  # one proposal for all calls of a body
            used = _used_results(graph, alike)
            found += [
                DropResult(path, call.node.name, index)
                for index in reversed(range(call.carries, call.results))
                if used is not None and index not in used
            ]
            found += [
                DropOperand(path, call.node.name, group.at, index)
                for group in reversed(call.layout.groups)
                if group.kind != "carry"
                for index in reversed(range(len(call.items(group))))
                if _is_unused(call, group, index)
                if group.kind != "pair" or (used is not None and index not in used)
            ]
        return found


class Carries(CasePass):
    """Make carries constant."""

    name = "carries"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each carry, the last first."""
        found: list[CaseEdit] = []
        for path, _, call in nested_calls(case):
            group = _of_kind(call, "carry")
            count = len(call.items(group)) if group is not None else 0
            found += [Freeze(path, call.node.name, i) for i in reversed(range(count))]
        return found


class OneBranch(CasePass):
    """Let both branches of a cond be the same."""

    name = "one branch"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose either branch of each cond that has two."""
        return [
            SameBranch(path, call.node.name, index)
            for path, _, call in nested_calls(case)
            if call.node.target == "hop:cond" and call.names[0] != call.names[1]
            for index in (0, 1)
        ]


def nested_calls(case: Case) -> Iterator[tuple[Path, GraphDoc, HigherOrderCall]]:
    """Yield the calls of higher-order operators in every graph, the outer graph first."""
    for path in paths(case.graph):
        graph = graph_at(case, path)
        assert graph is not None, "paths() names graphs that are there"
        for call in calls_in(graph):
            yield path, graph, call


def _changed(case: Case, path: Path, name: str, change: Change) -> Case | None:
    """Return the case with one graph changed, if the call is still there."""
    graph = graph_at(case, path)
    node = graph.by_name.get(name) if graph is not None else None
    call = call_of(graph, node) if graph is not None and node is not None else None
    new = change(graph, call) if graph is not None and call is not None else None
    return with_graph_at(case, path, new) if new is not None else None


def _is_decisive(call: HigherOrderCall, carry: Group, index: int) -> bool:
    """Return True if the condition of a loop looks at a carry."""
    (at,) = call.inputs_of(0, carry, index)
    return call.bodies[0].placeholders[at].name in users_of(call.bodies[0])


def _group(call: HigherOrderCall, at: int) -> Group | None:
    return next((group for group in call.layout.groups if group.at == at), None)


def _of_kind(call: HigherOrderCall, kind: str) -> Group | None:
    return next((group for group in call.layout.groups if group.kind == kind), None)


def _is_unused(call: HigherOrderCall, group: Group, index: int) -> bool:
    """Return True if no body uses what it is handed for an item."""
    for body in group.bodies:
        placeholders = call.bodies[body].placeholders
        used = users_of(call.bodies[body])
        for at in call.inputs_of(body, group, index):
            if at >= len(placeholders) or placeholders[at].name in used:
                return False
    return index < len(call.items(group))


def _used_results(graph: GraphDoc, found: list[HigherOrderCall]) -> set[int] | None:
    used: set[int] = set()
    for call in found:
        picked = getitems(graph, call)
        if picked is None:
            return None
        used |= set(picked.values())
    return used


def without_item(
    graph: GraphDoc, found: Sequence[HigherOrderCall], group: Group, index: int
) -> GraphDoc:
    """Return the graph in which an operand is handed to no body.

    The bodies no longer have the input.
    """
    call = found[0]
    modules = dict(graph.modules)
    for body in group.bodies:
        gone = set(call.inputs_of(body, group, index))
        modules[call.names[body]] = _without_inputs(modules[call.names[body]], gone, call, body)
    nodes = {}
    for site in found:
        items = site.items(group)
        nodes[site.node.name] = site.with_items(group, items[:index] + items[index + 1 :])
    return _with_nodes(replace(graph, modules=modules), nodes)


def _without_inputs(graph: GraphDoc, gone: set[int], call: HigherOrderCall, body: int) -> GraphDoc:
    if call.names.index(call.names[body]) != body:
        return graph  # the same body twice: it was seen to under the first number
    names = {graph.placeholders[at].name for at in gone}
    return replace(graph, nodes=tuple(n for n in graph.nodes if n.name not in names))


def without_result(
    graph: GraphDoc, found: Sequence[HigherOrderCall], index: int
) -> GraphDoc | None:
    """Return the graph in which the calls have one result less; None where somebody uses it."""
    call = found[0]
    nodes: dict[str, NodeDoc] = {}
    for site in found:
        picked = getitems(graph, site)
        if picked is None or index in picked.values():
            return None
        for name, number in picked.items():
            if number > index:
                node = graph.by_name[name]
                nodes[name] = replace(node, args=[as_list(node.args)[0], number - 1])
        nodes[site.node.name] = _without_value(site.node, index)
    modules = dict(graph.modules)
    for name in {call.names[giver] for giver in call.layout.givers}:
        modules[name] = with_outputs(
            modules[name], lambda items: items[:index] + items[index + 1 :]
        )
    return _with_nodes(replace(graph, modules=modules), nodes)


def with_outputs(graph: GraphDoc, change: Callable[[list[Json]], list[Json]]) -> GraphDoc:
    """Return a graph that returns something else, in the same container."""
    output = graph.output
    changed = replace(output, args=shaped_like(output.args, change(output_items(graph))))
    return replace(graph, nodes=(*graph.nodes[:-1], changed))


def _without_value(node: NodeDoc, index: int) -> NodeDoc:
    """Return a call whose description has one result less."""
    meta = dict(node.meta)
    for key in ("val", "example_value"):
        value = meta.get(key)
        if isinstance(value, dict) and isinstance(value.get("items"), list):
            items = value["items"]
            meta[key] = {**value, "items": items[:index] + items[index + 1 :]}
    return replace(node, meta=meta)


def _frozen(
    graph: GraphDoc, call: HigherOrderCall, carry: Group, operand: Group, index: int
) -> GraphDoc | None:
    """Make a carry an operand: the placeholders move, the output goes."""
    first = call.items(carry)[index]
    picked = getitems(graph, call)
    if picked is None:
        return None
    modules = dict(graph.modules)
    for body, name in enumerate(call.names):
        (at,) = call.inputs_of(body, carry, index)
        new = _with_input_last(modules[name], at)
        if body in call.layout.givers:
            new = with_outputs(new, lambda items: items[:index] + items[index + 1 :])
        modules[name] = new
    items = call.items(carry)
    node = call.with_items(carry, items[:index] + items[index + 1 :])
    moved = replace(call, node=node)
    node = _without_value(moved.with_items(operand, [*call.items(operand), first]), index)
    nodes = {call.node.name: node}
    for name, number in picked.items():
        if number > index:
            nodes[name] = replace(
                graph.by_name[name], args=[as_list(graph.by_name[name].args)[0], number - 1]
            )
    gone = {name for name, number in picked.items() if number == index}
    return _with_nodes(replace(graph, modules=modules), nodes, dict.fromkeys(gone, first))


def _with_input_last(graph: GraphDoc, at: int) -> GraphDoc:
    """Return the graph with one input after all others."""
    placeholders = list(graph.placeholders)
    moved = placeholders.pop(at)
    rest = [node for node in graph.nodes if node.op != "placeholder"]
    return replace(graph, nodes=(*placeholders, moved, *rest))


def _with_nodes(
    graph: GraphDoc, nodes: dict[str, NodeDoc], uses: dict[str, Json] | None = None
) -> GraphDoc:
    """Return the graph with some nodes replaced, and some that are gone used as something else."""
    uses = uses or {}

    def resolve(name: str) -> Json:
        return uses.get(name, {"n": name})

    new = []
    for node in graph.nodes:
        if node.name not in uses:
            node = nodes.get(node.name, node)
            if uses and any(name in uses for name in node.inputs()):
                node = node.mapped(resolve)
            new.append(node)
    return replace(graph, nodes=tuple(new))
