"""A guess: what failed stands in the message, and what is around it suffices.

A compiler mostly names the operator that it could not handle (`target: aten.tanh.default`), or
those that it could not handle together: then what lies between them has to stay as well. Not one of
`PHASES`: the search makes it of the failure that it reduces, and sweeps once, before all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.minifier.case import Case
from torchreel.minifier.descriptions import is_symbolic, is_tensor
from torchreel.minifier.draft import Draft, users_of
from torchreel.minifier.effects import base_name, is_end
from torchreel.minifier.passes.base import GraphEdit, GraphPass, Path
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
class KeepOnly(GraphEdit):
    """Of all calls these are kept: their operands become inputs, their results are returned.

    What nothing uses then goes as well: nodes, and tensors that were inputs.
    """

    nodes: frozenset[str]
    path: Path = ()

    def note(self, draft: Draft) -> None:
        """Note it, if some of them are still there."""
        calls = [node.name for node in draft.graph.nodes if node.is_call]
        kept = {name for name in calls if name in self.nodes and draft.has(name)}
        if not kept:
            return
        users = draft.users
        draft.set_outputs(
            [{"n": node.name} for node in draft.graph.nodes
             if node.name in kept and not users.get(node.name, set()) & kept
             and (is_tensor(node.value) or is_symbolic(node.value))]
        )  # fmt: skip
        for node in draft.graph.placeholders:
            if is_tensor(node.value) and not users.get(node.name, set()) & kept:
                draft.drop(node.name)
        for name in calls:
            if name in kept or is_end(draft.graph.by_name[name]):
                continue
            if users.get(name, set()) & kept:
                draft.cut(name)
            if draft.has(name) and not users.get(name, set()) & kept:
                draft.drop(name)


class Around(GraphPass):
    """Keep what a message names, and what is near it."""

    name = "around the failure"

    def __init__(self, message: str) -> None:
        self._words = Counter(re.findall(r"[a-z_]\w*", message))
        self._known: dict[str, int] = {}

    def edits(self, case: Case) -> Sequence[GraphEdit]:
        """All that is named, with what lies between, then more and more around the first of it."""
        graph = case.graph
        named = [node.name for node in graph.nodes if self._mentions(node)]
        kept, wider = [frozenset(named), *self._stretches(graph)], frozenset(named[:1])
        for steps in range(1, _STEPS[-1] + 1):
            wider = _wider(graph, wider)
            kept += [wider] if steps in _STEPS else []
        most = graph.call_nodes * _MOST if graph.call_nodes >= _FEW else 0
        kept = [_with_results(graph, names) for names in kept]
        return [KeepOnly(names) for names in kept if 0 < len(names) <= most]

    def _stretches(self, graph: GraphDoc) -> list[frozenset[str]]:
        """The calls from one to another one, with all that is named among them."""
        calls = [node for node in graph.nodes if node.is_call]
        wanted = {base_name(node): self._mentions(node) for node in calls if self._mentions(node)}
        names = [base_name(node) for node in calls]
        # A message may say the same twice.
        found = sorted(_windows(names, wanted)) or sorted(_windows(names, dict.fromkeys(wanted, 1)))
        return [
            frozenset(node.name for node in calls[start : start + length])
            for length, start in found[:_STRETCHES]
            if length > 1
        ]

    def _mentions(self, node: NodeDoc) -> int:
        """How often the message has a call's name."""
        if not node.is_call:
            return 0
        name = base_name(node)
        if name not in self._known:
            self._known[name] = self._occurrences(name)
        return self._known[name]

    def _occurrences(self, name: str) -> int:
        """How often a name is in the message: `conv2d` in `convolution_backward` as well."""
        stem = re.split(r"\d", name.strip("_"))[0]
        if len(stem) < _TELLING:
            return self._words[name]
        return sum(count for word, count in self._words.items() if stem in word)


def _windows(names: Sequence[str], wanted: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Length and start of each run of names with all that are wanted at and between its ends."""
    missing, start = Counter(wanted), 0
    for end, name in enumerate(names):
        missing[name] -= 1
        while start <= end and missing[names[start]] < 0:
            missing[names[start]] += 1
            start += 1
        if name in wanted and not +missing:
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
