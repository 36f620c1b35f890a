"""Literals in calls: fewer arguments, simpler numbers, dtypes and flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.literals import (
    Place,
    at_place,
    leaves,
    lists,
    simpler_literals,
    with_place,
)
from torchreel.minifier.cases.subgraphs import LAYOUTS, calls_in
from torchreel.minifier.passes.base import (
    CaseEdit,
    CasePass,
    Path,
    graph_at,
    node_at,
    paths,
    with_node_at,
)
from torchreel.minifier.passes.required_arguments import is_required
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

# Arguments of these are no literals of the user's: levels, states, bookkeeping.
_LEFT_ALONE = ("_vmap_", "_grad_", "_jvp_", "_enter_", "_exit_", "_set_grad", "lazy_load")


@dataclass(frozen=True)
class DropArgument(CaseEdit):
    """A call is made without one argument: the last one, or a keyword."""

    path: Path
    node: str
    key: str | int

    def on(self, case: Case) -> Case | None:
        """Return the case without it; None if it is not there, or no longer the last."""
        node = node_at(case, self.path, self.node)
        if node is None:
            return None
        args, kwargs = as_list(node.args), dict(as_object(node.kwargs))
        if isinstance(self.key, int):
            if len(args) != self.key + 1:
                return None
            del args[self.key]
        elif kwargs.pop(self.key, _MISSING) is _MISSING:
            return None
        return with_node_at(case, self.path, replace(node, args=args, kwargs=kwargs))


@dataclass(frozen=True)
class DropItem(CaseEdit):
    """A list of values (what `cat` gets) has one item less."""

    path: Path
    node: str
    place: Place
    item: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the item; None if it is not there any more, or the only one."""
        node = node_at(case, self.path, self.node)
        tree: Json = [node.args, node.kwargs] if node is not None else None
        items = as_list(at_place(tree, self.place))
        spelled = [repr(item) for item in items]
        if node is None or len(items) < 2 or self.item not in spelled:
            return None
        del items[spelled.index(self.item)]
        args, kwargs = as_list(with_place(tree, self.place, items))
        return with_node_at(case, self.path, replace(node, args=args, kwargs=kwargs))


@dataclass(frozen=True)
class SetLiteral(CaseEdit):
    """A literal that was `old` becomes `new`."""

    path: Path
    node: str
    place: Place
    old: str
    new: str

    def on(self, case: Case) -> Case | None:
        """Return the case with the simpler literal; None if it is not what it was."""
        node = node_at(case, self.path, self.node)
        if node is None:
            return None
        tree: Json = [node.args, node.kwargs]
        found = at_place(tree, self.place)
        choices = simpler_literals(found)
        new = next((item for item in choices if repr(item) == self.new), None)
        if repr(found) != self.old or new is None:
            return None
        args, kwargs = as_list(with_place(tree, self.place, new))
        return with_node_at(case, self.path, replace(node, args=args, kwargs=kwargs))


_MISSING = object()


class FewerArguments(CasePass):
    """Leave out arguments that have a default."""

    name = "arguments"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose to leave out literal keywords, and arguments from the last one on."""
        found: list[CaseEdit] = []
        for path, node in _calls(case):
            found += [
                DropArgument(path, node.name, key)
                for key, value in as_object(node.kwargs).items()
                if not _has_references(value) and not is_required(node, key)
            ]
            found += [DropArgument(path, node.name, key) for key in _last(node)]
        return found


class FewerItems(CasePass):
    """Shorter lists of values."""

    name = "items"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose to leave out each item of the lists that `cat` and the like get."""
        return [
            DropItem(path, node.name, place, item)
            for path, node in _calls(case)
            for place, item in _items(node)
        ]


class Literals(CasePass):
    """Plainer literals: 0, 1, half of a number; float32; False."""

    name = "literals"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose the simplest choice for each literal first, then all second choices, and
        so on.
        """
        found = [
            (path, node.name, place, leaf, simpler_literals(leaf))
            for path, node in _calls(case)
            for place, leaf in leaves([node.args, node.kwargs])
        ]
        most = max((len(choices) for *_, choices in found), default=0)
        return [
            SetLiteral(path, name, place, repr(leaf), repr(choices[rank]))
            for rank in range(most)
            for path, name, place, leaf, choices in found
            if rank < len(choices)
        ]


class Trips(CasePass):
    """Let loops make fewer trips: first, since what else is done may make a loop endless."""

    name = "trips of loops"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose 0 for the numbers in conditions of loops; if that will not do, 1, then 2."""
        found = [
            ((*path, call.names[0]), node.name, place, leaf)
            for path in paths(case.graph)
            for call in calls_in(graph_at(case, path) or case.graph)
            if call.node.target == "hop:while_loop"
            for node in call.bodies[0].nodes
            if node.is_call
            for place, leaf in leaves([node.args, node.kwargs])
            if isinstance(leaf, int) and not isinstance(leaf, bool)
        ]
        return [
            SetLiteral(path, name, place, repr(leaf), repr(number))
            for number in (0, 1, 2)
            for path, name, place, leaf in found
            if abs(leaf) > number
        ]


def _calls(case: Case) -> Iterator[tuple[Path, NodeDoc]]:
    for path in paths(case.graph):
        graph = graph_at(case, path)
        assert graph is not None, "paths() names graphs that are there"
        for node in graph.nodes:
            name = node.target.rpartition(".")[2]
            if node.is_call and not name.startswith(_LEFT_ALONE):
                yield path, node


def _items(node: NodeDoc) -> Iterator[tuple[Place, str]]:
    """Yield the items of lists with references, the last first."""
    if node.target in LAYOUTS:
        return  # what bodies get is for the passes that know the bodies
    for place, items in lists([node.args, node.kwargs]):
        if len(items) > 1 and any(map(_has_references, items)):
            for item in reversed(items):
                yield place, repr(item)


def _last(node: NodeDoc) -> Iterator[int]:
    """Yield the last arguments that may be optional.

    Literals, or third tensors (a bias, a mask).
    """
    args = as_list(node.args)
    if node.target.startswith(("fn:_operator.", "fn:math.", "hop:")):
        return
    for key in range(len(args) - 1, 0, -1):
        if (key < 2 and _has_references(args[key])) or is_required(node, key):
            return
        yield key


def _has_references(tree: Json) -> bool:
    if isinstance(tree, (list, tuple)):
        return any(_has_references(item) for item in tree)
    fields = as_object(tree)
    return "n" in fields or any(_has_references(value) for value in fields.values())
