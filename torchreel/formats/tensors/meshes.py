"""Meshes of devices as data: an input of a graph of distributed tensors, or part of such a tensor.

Lives here: the description of a mesh, and the mesh of one.  Not here: placements (`values`), the
process groups that it needs (`torch_compat.distributed`).

A mesh is described by the devices' ranks, the names of its dimensions and of their groups, and the
mesh that it was cut out of.  Equal descriptions are one mesh.  `fake` says that torch's stand-in
for it stood there, which it puts beside fake tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.torch_compat import distributed

KIND = "device_mesh"


def describe(mesh: Any) -> dict[str, Json]:
    """Return the description of a mesh."""
    names, groups = mesh.mesh_dim_names, distributed.group_names(mesh)
    root = distributed.root_of(mesh)
    return {
        "k": KIND,
        "device": str(mesh.device_type),
        "ranks": mesh.mesh.tolist(),
        "names": None if names is None else [str(name) for name in names],
        "groups": None if groups is None else list[Json](groups),
        **({} if root is mesh else {"root": describe(root)}),
    }


def make(description: Mapping[str, Json]) -> Any:
    """Return the mesh of a description.

    Raises `UnsupportedError` where torch makes none of it, or this torch has no process groups.
    """
    kept = {key: value for key, value in description.items() if key not in ("object", "fake")}
    return _made(canonical_json(kept))


@cache
def _made(text: bytes) -> Any:
    description = parse_json(text)
    assert isinstance(description, Mapping)
    root = description.get("root")
    above = make(root) if isinstance(root, Mapping) else None
    names, groups = description.get("names"), description.get("groups")
    try:
        return distributed.make_mesh(
            str(description.get("device")), description.get("ranks"), _texts(names), _texts(groups),
            above,
        )  # fmt: skip
    except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"no mesh of devices is like the recorded one: {str(error).partition(chr(10))[0]:.200}"
        ) from error


def _texts(data: Json) -> list[str] | None:
    return [str(item) for item in data] if isinstance(data, list) else None
