"""Process groups, meshes of devices and placements, and a world without communication.

Lives here: the groups of a distributed program as numbers, the fake process groups of torch's own
tests in their place, the parts of meshes and placements.  Not here: how these are spelled in a
document (`formats.tensors.meshes`).

Nothing here imports torch's distributed tensors where the program has not: without them there is
no mesh, and no placement.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.torch_compat.patching import patched

MOST_RANKS = 1 << 20
"""Ranks of a world: no cluster has more."""
MOST_GROUPS = 4096
"""Groups of a process."""

FROM_LOCAL = "torch.distributed.tensor._api.DTensor.from_local"
"""The function of distributed tensors that Dynamo puts into graphs; its methods are `METHODS`."""
METHODS = ("full_tensor", "redistribute", "to_local")
DTENSOR = "torch.distributed.tensor.DTensor"
"""The class of distributed tensors, as a description names it."""

_PARTS = {
    "Replicate": ("torch.distributed.tensor.placement_types", ()),
    "Shard": ("torch.distributed.tensor.placement_types", ("dim",)),
    "_StridedShard": ("torch.distributed.tensor.placement_types", ("dim", "split_factor")),
    "Partial": ("torch.distributed.tensor.placement_types", ("reduce_op",)),
    "_MaskPartial": (
        "torch.distributed.tensor.placement_types",
        ("reduce_op", "offset_shape", "offset_dim"),
    ),
    "TensorMeta": ("torch.distributed.tensor._dtensor_spec", ("shape", "stride", "dtype")),
    "ShardOrderEntry": ("torch.distributed.tensor._dtensor_spec", ("tensor_dim", "mesh_dims")),
}
"""Classes whose objects are their fields: what the flattening context of a DTensor consists of."""


def world() -> list[Any] | None:
    """Return this process's rank, the number of ranks, and its other groups; None without a group.

    Each of the groups is its name and its global ranks, in the order of its own.
    """
    found: Any = sys.modules.get("torch.distributed")
    if found is None or not found.is_available() or not found.is_initialized():
        return None
    return [found.get_rank(), found.get_world_size(), _groups()]


def _groups() -> list[list[Any]]:
    from torch.distributed import distributed_c10d

    known, default = distributed_c10d._world, distributed_c10d.group.WORLD
    found = []
    for group, name in known.pg_names.items():
        ranks = known.pg_group_ranks.get(group)
        if group is not default and ranks is not None:
            found.append(
                [str(name), [rank for rank, _ in sorted(ranks.items(), key=itemgetter(1))]]
            )
    return found


def impose_world(rank: int, size: int, groups: Sequence[tuple[str, Sequence[int]]] = ()) -> None:
    """Make the missing process groups under their recorded names; they send nothing.

    The traced graphs are those of any other groups, for a compile runs no collective.  Raises
    ValueError for a rank that is none of `size`, and where this process has another rank.
    """
    if not torch.distributed.is_available():
        return
    for known in ([rank], *(ranks for _, ranks in groups)):
        if not known or any(not 0 <= number < size for number in known):
            raise ValueError(f"a rank of {known!r:.60} is none of {size}")
    if torch.distributed.is_initialized():
        here = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if here != (rank, size):
            raise ValueError(f"this process is rank {here[0]} of {here[1]}, not {rank} of {size}")
        _add_groups(groups)
        return
    # Registers the backend 'fake'.
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        _add_groups(groups)
    except (RuntimeError, TypeError, ValueError):
        torch.distributed.destroy_process_group()
        raise


def _add_groups(groups: Sequence[tuple[str, Sequence[int]]]) -> None:
    from torch.distributed import distributed_c10d

    for name, ranks in groups:
        if name in distributed_c10d._world.pg_names.values():
            continue
        with patched(distributed_c10d, "_process_group_name", lambda *_, name=name, **__: name):
            torch.distributed.new_group(list(ranks), backend="fake", sort_ranks=False)


def parts_of(value: object) -> list[Any] | None:
    """Return class name and fields of a placement or of a part of a spec; None for all else."""
    cls = type(value)
    known = _PARTS.get(cls.__name__)
    if known is None or cls.__module__ != known[0]:
        return None
    return [cls.__name__, *(getattr(value, name) for name in known[1])]


def of_parts(name: object, fields: Sequence[object]) -> object:
    """Return the object of `parts_of`.

    Raises KeyError for a class that is none of these, TypeError or ValueError for other fields.
    """
    module, names = _PARTS[str(name)]
    given = dict(zip(names, fields, strict=True))
    return getattr(importlib.import_module(module), str(name))(**given)


def outer_size(context: Any, size: Sequence[Any]) -> tuple[Any, ...]:
    """Return sizes as a tuple or a torch.Size: as the flattening context of a DTensor has them.

    That of any other class has none, and gets a torch.Size.
    """
    for part in context if isinstance(context, tuple) else ():
        if isinstance(parts_of(part), list) and type(getattr(part, "shape", None)) is tuple:
            return tuple(size)
    return torch.Size(size)


def mesh_of(value: object) -> Any:
    """Return the mesh of devices that a value is, or that torch's stand-in for one holds.

    None for all other values.
    """
    found: Any = sys.modules.get("torch.distributed.device_mesh")
    if found is None or not torch.distributed.is_available():
        return None
    if is_stand_in(value):
        value = object.__getattribute__(value, "real_obj")
    return value if issubclass(type(value), found.DeviceMesh) else None


def is_stand_in(value: object) -> bool:
    """Return True for torch's stand-in (a script object) of a mesh beside fake tensors."""
    found: Any = sys.modules.get("torch._library.fake_class_registry")
    return found is not None and type(value) is found.FakeScriptObject


def stand_in(mesh: object, mode: object) -> object:
    """Return torch's stand-in for a mesh beside the fake tensors of a mode."""
    from torch._library.fake_class_registry import maybe_to_fake_obj

    return maybe_to_fake_obj(mode, mesh)


def group_name_of(value: Any) -> str | None:
    """Return the name of a process group; None for all other values."""
    found: Any = sys.modules.get("torch.distributed")
    if found is None or not found.is_available():
        return None
    if not issubclass(type(value), found.ProcessGroup):
        return None
    return str(value.group_name)


def group_named(name: str) -> object:
    """Return the process group of that name.  Raises UnsupportedError where there is none."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type,attr-defined]
    except RuntimeError as error:
        raise UnsupportedError(f"there is no process group {name!a:.60} here") from error


def root_of(mesh: Any) -> Any:
    """Return the mesh that another was cut out of; itself where it was not."""
    return mesh._get_root_mesh()


def group_names(mesh: Any) -> list[str] | None:
    """Return the names of the groups of a mesh, one for each dimension; None without groups."""
    names = getattr(mesh, "_dim_group_names", None)
    return None if names is None else [str(name) for name in names]


def make_mesh(
    device: str,
    ranks: Any,
    names: Sequence[str] | None,
    groups: Sequence[str] | None,
    root: Any = None,
) -> Any:
    """Return a mesh of devices with the groups of these names, cut out of `root` if given.

    Raises torch's exceptions for ranks, names or groups that do not fit.
    """
    from torch.distributed.device_mesh import DeviceMesh

    known = (getattr(root, "mesh_dim_names", None) or ()) if root is not None else ()
    if names and set(names) <= set(known):
        mesh = root[tuple(names)]
    else:
        kept = None if names is None else tuple(names)
        rank = torch.distributed.get_rank()
        mesh = DeviceMesh(
            device, ranks, mesh_dim_names=kept, _init_backend=False, _rank=rank, _root_mesh=root
        )
    if any(given is not None and len(given) != mesh.ndim for given in (names, groups)):
        raise ValueError(f"{mesh.ndim} dimensions, with the names {names!r:.60}")
    if groups is not None:
        mesh._dim_group_names = list(groups)
        if hasattr(mesh, "__setstate__"):  # it looks the groups up by their names
            mesh.__setstate__(mesh.__getstate__())
    return mesh


def name_of(target: object) -> str:
    """Return the name of the function that makes a distributed tensor; '' for all others.

    What FX says of it leaves out the class.
    """
    qualified = f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', '')}"
    return qualified if qualified == FROM_LOCAL and target is from_local() else ""


def from_local() -> Any:
    """Return the function that makes a distributed tensor of its part here.

    None in a torch without distributed tensors.
    """
    if not torch.distributed.is_available():
        return None
    from torch.distributed.tensor import DTensor

    return DTensor.from_local
