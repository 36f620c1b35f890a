"""Process groups, meshes of devices and distributed tensors as source.

Lives here: the lines that make a world without communication, and the expressions of a mesh and of
a distributed tensor.  Not here: the tensors that these hold (`inputs`), placements among arguments
(`store.documents.spelling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import literal
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.tensors import meshes
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import contiguous
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.torch_compat import distributed

IMPORTS = {
    "FakeStore": "from torch.testing._internal.distributed.fake_pg import FakeStore",
    "DeviceMesh": "from torch.distributed.device_mesh import DeviceMesh",
    **{
        name: f"from torch.distributed.tensor import {name}"
        for name in ("DTensor", "Partial", "Replicate", "Shard")
    },
}
FROM_LOCAL = "DTensor.from_local"
_COLLECTIVES = ("op:_c10d_functional", "op:_dtensor", "packet:_c10d_functional")


def world_lines(case: Case) -> list[str]:
    """Return the lines that make the recorded number of ranks, of which this process is one.

    None where nothing of the case asks for them.
    """
    world = as_list(case.checkpoint.extra.get("world"))
    if len(world) != 3 or not _is_distributed(case):
        return []
    rank, size = (spelling.constant(number) for number in world[:2])
    return [
        f'torch.distributed.init_process_group("fake", store=FakeStore(), rank={rank}, '
        f"world_size={size})"
    ]


def _is_distributed(case: Case) -> bool:
    return any(map(_has_mesh, case.checkpoint.inputs)) or _communicates(case.graph)


def _has_mesh(description: Json) -> bool:
    fields = as_object(description)
    held = as_object(fields.get("inner")).values()
    return fields.get("k") == meshes.KIND or any(map(_has_mesh, held))


def _communicates(graph: GraphDoc) -> bool:
    nodes = (node for each in graph.graphs() for node in each.nodes)
    return any(node.target.startswith(_COLLECTIVES) for node in nodes)


def parts(descriptions: Iterable[Mapping[str, Json]]) -> Iterator[Mapping[str, Json]]:
    """Yield the tensors that those of wrapper subclasses hold."""
    for description in descriptions:
        yield from map(as_object, as_object(description.get("inner")).values())


def mesh(description: Mapping[str, Json]) -> str:
    """Return the expression of a mesh."""
    ranks = spelling.constant(description.get("ranks"))
    names = description.get("names")
    given = f", mesh_dim_names={spelling.constant({'t': as_list(names)})}" if names else ""
    return f"DeviceMesh({literal(str(description.get('device')))}, {ranks}{given})"


def tensor(
    local: str,
    mesh: str,
    description: Mapping[str, Json],
    size: Sequence[int],
    part: Sequence[int],
) -> str:
    """Return the expression of a distributed tensor whose part here is `local`, of size `part`.

    Raises `UnsupportedError` for a tensor of another class.
    """
    if description.get("type") != distributed.DTENSOR:
        raise UnsupportedError(
            f"no line of source makes an input of class {str(description.get('type'))!r:.60}"
        )
    context = as_list(as_object(description.get("context")).get("t"))
    placements = as_list(as_object(context[0] if context else None).get("t"))
    given = [local, mesh, spelling.constant({"t": placements}), "run_check=False"]
    if not _follows(description, placements, size, part):
        given += [f"shape=torch.Size({list(size)!r})", f"stride={tuple(contiguous(list(size)))!r}"]
    return f"{FROM_LOCAL}({', '.join(given)})"


def _follows(
    description: Mapping[str, Json],
    placements: Sequence[Json],
    size: Sequence[int],
    part: Sequence[int],
) -> bool:
    """Return True if torch finds the whole size by itself: each rank has an equal part."""
    found, inner = list(part), as_object(description.get("inner"))
    over = _shape(as_object(inner.get("device_mesh")).get("ranks"))
    for placement, ranks in zip(placements, over, strict=False):
        name, *fields = as_list(as_object(placement).get("dtensor"))
        dim = fields[0] if fields else None
        if name == "Shard" and isinstance(dim, int) and dim < len(found):
            found[dim] *= ranks
    return found == list(size)


def _shape(ranks: Json) -> list[int]:
    return [len(ranks), *_shape(ranks[0])] if isinstance(ranks, list) and ranks else []
