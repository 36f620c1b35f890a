"""A guess: what failed stands in the message, and what is around it suffices.

A compiler mostly names the operator that it could not handle (`target: aten.tanh.default`), or
those that it could not handle together: then they alone may do, one computed from the other, or
what lies between them has to stay as well. The message uses the names of the compiler's own graph
at that stage. Where that graph was recorded, its metadata leads from each of its calls back to a
call of the program's graph. This pass needs the failure's message, so it is not in `PHASES`: the
search makes it for the failure at hand, and runs it once, before all other passes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import compatible, is_symbolic, is_tensor
from torchreel.minifier.cases.graph_edits import GraphEditor, users_of
from torchreel.minifier.cases.side_effects import base_name, is_end
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.minifier.passes.reshape import Reshape
from torchreel.minifier.passes.sizes import SmallerSizes
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

# So many steps along the graph from what is named, to try in turn: a try costs little as long as
# what is kept is small, and beyond that the ends of the graph are found by bisection.
_STEPS = (1, 2, 4, 8)
# So many ways to hold all that is named together, the shortest first.
_STRETCHES = 3
# So many calls are looked upwards from, which takes a walk over the graph each.
_ENDS = 50
# More of a graph than this share is no guess; and a graph of so few calls needs none.
_MOST = 1 / 3
_FEW = 8
# What is joined is cut short as well: less of a guess.
_MOST_JOINED = 1 / 2

# A size for all dimensions that hardly anything is special about: 1 is.
_SIZE = 2

# Of a name of so many letters, a longer word is a form: `gelu_backward`, `native_layer_norm`.
_TELLING = 4


@dataclass(frozen=True)
class KeepOnly(CaseEdit):
    """Of all calls these are kept: their operands become inputs, their results are returned.

    What nothing uses then goes as well: nodes, and tensors that were inputs.
    """

    nodes: frozenset[str]

    def on(self, case: Case) -> Case | None:
        """Return the case with those of them that are still there; None if none is."""
        editor = GraphEditor(case.graph, case.checkpoint.inputs)
        calls = [node.name for node in case.graph.nodes if node.is_call]
        kept = self.nodes.intersection(calls)
        if not kept:
            return None
        users = editor.users
        editor.set_outputs(
            [{"n": node.name} for node in case.graph.nodes
             if node.name in kept and not users.get(node.name, set()) & kept
             and (is_tensor(node.value) or is_symbolic(node.value))]
        )  # fmt: skip
        for node in case.graph.placeholders:
            if is_tensor(node.value) and not users.get(node.name, set()) & kept:
                editor.drop(node.name)
        for name in calls:
            if name in kept or is_end(case.graph.by_name[name]):
                continue
            if users.get(name, set()) & kept:
                editor.cut(name)
            if editor.has(name) and not users.get(name, set()) & kept:
                editor.drop(name)
        made = editor.finish()
        return case.with_graph(*made) if made is not None else None


@dataclass(frozen=True)
class Join(CaseEdit):
    """Keep these calls alone, each computed from the nearest of the others that it depends on.

    Inputs get the shape that is needed then. If this is impossible, all sizes become 2.
    """

    nodes: frozenset[str]

    def on(self, case: Case) -> Case | None:
        """Return the case with the nodes between these calls bypassed; None if there are none."""
        pairs, fits = list(_ways(case.graph, self.nodes)), True
        made = KeepOnly(self.nodes | {name for name, _ in pairs}).on(case)
        for name, by in pairs if made is not None else ():
            assert made is not None, "it is not, from the first pair on"
            values = [made.graph.by_name[one].value for one in (name, by)]
            shaped = None if compatible(*values) else Reshape(name, by).on(made)
            fits = fits and (compatible(*values) or shaped is not None)
            made = shaped or _substituted(made, name, by) or made
        made = KeepOnly(self.nodes).on(made) if made is not None and pairs else None
        small = SmallerSizes(_SIZE)
        return made if made is None or fits else small.apply(made, small.edits(made)) or made


def _ways(graph: GraphDoc, kept: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield each dropped operand of a kept call, with its nearest kept ancestor that is alike."""
    operands = [name for node in graph.nodes if node.name in kept for name in node.operands]
    for operand in dict.fromkeys(name for name in operands if name not in kept):
        above = (name for name in _above(graph, operand) if name in kept)
        by = next((n for n in above if _is_alike(graph.by_name[n], graph.by_name[operand])), None)
        if by is not None:
            yield operand, by


def _above(graph: GraphDoc, name: str) -> Iterator[str]:
    """Yield a node and all nodes that it is computed from, the nearest first."""
    queue, seen = deque([name]), {name}
    while queue:
        name = queue.popleft()
        yield name
        new = [above for above in graph.by_name[name].operands if above not in seen]
        seen.update(new)
        queue.extend(new)


def _is_alike(one: NodeDoc, other: NodeDoc) -> bool:
    """Return True if one may do for the other, whatever their shapes."""
    dtypes = [as_object(node.value).get("dtype") for node in (one, other)]
    return compatible(one.value, other.value, loose=True) and dtypes[0] == dtypes[1]


def _substituted(case: Case, name: str, by: str) -> Case | None:
    editor = GraphEditor(case.graph, case.checkpoint.inputs)
    editor.substitute(name, {"n": by})
    made = editor.finish()
    return case.with_graph(*made) if made is not None else None


class Around(CasePass):
    """Keep what a message names, and what is near it."""

    name = "around the failure"
    alternatives = True

    def __init__(self, message: str, lowered: GraphDoc | None = None) -> None:
        self._words: list[str] = re.findall(r"[a-z_]\w*", message)
        self._known: dict[str, int] = {}
        self._became = _origins(lowered) if lowered is not None else {}

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose what is named together, all that is, then more and more around the first
        of it.
        """
        graph = case.graph
        most = graph.call_nodes * _MOST if graph.call_nodes >= _FEW else 0
        calls = [node for node in graph.nodes if node.is_call]
        labels = {node.name: self._labels(node) for node in calls}
        named = [node.name for node in calls if labels[node.name]]
        together = [*self._chains(graph, labels), *self._stretches(labels)][:_STRETCHES]
        order = list(labels)
        runs = [order[order.index(names[0]) : order.index(names[-1]) + 1] for names in together]
        kept, wider = [*map(frozenset, runs), frozenset(named)], frozenset(named[:1])
        for steps in range(1, _STEPS[-1] + 1):
            wider = _wider(graph, wider)
            kept += [wider] if steps in _STEPS else []
        most_joined = graph.call_nodes * _MOST_JOINED
        joins = [
            Join(_with_results(graph, frozenset(names)))
            for names, run in zip(together, runs, strict=True)
            if len(names) < len(run)
        ]
        joins = [join for join in dict.fromkeys(joins) if len(join.nodes) <= most_joined]
        edits = [KeepOnly(_with_results(graph, names)) for names in kept]
        return [*joins, *(edit for edit in dict.fromkeys(edits) if 0 < len(edit.nodes) <= most)]

    def _chains(self, graph: GraphDoc, labels: Mapping[str, Collection[str]]) -> list[list[str]]:
        """Return chains of calls computed from each other in the order of the message, the nearest
        first.
        """
        wanted = {name for mine in labels.values() for name in mine}
        words = [word for word in self._words if any(_means(word, name) for name in wanted)]
        ends = [name for name in labels if words and _has(labels, name, words[-1])]
        chains = [_chain(graph, labels, last, words[-2::-1]) for last in ends[:_ENDS]]
        at = {name: number for number, name in enumerate(labels)}
        return sorted(filter(None, chains), key=lambda chain: at[chain[-1]] - at[chain[0]])

    def _stretches(self, labels: Mapping[str, Collection[str]]) -> list[list[str]]:
        """Return the named calls in the shortest runs of calls that hold all names."""
        wanted = {name: self._count(name) for mine in labels.values() for name in mine}
        names, rows = list(labels), list(labels.values())
        # A message may say the same twice.
        found = sorted(_windows(rows, wanted)) or sorted(_windows(rows, dict.fromkeys(wanted, 1)))
        runs = [names[start : start + length] for length, start in found]
        return [[name for name in run if labels[name]] for run in runs]

    def _labels(self, node: NodeDoc) -> frozenset[str]:
        """Return the names in the message of a call, or of what it became when it was lowered."""
        names = {base_name(node), *self._became.get(node.name, ())}
        return frozenset(name for name in names if self._count(name))

    def _count(self, name: str) -> int:
        """Count how often the message has a name."""
        if name not in self._known:
            self._known[name] = sum(_means(word, name) for word in self._words)
        return self._known[name]


def _means(word: str, name: str) -> bool:
    """Return True if a word of a message names a call: `convolution_backward` names `conv2d` as
    well.
    """
    stem = re.split(r"\d", name.strip("_"))[0]
    return word == name if len(stem) < _TELLING else stem in word


def _has(labels: Mapping[str, Collection[str]], name: str, word: str) -> bool:
    return any(_means(word, label) for label in labels.get(name, ()))


def _chain(
    graph: GraphDoc, labels: Mapping[str, Collection[str]], last: str, words: Sequence[str]
) -> list[str]:
    """Return the nearest call upwards that each word names; empty where there is none."""
    chain = [last]
    for word in words:
        found = next((n for n in _above(graph, chain[0]) if _has(labels, n, word)), None)
        if found is None:
            return []
        chain = [found, *chain] if found != chain[0] else chain
    return chain


def _origins(lowered: GraphDoc) -> Mapping[str, set[str]]:
    """Return the calls of an ATen graph by the call of the program that they come from."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in lowered.nodes:
        for name in _roots(node.meta.get("from_node")) if node.is_call else ():
            found[name].add(base_name(node))
    return found


def _roots(chain: Json) -> Iterator[str]:
    """Yield the names of the nodes at the beginning of a chain of node origins."""
    for origin in map(as_object, as_list(chain)):
        if as_list(origin.get("from_node")):
            yield from _roots(origin["from_node"])
        else:
            yield str(origin.get("name"))


def _windows(
    rows: Sequence[Collection[str]], wanted: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Yield length and start of each run of rows that holds all that are wanted."""
    missing, start = Counter(wanted), 0
    for end, row in enumerate(rows):
        missing.subtract(row)
        while start <= end and all(missing[name] < 0 for name in rows[start]):
            missing.update(rows[start])
            start += 1
        if row and not +missing:
            yield end + 1 - start, start


def _with_results(graph: GraphDoc, names: frozenset[str]) -> frozenset[str]:
    """Add the calls that take a value out of a tuple."""
    users, nodes = users_of(graph), graph.by_name
    several = [name for name in names if not is_tensor(nodes[name].value)]
    taken = {user for name in several for user in users.get(name, ()) if nodes[user].is_call}
    return names | {name for name in taken if base_name(nodes[name]) == "getitem"}


def _wider(graph: GraphDoc, names: frozenset[str]) -> frozenset[str]:
    """Add the calls that these use and that use these."""
    users, nodes = users_of(graph), graph.by_name
    near = {user for name in names for user in users.get(name, ())}
    near |= {operand for name in names for operand in nodes[name].operands}
    return names | {name for name in near if nodes[name].is_call}
