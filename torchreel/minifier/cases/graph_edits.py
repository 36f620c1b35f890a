"""One graph while it is being edited: several edits are noted, then built into a new graph at once.

Lives here: substitution of uses, cuts to inputs, removal, and the clean-up that every edit needs.
Not here: which edits are worth trying (`passes`). Building costs one walk over the nodes, however
many edits there are; the graph that is edited stays as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.node_arguments import node_refs
from torchreel.minifier.cases.canonical_text import memoized
from torchreel.minifier.cases.descriptions import as_input
from torchreel.minifier.cases.side_effects import is_effectful
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list


class GraphEditor:
    """Edits noted on a graph; `finish` builds the edited one."""

    def __init__(self, graph: GraphDoc, inputs: Iterable[Json] = ()) -> None:
        self.graph = graph
        self._inputs: dict[str, Json] = {
            node.name: value for node, value in zip(graph.placeholders, inputs, strict=False)
        }
        self._uses: dict[str, Json] = {}
        self._gone: set[str] = set()
        self._cuts: dict[str, Json] = {}
        self._outputs: list[Json] | None = None
        self._returned: set[str] | None = None  # the names in `_outputs`, once they are needed

    def has(self, name: str) -> bool:
        """Return True if a node is (still) a node that can be edited."""
        return name in self.graph.by_name and name not in self._gone and name not in self._cuts

    def substitute(self, name: str, tree: Json, *, keep: bool = False) -> None:
        """Replace every use of a node by `tree`, a reference or constant; drop it unless `keep`."""
        self._uses[name] = tree
        if not keep:
            self._gone.add(name)

    def cut(self, name: str) -> None:
        """Make a node an input of the same description; nothing happens where there is none."""
        description = _described(self.graph.by_name[name])
        if description is not None:
            self._cuts[name] = description

    def drop(self, name: str) -> None:
        """Drop a node that nothing uses any more."""
        self._gone.add(name)

    @property
    def outputs(self) -> list[Json]:
        """Return the outputs of the graph, as far as noted."""
        return self._outputs if self._outputs is not None else output_items(self.graph)

    def set_outputs(self, items: list[Json]) -> None:
        """Let the graph return these values instead of its outputs."""
        self._outputs, self._returned = items, None

    def also_return(self, names: Iterable[str]) -> None:
        """Let the graph return the values of these nodes as well, if it does not yet."""
        if self._returned is None:
            self._outputs = list(self.outputs)
            self._returned = {name for item in self._outputs for name in references(item)}
        assert self._outputs is not None, "it was set together with the names in it"
        for name in names:
            if name not in self._returned:
                self._outputs.append({"n": name})
                self._returned.add(name)

    @property
    def is_untouched(self) -> bool:
        """Return True if nothing was noted."""
        return not (self._gone or self._uses or self._cuts or self._outputs is not None)

    @property
    def users(self) -> Mapping[str, set[str]]:
        """Return the users of each node of the graph as it was."""
        return users_of(self.graph)

    def is_output_only(self, name: str) -> bool:
        """Return True if nothing but the output (or a dropped node) uses a node."""
        output = self.graph.output.name
        return all(user in self._gone or user == output for user in self.users.get(name, ()))

    def finish(self) -> tuple[GraphDoc, tuple[Json, ...]] | None:
        """Return the edited graph and its inputs; None if a use would be left without its value."""
        nodes = self._ordered()
        if self._uses or self._outputs is not None:
            nodes = [self._rewired(node) for node in nodes]
        nodes = self._without_newly_dead(nodes)
        if not _is_ordered(nodes):
            return None
        inputs = {**self._inputs, **self._cuts}
        placeholders = [node.name for node in nodes if node.op == "placeholder"]
        graph = pruned(replace(self.graph, nodes=tuple(nodes)))
        return graph, tuple(inputs[name] for name in placeholders if name in inputs)

    def _ordered(self) -> list[NodeDoc]:
        """Return the nodes that stay, new inputs right after the old ones."""
        old: list[NodeDoc] = []
        new: list[NodeDoc] = []
        rest: list[NodeDoc] = []
        gone, cuts = self._gone, self._cuts
        for node in self.graph.nodes:
            if node.name in gone:
                continue
            if node.op == "placeholder":
                old.append(node)
            elif node.name in cuts:
                new.append(self._as_input(node))
            else:
                rest.append(node)
        return old + new + rest

    def _without_newly_dead(self, nodes: list[NodeDoc]) -> list[NodeDoc]:
        """Drop nodes free of effects that had users before and have none now, and so on upwards.

        What was dead from the start stays: a failure may need it, and another pass tries.
        """
        before = self.users
        uses = _use_counts(nodes)
        kept: list[NodeDoc] = []
        for node in reversed(nodes):
            if not uses.get(node.name) and node.name in before and self._may_go(node):
                for name in node.operands:
                    uses[name] -= 1
            else:
                kept.append(node)
        return kept[::-1]

    def _may_go(self, node: NodeDoc) -> bool:
        if node.op == "placeholder":
            return node.name in self._cuts
        return node.op != "output" and not is_effectful(node)

    def _as_input(self, node: NodeDoc) -> NodeDoc:
        key = "val" if "val" in node.meta else "example_value"
        return NodeDoc(node.name, "placeholder", node.name, [], {}, {key: self._cuts[node.name]})

    def _rewired(self, node: NodeDoc) -> NodeDoc:
        if node.op == "output" and self._outputs is not None:
            node = replace(node, args=shaped_like(node.args, self._outputs))
        if not self._uses or self._uses.keys().isdisjoint(node.operands):
            return node
        return node.mapped(self._resolve)

    def _resolve(self, name: str) -> Json:
        """Return the reference or constant that a use of a node has after all substitutions."""
        tree: Json = {"n": name}
        while isinstance(tree, Mapping) and set(tree) == {"n"} and tree["n"] in self._uses:
            tree = self._uses[str(tree["n"])]
        return tree


@memoized
def _described(node: NodeDoc) -> Json:
    return as_input(node.value)


def output_items(graph: GraphDoc) -> list[Json]:
    """Return the values that a graph returns, flat."""
    (value, *_) = graph.output.args or [None]  # type: ignore[misc]
    if isinstance(value, list):
        return list(value)
    if isinstance(value, Mapping) and set(value) == {"t"}:
        return as_list(value["t"])
    return [value]


def shaped_like(args: Json, items: list[Json]) -> Json:
    """Return the arguments of an output node that returns `items` in the container that
    `args` has.
    """
    value = args[0] if isinstance(args, (list, tuple)) and args else None
    return [items] if isinstance(value, list) else [{"t": items}]


def _use_counts(nodes: Iterable[NodeDoc]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        for name in node.operands:
            counts[name] = counts.get(name, 0) + 1
    return counts


@memoized
def users_of(graph: GraphDoc) -> Mapping[str, set[str]]:
    """Return the names of the nodes that use each node (nodes without users are left out)."""
    users: dict[str, set[str]] = defaultdict(set)
    for node in graph.nodes:
        for name in node.operands:
            users[name].add(node.name)
    return dict(users)


def _is_ordered(nodes: list[NodeDoc]) -> bool:
    """Return True if every use comes after its definition."""
    known: set[str] = set()
    for node in nodes:
        if not known.issuperset(node.operands):
            return False
        known.add(node.name)
    return True


def pruned(graph: GraphDoc) -> GraphDoc:
    """Leave out nested graphs and constants that no node names."""
    if not graph.modules and not graph.attributes:
        return graph
    used = {node.target for node in graph.nodes if node.op in ("get_attr", "call_module")}
    return replace(
        graph,
        modules={name: inner for name, inner in graph.modules.items() if name in used},
        attributes={name: value for name, value in graph.attributes.items() if name in used},
    )


def references(tree: Json) -> list[str]:
    """Return the nodes that a tree refers to, each once, in order."""
    return list(dict.fromkeys(node_refs(tree)))
