"""Fewer dimensions: of all inputs that have as many, and in the lists of sizes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import VALUE_KEYS, Case
from torchreel.minifier.cases.descriptions import is_tensor, sizes
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


@dataclass(frozen=True)
class DropDimension(CaseEdit):
    """Tensors of `rank` dimensions lose the one at `dim`; one input only, if it is named.

    With `follow`, so do lists of as many numbers in arguments, and numbers that name a later
    dimension name it as it is numbered then; strides close up. Without, they stay as they are.
    Rank 0 is any: the first dimension of all inputs is often that of a batch.
    """

    rank: int
    dim: int
    follow: bool
    node: str = ""

    def on(self, case: Case) -> Case | None:
        """Return the case with lower ranks; None if no input has that rank."""
        names = [node.name for node in case.graph.placeholders]
        old = case.checkpoint.inputs
        inputs = tuple(
            value if self.node not in ("", name) else self._value(value)
            for name, value in zip(names, old, strict=True)
        )
        if inputs == old:
            return None
        return case.with_graph(
            case.graph if self.node else case.graph.with_each_node(self._node), inputs
        )

    def _value(self, value: Json) -> Json:
        fields = as_object(value)
        rank = len(sizes(value))
        if not is_tensor(value) or not rank or rank != (self.rank or rank):
            return value
        if "stride" not in fields:
            return value
        kept = {k: v for k, v in fields.items() if k not in ("storage", "storage_size")}
        size, stride = as_list(fields["size"]), as_list(fields["stride"])
        del size[self.dim], stride[self.dim]
        return {**kept, "size": size, "stride": _closed(size, stride) if self.follow else stride,
                "offset": 0}  # fmt: skip

    def _node(self, node: NodeDoc) -> NodeDoc:
        if node.op == "placeholder":
            meta = {k: self._value(v) if k in VALUE_KEYS else v for k, v in node.meta.items()}
            return replace(node, meta=meta)
        if not self.follow or not self.rank or not node.is_call:
            return node
        if node.target.startswith(("fn:_operator.", "hop:")):
            return node
        args: list[Json] = [self._tree(item) for item in as_list(node.args)]
        return replace(node, args=args, kwargs=self._tree(node.kwargs))

    def _tree(self, tree: Json, *, listed: bool = False) -> Json:
        if isinstance(tree, (list, tuple)):
            if len(tree) == self.rank and any(isinstance(n, int) for n in tree):
                tree = [*tree[: self.dim], *tree[self.dim + 1 :]]
            return [self._tree(item, listed=True) for item in tree]
        if isinstance(tree, Mapping):
            if set(tree) == {"n"}:
                return tree
            inside = listed or set(tree) <= {"t", "size"}
            return {key: self._tree(value, listed=inside) for key, value in tree.items()}
        if isinstance(tree, int) and not isinstance(tree, bool) and not listed:
            return tree - 1 if self.dim < tree < self.rank else tree
        return tree


class LowerRanks(CasePass):
    """Drop dimensions."""

    name = "ranks"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose to drop each dimension of all inputs of a rank, literals following or not.

        Then of one.
        """
        pairs = zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
        ranked = [(node.name, len(sizes(value))) for node, value in pairs if is_tensor(value)]
        ranks = sorted({rank for _, rank in ranked if rank}, reverse=True)
        edits: list[CaseEdit] = [
            DropDimension(rank, dim, follow)
            for rank in ranks
            for dim in range(rank)
            for follow in (True, False)
        ]
        if len(ranked) > 1:
            edits.append(DropDimension(0, 0, True))
            edits += [DropDimension(rank, dim, True, name) for name, rank in ranked
                      for dim in range(rank)]  # fmt: skip
        return edits


def _closed(size: list[Json], stride: list[Json]) -> list[Json]:
    """Return strides without the gaps that a dropped dimension leaves, in the order they had."""
    if not all(isinstance(item, int) for item in (*size, *stride)):
        return stride
    order = sorted(range(len(size)), key=lambda dim: (int(str(stride[dim])), -dim))
    step, closed = 1, list(stride)
    for dim in order:
        if stride[dim] != 0:
            closed[dim] = step
            step *= max(int(str(size[dim])), 1)
    return closed
