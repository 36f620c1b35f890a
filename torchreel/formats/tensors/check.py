"""The check of a description: each field has the type that those who read it rely on.

Lives here: what a description of a store is held to before anybody looks into it.  Not here:
whether torch can make such a value (`fakes`, `synthetic`).  Called where a checkpoint is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from torchreel.errors import UnsupportedError
from torchreel.formats.tensors import meshes
from torchreel.formats.tensors.fields import SEQUENCES
from torchreel.store.documents.jsontypes import Json
from torchreel.store.reading.typed import convert

_Size = int | str
_SYMBOLIC = ("symint", "symfloat", "symbool")


class _Tensor(msgspec.Struct):
    """The fields of a tensor that are no descriptions themselves."""

    dtype: str
    device: str
    layout: str
    size: list[_Size]
    stride: list[_Size] | None = None
    offset: _Size = 0
    flags: list[str] = []
    storage: int = 0
    storage_size: _Size = 0
    unreplaced: list[_Size] = []
    object: int = 0
    requires_grad: bool = False
    leaf: bool = False
    parameter: bool = False
    type: str = ""


class _Symbolic(msgspec.Struct):
    expr: _Size
    unreplaced: _Size = ""


def check_description(value: Json) -> None:
    """Raise `UnsupportedError` for a description that is malformed, or holds one that is."""
    kind = value.get("k") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(kind, str):
        raise UnsupportedError(f"malformed value description {value!r:.80}")
    try:
        if kind in ("tensor", "subclass"):
            _check_tensor(value)
        elif kind == meshes.KIND:
            meshes.check(value)
        elif kind in _SYMBOLIC:
            convert(value, _Symbolic)
        elif kind in SEQUENCES.values():
            for item in convert(value.get("items"), list):
                check_description(item)
    except ValueError as error:
        raise UnsupportedError(f"malformed description of a {kind}: {error}") from error


def _check_tensor(value: Mapping[str, Json]) -> None:
    fields = convert(value, _Tensor)
    has_strides = fields.stride is not None or fields.layout == "strided"
    if has_strides and len(fields.stride or ()) != len(fields.size):
        raise ValueError(f"{len(fields.stride or ())} strides for {len(fields.size)} sizes")
    for key in ("item", "view", "inner"):
        held = value.get(key)
        if held is None:
            continue
        if not isinstance(held, Mapping):
            raise ValueError(f"its {key!r} is {held!r:.40}")
        descriptions: Mapping[str, Iterable[Json]] = {
            "item": [held], "view": [held.get("base")], "inner": held.values(),
        }  # fmt: skip
        for description in descriptions[key]:
            check_description(description)
