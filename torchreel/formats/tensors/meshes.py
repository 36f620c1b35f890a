"""Meshes of devices as data: an input of a graph of distributed tensors, or part of such a tensor.

Lives here: the description of a mesh, and the mesh of one.  Not here: placements
(`node_arguments`), the process groups that it needs (`torch_compat.distributed`).

A mesh is described by the devices' ranks, the names of its dimensions and of their groups, and the
mesh that it was cut out of.  Equal descriptions are one mesh.  `fake` says that torch's stand-in
for it stood there, which it puts beside fake tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, placements
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.torch_compat import distributed
from torchreel.torch_compat.tensors import fake_tensors

KIND = "device_mesh"


def describe(mesh: Any) -> dict[str, Json]:
    """Return the description of a mesh; a stub for one whose ranks can't be told here.

    The ranks are in a tensor, at which the modes of the program do not get to look.
    """
    try:
        with fake_tensors.no_dispatch(), torch._C.DisableTorchFunction():
            return _described(mesh)
    except (AssertionError, RuntimeError) as error:
        reason = f"its ranks are not known here: {type(error).__name__}"
        return {"k": "opaque", **node_arguments.opaque(mesh, reason)["opaque"]}  # type: ignore[dict-item]


def _described(mesh: Any) -> dict[str, Json]:
    names, groups = mesh.mesh_dim_names, distributed.group_names(mesh)
    root = distributed.root_of(mesh)
    return {
        "k": KIND,
        "device": str(mesh.device_type),
        "ranks": mesh.mesh.tolist(),
        "names": None if names is None else [str(name) for name in names],
        "groups": None if groups is None else list[Json](groups),
        **({} if root is mesh else {"root": _described(root)}),
    }


def check(description: Mapping[str, Json]) -> None:
    """Raise `UnsupportedError` for what describes no mesh."""
    device, root = description.get("device"), description.get("root")
    if not isinstance(device, str) or device not in _devices():
        raise UnsupportedError(f"no mesh of devices is of type {device!a:.40}")
    count = _count(description.get("ranks"), 0)
    if not 0 < count <= distributed.MOST_RANKS:
        raise UnsupportedError(f"no mesh of devices has {count} ranks")
    for key in ("names", "groups"):
        found = description.get(key)
        if found is not None and not isinstance(found, list):
            raise UnsupportedError(f"the {key} of a mesh of devices are no list")
        for name in found or ():
            placements.check_name(name)
    if root is not None:
        if not isinstance(root, Mapping) or "root" in root:
            raise UnsupportedError("a mesh of devices is cut out of no mesh")
        check(root)


def _count(ranks: Json, level: int) -> int:
    """Return the number of ranks in nested lists."""
    if type(ranks) is int and 0 <= ranks < distributed.MOST_RANKS and level:
        return 1
    if not isinstance(ranks, list) or level > _MOST_DIMENSIONS:
        raise UnsupportedError("no mesh of devices has these ranks")
    return sum(_count(item, level + 1) for item in ranks)


@cache
def _devices() -> frozenset[str]:
    """Return the types of devices that this torch knows."""
    found = set()
    for name in ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "ipu", "xla", "meta"):
        with contextlib.suppress(RuntimeError):
            found.add(torch.device(name).type)
    return frozenset(found)


_MOST_DIMENSIONS = 8


def make(description: Mapping[str, Json]) -> Any:
    """Return the mesh of a description.

    Raises `UnsupportedError` for what describes none, or where this torch has no process groups.
    """
    check(description)
    kept = {key: value for key, value in description.items() if key in _FIELDS}
    return _made(canonical_json(kept))


_FIELDS = ("device", "ranks", "names", "groups", "root")


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
    except (
        AssertionError,
        AttributeError,
        IndexError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise UnsupportedError(
            f"no mesh of devices is like the recorded one: {str(error).partition(chr(10))[0]:.200}"
        ) from error


def _texts(data: Json) -> list[str] | None:
    return [str(item) for item in data] if isinstance(data, list) else None
