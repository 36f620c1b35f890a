"""Inputs that need no gradient, and harnesses that do less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.minifier.cases.case import HARNESSES, Case, Harness
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object


@dataclass(frozen=True)
class Detach(CaseEdit):
    """An input (by its placeholder) needs no gradient and is no parameter."""

    node: str

    def on(self, case: Case) -> Case | None:
        """Return the case with an input without gradient; None if it is gone or has none."""
        names = [node.name for node in case.graph.placeholders]
        if self.node not in names:
            return None
        index = names.index(self.node)
        inputs = list(case.checkpoint.inputs)
        inputs[index] = _plain(inputs[index])
        doc = replace(case.checkpoint, inputs=tuple(inputs))
        return replace(case, checkpoint=doc)


@dataclass(frozen=True)
class UseHarness(CaseEdit):
    """Do less with the case."""

    harness: Harness

    def on(self, case: Case) -> Case | None:
        """Return the case with that harness, if it does less."""
        less = HARNESSES.index(self.harness) < HARNESSES.index(case.harness)
        return replace(case, harness=self.harness) if less else None


@dataclass(frozen=True)
class DetachAll(CaseEdit):
    """No input needs a gradient or is a parameter."""

    def on(self, case: Case) -> Case | None:
        """Return the case with inputs without gradients."""
        inputs = tuple(map(_plain, case.checkpoint.inputs))
        return replace(case, checkpoint=replace(case.checkpoint, inputs=inputs))


class NoGradients(CasePass):
    """Drop all gradients: where that will do, there is no backward in what follows."""

    name = "no gradients"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit, if there is anything to drop."""
        return [DetachAll()] if Gradients().edits(case) else []


class Gradients(CasePass):
    """Drop gradients one by one, of the inputs that are left."""

    name = "gradients"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each input that needs one."""
        pairs = zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
        return [Detach(node.name) for node, value in pairs if _plain(value) != value]


class LessHarness(CasePass):
    """Compile only, or run without a backward."""

    name = "harness"

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose those that do less (comparing with eager is what a wrong result is found by)."""
        if case.harness == "accuracy":
            return []
        return [UseHarness(name) for name in HARNESSES[: HARNESSES.index(case.harness)]]


def _plain(value: Json) -> Json:
    fields = as_object(value)
    if fields.get("k") != "tensor" or not (fields.get("requires_grad") or fields.get("parameter")):
        return value
    return {**fields, "requires_grad": False, "parameter": False, "leaf": True}
