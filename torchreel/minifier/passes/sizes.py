"""Smaller sizes, consistently: every dimension that has a size gets the same new one.

The inputs' descriptions are changed, the numbers in arguments that speak of that size as well; what
the rest of the graph then computes is found out by the oracle's fake propagation. A size that is
dynamic keeps its symbol and gets another hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import VALUE_KEYS, Case
from torchreel.minifier.cases.descriptions import contiguous, is_tensor, sizes
from torchreel.minifier.cases.literals import smaller_numbers
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

# Literals in arguments: none, those equal to the size, or also its multiples (4 * 8 in a view).
LITERALS = ("multiples", "equal", "none")


@dataclass(frozen=True)
class Resize(CaseEdit):
    """Dimensions of size `old` get size `new`; `literals` says which numbers follow."""

    old: int
    new: int
    literals: str

    def on(self, case: Case) -> Case | None:
        """Return the case resized; None if no input has such a dimension."""
        doc = case.checkpoint
        inputs = tuple(_resized(value, self.old, self.new) for value in doc.inputs)
        if inputs == doc.inputs:
            return None
        graph = _with_numbers(case.graph, self._number) if self.literals != "none" else case.graph
        modules = {name: self._resized_body(inner) for name, inner in graph.modules.items()}
        return case.with_graph(replace(graph, modules=modules), inputs)

    def _resized_body(self, graph: GraphDoc) -> GraphDoc:
        """Return a body with inputs that are described as they will be."""
        nodes = tuple(
            replace(node, meta={key: _resized(value, self.old, self.new) if key in VALUE_KEYS
                                else value for key, value in node.meta.items()})
            for node in graph.nodes
        )  # fmt: skip
        modules = {name: self._resized_body(inner) for name, inner in graph.modules.items()}
        return replace(graph, nodes=nodes, modules=modules)

    def _number(self, number: int) -> int:
        if number == self.old:
            return self.new
        multiple = self.literals == "multiples" and self.old > 1 and number % self.old == 0
        return number // self.old * self.new if multiple else number


@dataclass(frozen=True)
class Hint(CaseEdit):
    """A symbol stands for a smaller size."""

    symbol: str
    new: int

    def on(self, case: Case) -> Case | None:
        """Return the case with the smaller hint.

        None if there is no such symbol, its hint is smaller already, or another symbol has that.
        """
        doc = case.checkpoint
        hint = doc.hints.get(self.symbol)
        if not isinstance(hint, int) or hint <= self.new:
            return None
        if self.new in doc.hints.values():  # equal sizes get one symbol, when a script is traced
            return None
        state = as_object(doc.shape_env.get("state"))
        rows = [_row(row, self.symbol, self.new) for row in as_list(state["backed_var_to_val"])]
        snapshot = {**doc.shape_env, "state": {**state, "backed_var_to_val": rows}}
        return replace(case, checkpoint=replace(doc, shape_env=snapshot))


@dataclass(frozen=True)
class Contiguous(CaseEdit):
    """An input (by its placeholder) is laid out row by row, in a separate storage."""

    node: str

    def on(self, case: Case) -> Case | None:
        """Return the case with a contiguous layout.

        None if the input is gone, or its sizes are dynamic.
        """
        names = [node.name for node in case.graph.placeholders]
        if self.node not in names:
            return None
        inputs = list(case.checkpoint.inputs)
        index = names.index(self.node)
        inputs[index] = laid_out(inputs[index])
        return replace(case, checkpoint=replace(case.checkpoint, inputs=tuple(inputs)))


class SmallerSizes(CasePass):
    """Shrink every dimension to one given size; without one, as far as it goes."""

    def __init__(self, new: int | None) -> None:
        self.new = new
        self.name = f"sizes to {new}" if new is not None else "smaller sizes"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose, for each way of treating literals, one edit for each size; then the hints."""
        found = sorted({s for v in case.checkpoint.inputs for s in sizes(v) if isinstance(s, int)})
        shrunk = [(old, new) for old in reversed(found) for new in self._news(old) if 0 < new < old]
        edits: list[CaseEdit] = [Resize(o, n, how) for how in LITERALS for o, n in shrunk]
        for symbol, hint in sorted(case.checkpoint.hints.items()):
            news = self._news(hint) if isinstance(hint, int) else []
            edits += [Hint(symbol, new) for new in news if 1 < new < int(str(hint))]
        return edits

    def _news(self, old: int) -> list[int]:
        return smaller_numbers(old) if self.new is None else [self.new]


class PlainLayout(CasePass):
    """Lay inputs out row by row."""

    name = "contiguous inputs"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each input that is laid out otherwise, or shares its storage."""
        pairs = zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
        return [Contiguous(node.name) for node, value in pairs if laid_out(value) != value]


@dataclass(frozen=True)
class AnyContents(CaseEdit):
    """An input (by its placeholder) may hold any numbers."""

    node: str

    def on(self, case: Case) -> Case | None:
        """Return the case with an input that is not said to hold only some.

        None if it was not, or is gone.
        """
        names = [node.name for node in case.graph.placeholders]
        inputs = tuple(
            {k: v for k, v in as_object(value).items() if k != "contents"}
            if name == self.node and is_tensor(value)
            else value
            for name, value in zip(names, case.checkpoint.inputs, strict=True)
        )
        changed = inputs != case.checkpoint.inputs
        return case.with_graph(case.graph, inputs) if changed else None


class PlainContents(CasePass):
    """Let inputs hold any numbers."""

    name = "contents"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each input that may hold only some."""
        pairs = zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
        return [AnyContents(node.name) for node, value in pairs if "contents" in as_object(value)]


def laid_out(value: Json) -> Json:
    """Return a tensor description with row-major strides and no base.

    Dynamic ones stay as they are.
    """
    size = [s for s in sizes(value) if isinstance(s, int)]
    if not is_tensor(value) or len(size) != len(sizes(value)):
        return value
    kept = {k: v for k, v in as_object(value).items() if k not in ("storage", "storage_size")}
    if "stride" not in kept:
        return value
    return {**kept, "stride": contiguous(size), "offset": 0}


def _resized(value: Json, old: int, new: int) -> Json:
    """Return a description with smaller dimensions: dense stays dense, in the same order of
    strides.
    """
    fields = as_object(value)
    if not is_tensor(value) or old not in sizes(value):
        return value
    size: list[Json] = [new if s == old else s for s in sizes(value)]
    kept = {k: v for k, v in fields.items() if k != "storage_size"}
    return {**kept, "size": size, "stride": _restrided(sizes(value), size, fields.get("stride"))}


def _restrided(before: Sequence[Json], after: Sequence[Json], stride: Json) -> list[Json]:
    """Return strides for the new sizes.

    Those of a tensor that is not dense are kept (they still fit).
    """
    old, new, steps = _numbers(before), _numbers(after), _numbers(as_list(stride))
    if old is None or new is None or steps is None or len(steps) != len(new):
        return as_list(stride)
    order = sorted(range(len(new)), key=lambda dim: (-steps[dim], dim))
    if _in_order(contiguous([old[dim] for dim in order]), order) != steps:
        return as_list(stride)
    return _in_order(contiguous([new[dim] for dim in order]), order)


def _in_order(strides: list[Json], order: list[int]) -> list[Json]:
    """Return strides of the permuted dimensions, given back to the dimensions they belong to."""
    result: list[Json] = [0] * len(order)
    for dim, step in zip(order, strides, strict=True):
        result[dim] = step
    return result


def _numbers(items: Sequence[Json]) -> list[int] | None:
    found = [item for item in items if isinstance(item, int)]
    return found if len(found) == len(items) else None


def _row(row: Json, symbol: str, new: int) -> Json:
    if not isinstance(row, (list, tuple)) or not row or row[0] != symbol:
        return row
    return [symbol, [new] if isinstance(row[1], (list, tuple)) else new]


def _with_numbers(graph: GraphDoc, change: Callable[[int], int]) -> GraphDoc:
    """Return a graph with the integers in its calls' arguments changed; nested graphs as well."""

    def with_numbers(node: NodeDoc) -> NodeDoc:
        if not (node.is_call and _has_numbers([node.args, node.kwargs])):
            return node
        return replace(node, args=_tree(node.args, change), kwargs=_tree(node.kwargs, change))

    return graph.with_each_node(with_numbers)


def _has_numbers(tree: Json) -> bool:
    if isinstance(tree, (list, tuple)):
        return any(_has_numbers(item) for item in tree)
    if isinstance(tree, Mapping):
        return any(_has_numbers(item) for item in tree.values())
    return isinstance(tree, int) and not isinstance(tree, bool)


def _tree(tree: Json, change: Callable[[int], int]) -> Json:
    if isinstance(tree, int) and not isinstance(tree, bool):
        return change(tree)
    if isinstance(tree, (list, tuple)):
        return [_tree(item, change) for item in tree]
    if isinstance(tree, Mapping):
        return {key: _tree(value, change) for key, value in tree.items()}
    return tree
