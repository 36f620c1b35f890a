"""A guess: what failed stands in the message, and what is around it suffices.

A compiler mostly names the operator that it could not handle (`target: aten.tanh.default`), or
those that it could not handle together: then they alone may do, one computed from the other, or
what lies between them has to stay as well. It names them as its own graph has them, which may have
been recorded: that one says from which call of the program each of its calls comes. Not one of
`PHASES`: the search makes it of the failure that it reduces, and sweeps once, before all others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.minifier.case import Case
from torchreel.minifier.descriptions import as_list, as_object, compatible, is_symbolic, is_tensor
from torchreel.minifier.draft import Draft, users_of
from torchreel.minifier.effects import base_name, is_end
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.minifier.passes.reshape import Reshape
from torchreel.store.jsontypes import Json
from torchreel.store.portable.graphs import GraphDoc, NodeDoc

# So many steps along the graph from what is named, to try in turn: a try costs little as long as
# what is kept is small, and beyond that the ends of the graph are found by bisection.
_STEPS = (1, 2, 4, 8)
# So many stretches of the graph that hold all that is named, the shortest first.
_STRETCHES = 3
# More of a graph than this share is no guess; and a graph of so few calls needs none.
_MOST = 1 / 3
_FEW = 8

# Of a name of so many letters, a longer word is a form: `gelu_backward`, `native_layer_norm`.
_TELLING = 4


@dataclass(frozen=True)
class KeepOnly(CaseEdit):
    """Of all calls these are kept: their operands become inputs, their results are returned.

    What nothing uses then goes as well: nodes, and tensors that were inputs.
    """

    nodes: frozenset[str]

    def on(self, case: Case) -> Case | None:
        """With those of them that are still there; None if none is."""
        draft = Draft(case.graph, case.checkpoint.inputs)
        calls = [node.name for node in case.graph.nodes if node.is_call]
        kept = self.nodes.intersection(calls)
        if not kept:
            return None
        users = draft.users
        draft.set_outputs(
            [{"n": node.name} for node in case.graph.nodes
             if node.name in kept and not users.get(node.name, set()) & kept
             and (is_tensor(node.value) or is_symbolic(node.value))]
        )  # fmt: skip
        for node in case.graph.placeholders:
            if is_tensor(node.value) and not users.get(node.name, set()) & kept:
                draft.drop(node.name)
        for name in calls:
            if name in kept or is_end(case.graph.by_name[name]):
                continue
            if users.get(name, set()) & kept:
                draft.cut(name)
            if draft.has(name) and not users.get(name, set()) & kept:
                draft.drop(name)
        made = draft.finish()
        return case.with_graph(*made) if made is not None else None


@dataclass(frozen=True)
class Join(CaseEdit):
    """These are kept, each right after that of them from which it was computed on a longer way."""

    nodes: frozenset[str]

    def on(self, case: Case) -> Case | None:
        """With what lies between walked around; None if there is no such way."""
        pairs = list(_ways(case.graph, self.nodes))
        made = KeepOnly(self.nodes | {name for name, _ in pairs}).on(case)
        if made is None or not pairs:
            return None
        for name, by in pairs:
            made = _walked_around(made, name, by) or made
        return KeepOnly(self.nodes).on(made)


def _ways(graph: GraphDoc, kept: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Operands of the calls that are kept, which are not, each with the nearest above that is."""
    operands = [name for node in graph.nodes if node.name in kept for name in node.operands]
    for operand in dict.fromkeys(operands):
        queue, seen = deque([operand]), {operand}
        while queue and operand not in kept:
            name = queue.popleft()
            if name in kept:
                yield operand, name
                break
            new = [above for above in graph.by_name[name].operands if above not in seen]
            seen.update(new)
            queue.extend(new)


def _walked_around(case: Case, name: str, by: str) -> Case | None:
    """With inputs of another shape, where that is what differs."""
    nodes = case.graph.by_name
    if name not in nodes or by not in nodes:
        return None
    if not compatible(nodes[name].value, nodes[by].value):
        return Reshape(name, by).on(case)
    draft = Draft(case.graph, case.checkpoint.inputs)
    draft.substitute(name, {"n": by})
    made = draft.finish()
    return case.with_graph(*made) if made is not None else None


class Around(CasePass):
    """Keep what a message names, and what is near it."""

    name = "around the failure"
    alternatives = True

    def __init__(self, message: str, lowered: GraphDoc | None = None) -> None:
        self._words = Counter(re.findall(r"[a-z_]\w*", message))
        self._known: dict[str, int] = {}
        self._became = _origins(lowered) if lowered is not None else {}

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """What is named together, all that is, then more and more around the first of it."""
        graph = case.graph
        most = graph.call_nodes * _MOST if graph.call_nodes >= _FEW else 0
        calls = [node for node in graph.nodes if node.is_call]
        labels = {node.name: self._labels(node) for node in calls}
        named = [node.name for node in calls if labels[node.name]]
        stretches = self._stretches(labels)
        joined = [frozenset(name for name in names if labels[name]) for names in stretches]
        kept, wider = [*map(frozenset, stretches), frozenset(named)], frozenset(named[:1])
        for steps in range(1, _STEPS[-1] + 1):
            wider = _wider(graph, wider)
            kept += [wider] if steps in _STEPS else []
        edits: list[Join | KeepOnly] = [
            Join(_with_results(graph, names))
            for names, whole in zip(joined, stretches, strict=True)
            if len(names) < len(whole)
        ]
        edits += [KeepOnly(_with_results(graph, names)) for names in kept]
        return [edit for edit in dict.fromkeys(edits) if 0 < len(edit.nodes) <= most]

    def _stretches(self, labels: Mapping[str, Collection[str]]) -> list[list[str]]:
        """The shortest runs of calls with all that is named among them."""
        wanted = {name: self._count(name) for mine in labels.values() for name in mine}
        names, rows = list(labels), list(labels.values())
        # A message may say the same twice.
        found = sorted(_windows(rows, wanted)) or sorted(_windows(rows, dict.fromkeys(wanted, 1)))
        return [names[start : start + length] for length, start in found[:_STRETCHES]]

    def _labels(self, node: NodeDoc) -> frozenset[str]:
        """The names in the message of a call, or of what it became when it was lowered."""
        names = {base_name(node), *self._became.get(node.name, ())}
        return frozenset(name for name in names if self._count(name))

    def _count(self, name: str) -> int:
        """How often the message has a name."""
        if name not in self._known:
            self._known[name] = self._occurrences(name)
        return self._known[name]

    def _occurrences(self, name: str) -> int:
        """How often a name is in the message: `conv2d` in `convolution_backward` as well."""
        stem = re.split(r"\d", name.strip("_"))[0]
        if len(stem) < _TELLING:
            return self._words[name]
        return sum(count for word, count in self._words.items() if stem in word)


def _origins(lowered: GraphDoc) -> Mapping[str, set[str]]:
    """By the call of the program that they come from: the names of the calls in an ATen graph."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in lowered.nodes:
        for name in _roots(node.meta.get("from_node")) if node.is_call else ():
            found[name].add(base_name(node))
    return found


def _roots(chain: Json) -> Iterator[str]:
    """The nodes of a program that stand at the beginning of where a node comes from."""
    for origin in map(as_object, as_list(chain)):
        if as_list(origin.get("from_node")):
            yield from _roots(origin["from_node"])
        else:
            yield str(origin.get("name"))


def _windows(
    rows: Sequence[Collection[str]], wanted: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Length and start of each run of rows with all that are wanted at and between its ends."""
    missing, start = Counter(wanted), 0
    for end, row in enumerate(rows):
        missing.subtract(row)
        while start <= end and all(missing[name] < 0 for name in rows[start]):
            missing.update(rows[start])
            start += 1
        if row and not +missing:
            yield end + 1 - start, start


def _with_results(graph: GraphDoc, names: frozenset[str]) -> frozenset[str]:
    """With what takes a value out of a tuple."""
    users, nodes = users_of(graph), graph.by_name
    several = [name for name in names if not is_tensor(nodes[name].value)]
    taken = {user for name in several for user in users.get(name, ()) if nodes[user].is_call}
    return names | {name for name in taken if base_name(nodes[name]) == "getitem"}


def _wider(graph: GraphDoc, names: frozenset[str]) -> frozenset[str]:
    """With the calls that these use and that use these."""
    users, nodes = users_of(graph), graph.by_name
    near = {user for name in names for user in users.get(name, ())}
    near |= {operand for name in names for operand in nodes[name].operands}
    return names | {name for name in near if nodes[name].is_call}
