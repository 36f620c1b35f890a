"""Plainer dtypes of inputs: everywhere at once, or of a single input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.document import NodeDoc
from torchreel.formats.tensors import view_bases
from torchreel.minifier.cases.case import VALUE_KEYS, Case
from torchreel.minifier.cases.descriptions import is_tensor
from torchreel.minifier.cases.literals import DTYPES, dtype_rank
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object


@dataclass(frozen=True)
class Retype(CaseEdit):
    """Everything of a dtype gets another: inputs, inputs of bodies, dtypes in arguments."""

    old: str
    new: str

    def on(self, case: Case) -> Case | None:
        """Return the case retyped; None if no input has the dtype."""
        doc = case.checkpoint
        inputs = tuple(self._value(value) for value in doc.inputs)
        if inputs == doc.inputs:
            return None
        return case.with_graph(case.graph.with_each_node(self._node), inputs)

    def _value(self, value: Json) -> Json:
        fields = as_object(value)
        if not is_tensor(value):
            return value
        view = fields.get("view")
        if isinstance(view, Mapping) and "base" in view:
            fields = {**fields, "view": {**view, "base": self._value(view["base"])}}
        if fields.get("dtype") != self.old:
            return {**fields}
        differentiable = self.new.startswith(_FLOATS)
        grad = differentiable and bool(fields.get("requires_grad"))
        return {**fields, "dtype": self.new, "requires_grad": grad}

    def _node(self, node: NodeDoc) -> NodeDoc:
        if node.op == "placeholder":
            meta = {k: self._value(v) if k in VALUE_KEYS else v for k, v in node.meta.items()}
            return replace(node, meta=meta)
        if not node.is_call:
            return node
        return replace(node, args=self._tree(node.args), kwargs=self._tree(node.kwargs))

    def _tree(self, tree: Json) -> Json:
        if isinstance(tree, (list, tuple)):
            return [self._tree(item) for item in tree]
        if isinstance(tree, Mapping):
            if tree.get("dtype") == self.old:
                return {"dtype": self.new}
            return {key: self._tree(value) for key, value in tree.items()}
        return tree


@dataclass(frozen=True)
class RetypeInput(CaseEdit):
    """One input (by its placeholder) gets another dtype."""

    node: str
    new: str

    def on(self, case: Case) -> Case | None:
        """Return the case retyped; None if the input is gone, or is a view or the base of one."""
        names = [node.name for node in case.graph.placeholders]
        if self.node not in names:
            return None
        index = names.index(self.node)
        inputs = list(case.checkpoint.inputs)
        if _is_with_others(inputs, index):
            return None
        old = str(as_object(inputs[index]).get("dtype"))
        inputs[index] = Retype(old, self.new)._value(inputs[index])
        return case.with_graph(case.graph, tuple(inputs))


def _is_with_others(inputs: Sequence[Json], index: int) -> bool:
    """Return True for an input that is a view, or the base of another: both have one dtype."""
    mine, *others = (as_object(value) for value in [inputs[index], *inputs])
    bases = [view_bases.base_of(other) for other in others]
    number = view_bases.object_of(mine)
    held = [view_bases.object_of(base) for base in bases if base is not None]
    return bases[index] is not None or (number is not None and number in held)


_FLOATS = ("float", "bfloat", "complex")


class PlainerDtypes(CasePass):
    """Make dtypes float32, int64, bool or float64."""

    name = "dtypes"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose each dtype everywhere, then (where several inputs have it) each input alone."""
        pairs = list(zip(case.graph.placeholders, case.checkpoint.inputs, strict=True))
        typed = [(n.name, str(as_object(v)["dtype"])) for n, v in pairs if is_tensor(v)]
        # What a higher-order operator gets counts, chooses or indexes, if it is no float.
        handed = {name for node in case.graph.nodes if node.target.startswith("hop:")
                  for name in node.inputs()}  # fmt: skip
        kept = {d for n, d in typed if n in handed and not d.startswith(_FLOATS)}
        found = sorted({d for _, d in typed} - kept, key=lambda d: (-dtype_rank(d), d))
        edits: list[CaseEdit] = [Retype(old, new) for old in found for new in _plainer(old)]
        crowded = {d for d in found if sum(dtype == d for _, dtype in typed) > 1}
        edits += [RetypeInput(name, new) for name, old in typed if old in crowded
                  for new in _plainer(old)]  # fmt: skip
        return edits


def _plainer(dtype: str) -> list[str]:
    """Return simpler dtypes in the order in which they are tried: those of the same kind first.

    A bool stays one: a condition or a mask that is none is less plain, not more.
    """
    if dtype == "bool":
        return []
    if dtype.startswith("complex"):
        order = ["complex64", "float32"]
    elif dtype.startswith(("float", "bfloat")):
        order = ["float32", "float64"]
    else:
        order = ["int64", "float32", "bool"]
    return [name for name in order if dtype_rank(name) < dtype_rank(dtype) and name in DTYPES]
