"""Dynamic sizes become static ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import sympy

from torchreel.formats.graphs.document import NodeDoc
from torchreel.formats.shape_env import snapshots
from torchreel.formats.symbols import decode_expr, encode_expr
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import constant_of, is_tensor, map_expressions, sizes
from torchreel.minifier.cases.descriptions import symbols_of as described_symbols
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

Change = Callable[[Json], Json]


@dataclass(frozen=True)
class Static(CaseEdit):
    """A symbol becomes the size it stood for, everywhere."""

    symbol: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the symbol; None if the case has no such symbol with a hint."""
        doc = case.checkpoint
        hint = doc.hints.get(self.symbol)
        if not isinstance(hint, int):
            return None
        table = snapshots.decode_symbols(doc.shape_env)
        change = partial(_substituted, symbol=table[self.symbol], hint=hint, table=table)
        left = without_symbols(doc.shape_env, {self.symbol})
        changed = replace(case, checkpoint=replace(doc, shape_env=left))
        return with_expressions(changed, change)


@dataclass(frozen=True)
class Forget(CaseEdit):
    """A symbol that no input mentions leaves the symbol table."""

    symbol: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the symbol; None if it is not there."""
        doc = case.checkpoint
        if self.symbol not in as_object(doc.shape_env.get("symbols")):
            return None
        left = without_symbols(doc.shape_env, {self.symbol})
        return replace(case, checkpoint=replace(doc, shape_env=left))


@dataclass(frozen=True)
class MergeSymbols(CaseEdit):
    """A symbol becomes another one that stands for the same size."""

    symbol: str
    by: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the symbol.

        None if one of the two is gone, or their hints differ.
        """
        doc = case.checkpoint
        hint = doc.hints.get(self.symbol)
        if not isinstance(hint, int) or doc.hints.get(self.by) != hint:
            return None
        table = snapshots.decode_symbols(doc.shape_env)
        change = partial(_substituted, symbol=table[self.symbol], hint=table[self.by], table=table)
        left = without_symbols(doc.shape_env, {self.symbol})
        changed = replace(case, checkpoint=replace(doc, shape_env=left))
        return with_expressions(changed, change)


@dataclass(frozen=True)
class PlainSize(CaseEdit):
    """Sizes of inputs that are this expression become one of its symbols."""

    expression: str
    symbol: str

    def on(self, case: Case) -> Case | None:
        """Return the case with the symbol instead; None if no input has such a size."""

        def change(text: Json) -> Json:
            return self.symbol if text == self.expression else text

        doc = case.checkpoint
        inputs = tuple(
            map_expressions(value, change) if is_tensor(value) else value for value in doc.inputs
        )
        return case.with_graph(case.graph, inputs) if inputs != doc.inputs else None


class FewerSymbols(CasePass):
    """Let one symbol stand for another; let sizes be symbols, not expressions."""

    name = "fewer symbols"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose pairs of symbols with the same hint.

        Then expressions with each of their symbols.
        """
        hints = case.checkpoint.hints
        known = sorted(name for name in hints if isinstance(hints[name], int))
        found: list[CaseEdit] = []
        for at, name in enumerate(known):
            first = next((other for other in known[:at] if hints[other] == hints[name]), None)
            if first is not None:
                found.append(MergeSymbols(name, first))
        texts = {str(s) for value in case.checkpoint.inputs for s in sizes(value)}
        for text in sorted(texts):
            inside = sorted(described_symbols({"size": [text]}) & set(known))
            found += [PlainSize(text, name) for name in inside if name != text]
        return found


class StaticSizes(CasePass):
    """Replace symbols by their hints."""

    name = "static sizes"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each integer with a hint.

        Floats are inputs of the graph: see `scalars`.
        """
        hints = case.checkpoint.hints
        return [Static(name) for name in sorted(hints) if isinstance(hints[name], int)]


class UnusedSymbols(CasePass):
    """Forget symbols that only the symbol table knows."""

    name = "unused symbols"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each such symbol."""
        used = {name for value in case.checkpoint.inputs for name in described_symbols(value)}
        table = as_object(case.checkpoint.shape_env.get("symbols"))
        return [Forget(name) for name in sorted(table) if name not in used]


def _substituted(
    text: Json, *, symbol: sympy.Symbol, hint: int | sympy.Symbol, table: Mapping[str, sympy.Symbol]
) -> Json:
    """Return an expression with a symbol replaced by a number, evaluated as far as it goes."""
    if not isinstance(text, str) or symbol.name not in text:
        return text
    expr = decode_expr(text, table)
    if symbol not in expr.free_symbols:
        return text
    value = _evaluated(expr.subs(symbol, hint))
    if isinstance(value, sympy.logic.boolalg.BooleanAtom):
        return bool(value)
    return encode_expr(value)


def _evaluated(expr: sympy.Basic) -> sympy.Basic:
    """Rebuild an expression bottom up: parts that were written unevaluated stay so under `subs`."""
    return expr if not expr.args else expr.func(*(_evaluated(arg) for arg in expr.args))


def with_expressions(case: Case, change: Change) -> Case:
    """Return a case with `change` applied to every expression.

    Inputs that become numbers go inline.
    """
    inputs = tuple(map_expressions(value, change) for value in case.checkpoint.inputs)
    graph = case.graph.with_each_node(partial(_node_with, change=change))
    return inlined(case.with_graph(graph, inputs))


def _node_with(node: NodeDoc, change: Change) -> NodeDoc:
    meta = {
        key: map_expressions(value, change) if key in ("val", "example_value") else value
        for key, value in node.meta.items()
    }
    args, kwargs = _tree_with(node.args, change), _tree_with(node.kwargs, change)
    return replace(node, args=args, kwargs=kwargs, meta=meta)


def _tree_with(tree: Json, change: Change) -> Json:
    """Return an argument tree with `change` applied to the symbolic values in it."""
    if isinstance(tree, (list, tuple)):
        return [_tree_with(item, change) for item in tree]
    if not isinstance(tree, Mapping):
        return tree
    if set(tree) == {"sym"}:
        symbolic = as_object(tree["sym"])
        expr = change(symbolic.get("expr"))
        return {"sym": {**symbolic, "expr": expr}} if isinstance(expr, str) else expr
    return {key: _tree_with(value, change) for key, value in tree.items()}


def inlined(case: Case) -> Case:
    """Return the case without inputs that are numbers: they become literals where they are used."""
    pairs = list(zip(case.graph.placeholders, case.checkpoint.inputs, strict=True))
    constants = {n.name: constant_of(v) for n, v in pairs if constant_of(v) is not None}
    if not constants:
        return case
    inputs = tuple(value for node, value in pairs if node.name not in constants)

    def use(name: str) -> Json:
        return constants.get(name, {"n": name})

    nodes = [node.mapped(use) for node in case.graph.nodes if node.name not in constants]
    return case.with_graph(replace(case.graph, nodes=tuple(nodes)), inputs)


def without_symbols(snapshot: Mapping[str, Json], names: set[str]) -> dict[str, Json]:
    """Return a ShapeEnv snapshot that no longer knows some symbols."""
    table = {k: v for k, v in as_object(snapshot.get("symbols")).items() if k not in names}
    state = {
        field: [row for row in as_list(rows) if not _mentions(row, names)]
        if isinstance(rows, (list, tuple))
        else rows
        for field, rows in as_object(snapshot.get("state")).items()
    }
    return {**snapshot, "symbols": table, "state": state}


def _mentions(row: Json, names: set[str]) -> bool:
    key = row[0] if isinstance(row, (list, tuple)) and row else row
    return isinstance(key, str) and key in names
