"""Pieces again: the call by which a backend compiled a part of a graph, made from data.

Lives here: what takes the place of the program's backend.  Not here: the checkpoint
(`torchreel.formats.checkpoints.split_graphs`), what is restored around the call (`restore`).
Called by `restore` and by the minifier's worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints import aot_arguments
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.checkpoints.split_graphs import (
    BEFORE,
    COMPILE_FX,
    KEY,
    REAL,
    REGION,
    TRACED,
    own_code,
)
from torchreel.formats.tensors.synthetic import synthesise_all
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat import fx
from torchreel.torch_compat.autograd import aot
from torchreel.torch_compat.inductor import code_generation as torch_inductor
from torchreel.torch_compat.tensors import fake_tensors

__all__ = [
    "KEY", "backend", "backend_name", "compiles_apart", "is_from_dynamo", "is_piece",
    "traced_with",
]  # fmt: skip


def is_piece(doc: CheckpointDoc) -> bool:
    """Return True if a checkpoint is that of a piece."""
    return isinstance(doc.extra.get(KEY), Mapping)


def compiles_apart(doc: CheckpointDoc) -> bool:
    """Return True if the piece knows no sizes but those of its inputs (`ignore_shape_env`)."""
    settings = doc.extra.get(KEY)
    return isinstance(settings, Mapping) and bool(settings.get("ignore_shape_env"))


def is_from_dynamo(doc: CheckpointDoc) -> bool:
    """Return True if AOTAutograd is to take the graph for one of Dynamo's."""
    settings = doc.extra.get(KEY)
    return not isinstance(settings, Mapping) or bool(settings.get("from_dynamo"))


def traced_with(doc: CheckpointDoc) -> Mapping[str, Json] | None:
    """Return the ShapeEnv that the graph's values belong to, if its inputs have another."""
    found = as_object(doc.extra.get(KEY)).get(TRACED)
    return found if isinstance(found, Mapping) else None


def backend(doc: CheckpointDoc) -> Callable[..., Any]:
    """Return the function that compiles the graph of a piece, given the graph and its inputs.

    Raises UnsupportedError if code of the program decides what is compiled.
    """
    settings = doc.extra.get(KEY)
    assert isinstance(settings, Mapping)
    if own := own_code(settings):
        raise UnsupportedError(
            f"the piece was compiled with what is code of the program: {', '.join(own)}. The "
            "graphs that reached Inductor are replayed with --entry aot"
        )
    call = _call(settings)

    def run(graph: GraphModule, inputs: Sequence[object]) -> object:
        with fx.inside_region(settings.get(REGION)):
            return call(graph, _given(doc, settings, inputs))

    return run


def _given(
    doc: CheckpointDoc, settings: Mapping[str, Json], inputs: Sequence[object]
) -> list[object]:
    """Return the inputs, with real tensors in place of those that AOTAutograd makes symbols of."""
    real = settings.get(REAL)
    if not isinstance(real, list):
        return list(inputs)
    mode = fake_tensors.fake_mode_of(None, inputs)
    if mode is not None and settings.get(BEFORE) == 0:
        fake_tensors.forget_converted(mode)
    made = synthesise_all(doc.inputs, seed=0, hints=doc.hints, table={})
    return [_whole(made[i]) if i in real else given for i, given in enumerate(inputs)]


def _whole(value: object) -> object:
    """Return a copy of a view if its layout stays the same: there would be symbols for its base."""
    if not isinstance(value, torch.Tensor) or not value._is_view():
        return value
    copy = value.detach().clone()
    same = copy.stride() == value.stride() and value.storage_offset() == 0
    return copy.requires_grad_(value.requires_grad) if same else value


def _call(settings: Mapping[str, Json]) -> Callable[..., Any]:
    """Return the entry that was called, with all but the graph and its inputs."""
    table = aot_arguments.decode(settings.get(aot_arguments.DECOMPOSITIONS))
    if settings.get("call") == COMPILE_FX:
        return torch_inductor.compile_fx(
            decompositions=table, ignore_shape_env=bool(settings.get("ignore_shape_env"))
        )
    given: dict[str, Any] = {flag: bool(settings.get(flag)) for flag in _FLAGS}
    partition = aot_arguments.decode_partition(settings.get(aot_arguments.PARTITION))
    if partition is not None:
        given["partition_fn"] = partition
    return partial(aot.aot_alone, {**given, "decompositions": table})


_FLAGS = ("ignore_shape_env", "keep_inference_input_mutations", "disable_functionalization")


def backend_name(settings: Json) -> str:
    """Return the name of torch's backend that is nearest to how a piece is compiled."""
    inductor = isinstance(settings, Mapping) and settings.get("call") == COMPILE_FX
    return "inductor" if inductor else "aot_eager"
