"""Tensors of the program: each an expression where it is used once, else an assignment.

The lines are those of graphs' repros (`scripts.inputs`): sizes, strides, dtypes, shared storages.
Which tensors share what is only known once all have been seen; until then a mark stands for each.
"""

from __future__ import annotations

import re

import torch

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.shape_env.snapshots import encode_shape_env
from torchreel.formats.tensors.encoder import Encoder
from torchreel.minifier.scripts.inputs import InputLines
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.shapes import ShapeEnv

_MARK = re.compile(r"TENSOR_(\d+)_")
_MARKS = {
    "_dynamo_dynamic_indices": "mark_dynamic",
    "_dynamo_weak_dynamic_indices": "maybe_mark_dynamic",
    "_dynamo_static_indices": "mark_static",
}


class Tensors:
    """Collects tensors and writes them at the end."""

    def __init__(self) -> None:
        self._held: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}

    def mark(self, tensor: torch.Tensor) -> str:
        """Return the mark that stands for a tensor until the program is complete."""
        number = self._numbers.setdefault(id(tensor), len(self._held))
        if number == len(self._held):
            self._held.append(tensor)
        return f"TENSOR_{number}_"

    def written(self, lines: list[str]) -> list[str]:
        """Return the lines with each tensor in its place, after those that tensors need by
        themselves.
        """
        text = "\n".join(lines)
        made = self._lines()
        before: list[str] = []
        names: dict[int, str] = {}
        for number, own in enumerate(made):
            uses = text.count(f"TENSOR_{number}_")
            if len(own) == 1 and uses <= 1 and not self._marks(number):
                names[number] = own[0].partition(" = ")[2]
            else:
                names[number] = f"tensor{number}"
                before += [*own, *self._marks(number)]
        return before + _MARK.sub(lambda m: names[int(m[1])], text).splitlines()

    def _lines(self) -> list[list[str]]:
        """Return the assignments that make each tensor."""
        encoder = Encoder()
        descriptions: list[Json] = [encoder.describe(t) for t in self._held]
        doc = CheckpointDoc(
            "graph", "", GraphDoc(()), tuple(descriptions), encode_shape_env(ShapeEnv()), (), {}, {}
        )
        names = [f"tensor{number}" for number in range(len(self._held))]
        found: list[list[str]] = [[] for _ in names]
        waiting: list[str] = []
        for line in InputLines(doc, descriptions).lines(names):
            waiting.append(line)
            target = re.match(r"tensor(\d+) = ", line)
            if target is not None:
                found[int(target[1])] += waiting
                waiting = []
        return found

    def _marks(self, number: int) -> list[str]:
        found = vars(self._held[number])
        return [
            f"torch._dynamo.{function}(tensor{number}, {dim})"
            for name, function in _MARKS.items()
            for dim in sorted(found.get(name, ()))
        ]
