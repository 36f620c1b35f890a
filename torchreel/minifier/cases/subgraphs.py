"""Higher-order operators: how their bodies hang together with the call, as data.

Lives here: which arguments of a call are bodies, which are handed to which input of which body, and
which output of a body is which result of the call. Not here: what is done with that
(`passes.operands`, `passes.inline`, `passes.lift`). To know another operator, add it to `LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.graph_edits import output_items
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

Kind = Literal["operand", "carry", "slice", "pair"]
"""The way in which a group of arguments reaches a body.

- operand: as it is
- carry: as it is at first, then what the body returned before (output i for item i)
- slice: one slice after the other
- pair: two slices at a time, and the body returns one (output i for item i)
"""


@dataclass(frozen=True)
class Group:
    """Some arguments of a call that are handed to bodies alike."""

    kind: Kind
    at: int
    """The index of an argument of the call: a list or tuple, ..."""
    rest: bool = False
    """... or all arguments from there on."""
    bodies: tuple[int, ...] = (0,)
    """The indices of the bodies that take them."""


@dataclass(frozen=True)
class Layout:
    """The signature of a higher-order operator."""

    bodies: tuple[tuple[int, ...], ...]
    """The path to each body among the arguments (the mask of flex_attention is nested)."""
    groups: tuple[Group, ...]
    givers: tuple[int, ...] = (0,)
    """The bodies whose outputs are the results of the call."""
    own: tuple[int, ...] = (0, 0)
    """The number of inputs that each body has before those of the groups."""
    stacks: bool = False
    """True if results that are no carry are stacked over all slices."""
    fixed: bool = False
    """True if inputs and outputs of the bodies depend on each other in more ways than these: then
    only the first body is known, whose first output holds the results."""


_ALL = Group("operand", 1, rest=True)

LAYOUTS: Mapping[str, Layout] = {
    "hop:cond": Layout(((1,), (2,)), (Group("operand", 3, bodies=(0, 1)),), (0, 1)),
    "hop:while_loop": Layout(
        ((0,), (1,)),
        (Group("carry", 2, bodies=(0, 1)), Group("operand", 3, bodies=(0, 1))),
        (1,),
    ),
    "hop:scan": Layout(
        ((0,),), (Group("carry", 1), Group("slice", 2), Group("operand", 3)), stacks=True
    ),
    "hop:associative_scan": Layout(
        ((0,),), (Group("pair", 1), Group("operand", 2)), stacks=True
    ),
    "hop:map_impl": Layout(((0,),), (Group("slice", 1), Group("operand", 2)), stacks=True),
    "hop:invoke_subgraph": Layout(((0,),), (Group("operand", 2, rest=True),)),
    "hop:tag_activation_checkpoint": Layout(((0,),), (_ALL,)),
    "hop:wrap_activation_checkpoint": Layout(((0,),), (_ALL,)),
    "hop:wrap": Layout(((0,),), (_ALL,)),
    "hop:hints_wrapper": Layout(((0,),), (Group("operand", 1),)),
    "hop:strict_mode": Layout(((0,),), (Group("operand", 1),)),
    "hop:wrap_with_set_grad_enabled": Layout(((1,),), (Group("operand", 2, rest=True),)),
    "hop:wrap_with_autocast": Layout(((4,),), (Group("operand", 5, rest=True),)),
    "hop:autograd_function_apply": Layout(
        ((0,),), (Group("operand", 2, rest=True),), fixed=True
    ),
    "hop:flex_attention": Layout(
        ((3,), (4, -1)),
        (Group("operand", 7, bodies=(0,)), Group("operand", 8, bodies=(1,))),
        givers=(),
        own=(5, 4),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class HigherOrderCall:
    """One call of a higher-order operator, with its bodies at hand."""

    node: NodeDoc
    layout: Layout
    names: tuple[str, ...]
    """The nested graphs that are its bodies, by attribute name."""
    bodies: tuple[GraphDoc, ...]

    def items(self, group: Group) -> list[Json]:
        """Return the arguments of a group."""
        args = as_list(self.node.args)
        if group.rest:
            return args[group.at :]
        return _contents(args[group.at]) if group.at < len(args) else []

    def with_items(self, group: Group, items: list[Json]) -> NodeDoc:
        """Return the call node with other arguments in a group."""
        args = as_list(self.node.args)
        if group.rest:
            return replace(self.node, args=[*args[: group.at], *items])
        args[group.at] = {"t": items} if isinstance(args[group.at], Mapping) else items
        return replace(self.node, args=args)

    def inputs_of(self, body: int, group: Group, index: int) -> list[int]:
        """Return the inputs of a body that take item `index` of a group."""
        if body not in group.bodies:
            return []
        start = self.layout.own[body] if body < len(self.layout.own) else 0
        for other in self.layout.groups:
            count = len(self.items(other))
            if other == group:
                return [start + index, start + count + index] if group.kind == "pair" else [
                    start + index
                ]  # fmt: skip
            if body in other.bodies:
                start += 2 * count if other.kind == "pair" else count
        return []

    def group(self, kind: Kind, body: int = 0) -> Group | None:
        """Return the group of a kind that a body takes."""
        groups = self.layout.groups
        return next((g for g in groups if g.kind == kind and body in g.bodies), None)

    @property
    def carries(self) -> int:
        """Return the number of results, the first ones, that are values of carries or of pairs."""
        return sum(len(self.items(g)) for g in self.layout.groups if g.kind in ("carry", "pair"))

    @property
    def results(self) -> int:
        """Return the number of results of the call; 0 if no body gives them."""
        return len(self.returned(self.layout.givers[0])) if self.layout.givers else 0

    def returned(self, body: int) -> list[Json]:
        """Return the outputs of a body."""
        items = output_items(self.bodies[body])
        return _contents(items[0]) if self.layout.fixed and items else items

    @property
    def is_sound(self) -> bool:
        """Return True if the bodies have the inputs and outputs that the arguments call for."""
        for body, graph in enumerate(self.bodies):
            wanted = self.layout.own[body] if body < len(self.layout.own) else 0
            for group in self.layout.groups:
                each = 2 if group.kind == "pair" else 1
                wanted += each * len(self.items(group)) if body in group.bodies else 0
            if len(graph.placeholders) != wanted:
                return False
        outputs = {len(output_items(self.bodies[giver])) for giver in self.layout.givers}
        return len(outputs) <= 1


def call_of(graph: GraphDoc, node: NodeDoc) -> HigherOrderCall | None:
    """Return a node as the call of a known higher-order operator; None where it is none."""
    layout = LAYOUTS.get(node.target)
    if layout is None or not node.is_call:
        return None
    names = [_body_name(graph, _at(node.args, path)) for path in layout.bodies]
    if any(name is None for name in names):
        return None
    known = tuple(name for name in names if name is not None)
    call = HigherOrderCall(node, layout, known, tuple(graph.modules[name] for name in known))
    return call if call.is_sound else None


def calls_in(graph: GraphDoc) -> Iterator[HigherOrderCall]:
    """Yield the calls of known higher-order operators in a graph, in order."""
    if not graph.modules:
        return
    for node in graph.nodes:
        call = call_of(graph, node)
        if call is not None:
            yield call


def sites(graph: GraphDoc, call: HigherOrderCall) -> list[HigherOrderCall] | None:
    """Return every call that shares a body with one; None if one is of another make, or they are
    fixed.

    What is changed about a body has to be changed in all of them.
    """
    if call.layout.fixed:
        return None
    found = [other for other in calls_in(graph) if set(other.names) & set(call.names)]
    used = [node for node in graph.nodes if node.op == "get_attr" and node.target in call.names]
    named = {name for other in found for name in other.node.inputs()}
    alike = all(other.names == call.names and other.layout == call.layout for other in found)
    return found if alike and all(node.name in named for node in used) else None


def getitems(graph: GraphDoc, call: HigherOrderCall) -> dict[str, int] | None:
    """Return the nodes that pick a result of a call, with its number.

    None if it is used otherwise.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        if call.node.name in node.inputs():
            args = as_list(node.args)
            index = args[1] if len(args) == 2 else None
            if node.target != "fn:_operator.getitem" or not isinstance(index, int):
                return None
            found[node.name] = index
    return found


def _contents(value: Json) -> list[Json]:
    found = as_object(value).get("t")
    return as_list(found) if found is not None else as_list(value)


def _at(args: Json, path: tuple[int, ...]) -> Json:
    value = args
    for index in path:
        items = _contents(value)
        if not -len(items) <= index < len(items):
            return None
        value = items[index]
    return value


def _body_name(graph: GraphDoc, tree: Json) -> str | None:
    """Return the nested graph that an argument names."""
    name = as_object(tree).get("n")
    node = graph.by_name.get(str(name))
    if node is None or node.op != "get_attr" or node.target not in graph.modules:
        return None
    return node.target
