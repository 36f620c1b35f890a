"""Leave out what a failure does not need: numbers in calls, constants, config and ambient state.

Lives here: which values have a neutral one, and the search for those that may take it. A number
stays only if the failure is another one, or none, without it. Sizes are not touched: a reduction
makes them smaller (`minifier.passes.sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.literals import Place, at_place, float_of, leaves, with_place
from torchreel.minifier.passes.base import Path, graph_at, paths, with_graph_at
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

_PLAIN_INTEGER = 16
"""A whole number up to this is a dimension, a count or a flag, and says nothing by itself."""
_PLAIN_FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0)
_FLOAT = 'Float("0x3p-1", 53)'
"""One and a half, as an expression."""
_INFINITE = ("inf", "-inf", "nan")

Edit = Callable[[Case], Case]
Holds = Callable[[Case], bool]


@dataclass(frozen=True)
class Neutralised:
    """A case in which all values that the failure does not need are neutral."""

    case: Case
    tried: int
    """The number of values there were to try."""
    kept: int
    """The number of those that stayed, since the failure needs them."""
    runs: int


def neutralised(case: Case, holds: Holds, most_runs: int) -> Neutralised:
    """Return the case with as many neutral values as the failure allows, in `most_runs` runs.

    `holds` runs a case and says if it is still the same failure. All edits are tried at once, then
    halves of those that were refused, down to each by itself.
    """
    edits = list(_edits(case))
    search = _Search(case, holds, most_runs)
    search.apply(edits)
    return Neutralised(search.case, len(edits), search.kept, search.runs)


class _Search:
    def __init__(self, case: Case, holds: Holds, most_runs: int) -> None:
        self.case, self._holds, self._most = case, holds, most_runs
        self.runs = self.kept = 0

    def apply(self, edits: Sequence[Edit]) -> None:
        """Apply as many of the edits as the failure allows."""
        if not edits:
            return
        made = self.case
        for edit in edits:
            made = edit(made)
        if made.canonical == self.case.canonical:
            return
        if self.runs >= self._most:
            self.kept += len(edits)
            return
        self.runs += 1
        if self._holds(made):
            self.case = made
        elif len(edits) == 1:
            self.kept += 1
        else:
            half = len(edits) // 2
            self.apply(edits[:half])
            self.apply(edits[half:])


def _edits(case: Case) -> Iterator[Edit]:
    """Yield one edit for each value, those that reveal most first."""
    for path in paths(case.graph):
        graph = graph_at(case, path)
        assert graph is not None, "paths() names graphs that are there"
        sizes = sizes_in(case)
        for node in graph.nodes:
            for place, leaf in leaves([node.args, node.kwargs]) if node.is_call else ():
                for choice in neutral_choices(leaf, sizes)[:1]:
                    yield _literal(path, node.name, place, choice)
        for name, value in graph.attributes.items():
            if "data" in as_object(value):
                yield _attribute(path, name)
    for number, value in enumerate(case.checkpoint.inputs):
        if as_object(value).get("k") in ("int", "float"):
            yield _input(number)
    yield from _settings(case)


def neutral_choices(leaf: Json, sizes: frozenset[int]) -> list[Json]:
    """Return the neutral literals to try for a revealing one; [] for one that reveals nothing."""
    if type(leaf) is int:
        return [] if is_plain_integer(leaf, sizes) else [2]
    number = float_of(leaf)
    if number is not None:
        return [] if is_plain_float(number, leaf) else [{"f": (0.5).hex()}]
    return [{"c": [(0.5).hex(), (0.5).hex()]}] if "c" in as_object(leaf) else []


def is_plain_integer(number: int, sizes: frozenset[int]) -> bool:
    """Return True for a small number, and for one that is a size in the case anyway."""
    return abs(number) <= _PLAIN_INTEGER or abs(number) in sizes or abs(number) >= 2**63 - 1


def is_plain_float(number: float, leaf: Json = None) -> bool:
    """Return True for a float that every program has."""
    text = as_object(leaf).get("f")
    return number in _PLAIN_FLOATS or number != number or text in _INFINITE


def sizes_in(case: Case) -> frozenset[int]:
    """Return the numbers in the sizes and strides of a case, which leave in any event."""
    found: set[int] = set()
    held: list[Json] = [*case.checkpoint.inputs]
    held += [node.value for graph in case.graph.graphs() for node in graph.nodes]
    while held:
        fields = as_object(held.pop())
        for key in ("size", "stride"):
            found |= {item for item in as_list(fields.get(key)) if type(item) is int}
        held += as_list(fields.get("items"))
    return frozenset(found)


def _literal(path: Path, name: str, place: Place, new: Json) -> Edit:
    def edit(case: Case) -> Case:
        graph = graph_at(case, path)
        node = graph.by_name.get(name) if graph is not None else None
        if graph is None or node is None or at_place([node.args, node.kwargs], place) is None:
            return case
        args, kwargs = as_list(with_place([node.args, node.kwargs], place, new))
        made = replace(node, args=args, kwargs=kwargs)
        return with_graph_at(case, path, _with_node(graph, made))

    return edit


def _with_node(graph: GraphDoc, node: NodeDoc) -> GraphDoc:
    nodes = tuple(node if other.name == node.name else other for other in graph.nodes)
    return replace(graph, nodes=nodes)


def _attribute(path: Path, name: str) -> Edit:
    """Make the values of a constant ones, or numbers from zero on."""

    def edit(case: Case) -> Case:
        graph = graph_at(case, path)
        if graph is None or name not in graph.attributes:
            return case
        value = as_object(graph.attributes[name])
        made = {**value, "data": _flat(value.get("data"))}
        return with_graph_at(
            case, path, replace(graph, attributes={**graph.attributes, name: made})
        )

    return edit


def _flat(data: Json) -> Json:
    if isinstance(data, list):
        return [_flat(item) for item in data]
    if isinstance(data, bool) or data is None:
        return data
    if isinstance(data, int):
        return min(1, data) if data >= 0 else 0
    return {"f": (0.5).hex()} if isinstance(data, Mapping) and "f" in data else data


def _input(number: int) -> Edit:
    def edit(case: Case) -> Case:
        inputs = list(case.checkpoint.inputs)
        value = as_object(inputs[number])
        new: Json = 2 if value.get("k") == "int" else {"f": (0.5).hex()}
        inputs[number] = {**value, "v": new}
        return case.with_graph(case.graph, tuple(inputs))

    return edit


def _settings(case: Case) -> Iterator[Edit]:
    yield _float_hints
    for name in case.checkpoint.ambient:
        yield _without_ambient(name)
    for entry in case.checkpoint.config:
        yield _without_entry(entry)
    for option in as_list(case.checkpoint.extra.get("options")):
        yield _without_option(option)


def _float_hints(case: Case) -> Case:
    """Give every symbol of a float the hint one and a half: hints are values of the program."""
    doc = case.checkpoint
    state = as_object(doc.shape_env.get("state"))
    made = {
        key: [[as_list(row)[0], _hint(as_list(row)[1])] for row in as_list(state[key])]
        for key in ("backed_var_to_val", "var_to_range")
        if key in state
    }
    env = {**doc.shape_env, "state": {**state, **made}}
    graph = _with_hints(case.graph)
    inputs = tuple(_with_hint(value) for value in doc.inputs)
    return replace(case, checkpoint=replace(doc, shape_env=env, graph=graph, inputs=inputs))


def _hint(value: Json) -> Json:
    if isinstance(value, list):
        return [_FLOAT if str(item).startswith("Float(") else item for item in value]
    return {"f": (1.5).hex()} if "f" in as_object(value) else value


def _with_hints(graph: GraphDoc) -> GraphDoc:
    return graph.with_each_node(
        lambda node: replace(node, meta={k: _with_hint(value) for k, value in node.meta.items()})
    )


def _with_hint(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_hint(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    made = {key: _with_hint(held) for key, held in value.items()}
    if value.get("k") == "symfloat" and value.get("hint") is not None:
        made["hint"] = {"f": (1.5).hex()}
        if str(value.get("expr")).startswith("Float("):  # one that was specialised
            made["expr"] = _FLOAT
    return made


def _without_ambient(name: str) -> Edit:
    def edit(case: Case) -> Case:
        kept = {key: value for key, value in case.checkpoint.ambient.items() if key != name}
        return replace(case, checkpoint=replace(case.checkpoint, ambient=kept))

    return edit


def _without_entry(entry: Json) -> Edit:
    def edit(case: Case) -> Case:
        kept = tuple(one for one in case.checkpoint.config if one != entry)
        return replace(case, checkpoint=replace(case.checkpoint, config=kept))

    return edit


def _without_option(option: Json) -> Edit:
    def edit(case: Case) -> Case:
        doc = case.checkpoint
        kept = [one for one in as_list(doc.extra.get("options")) if one != option]
        return replace(case, checkpoint=replace(doc, extra={**doc.extra, "options": kept}))

    return edit
