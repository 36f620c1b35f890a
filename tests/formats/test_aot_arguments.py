"""Decompositions and partitioners: those of torch come back by name, a program's own never."""

from functools import partial

import pytest
import torch
from torch._decomp import get_decompositions
from torch._functorch.partitioners import min_cut_rematerialization_partition

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints import aot_arguments
from torchreel.store.documents.jsontypes import Json


def test_a_table_of_torch_comes_back() -> None:
    from torch._inductor.decomposition import select_decomp_table

    own: list[Json] = []
    few = get_decompositions([torch.ops.aten.gelu, torch.ops.aten.silu])
    for table in (few, select_decomp_table()):
        encoded = aot_arguments.encode(table, own)[aot_arguments.DECOMPOSITIONS]
        assert aot_arguments.decode(encoded) == table
    assert own == []
    assert aot_arguments.decode(None) is None


def test_a_decomposition_of_the_program_is_named() -> None:
    own: list[Json] = []
    assert aot_arguments.encode({torch.ops.aten.gelu.default: lambda x: x}, own) == {}
    assert own == [aot_arguments.DECOMPOSITIONS]


@pytest.mark.parametrize("data", [{"os.system": "torch"}, {"aten.gelu.default": "os"}, 7, "os"])
def test_only_tables_of_torch_are_read(data: Json) -> None:
    with pytest.raises(UnsupportedError):
        aot_arguments.decode(data)


def test_a_partitioner_of_torch_comes_back() -> None:
    own: list[Json] = []
    given = partial(min_cut_rematerialization_partition, compiler="inductor")
    encoded = aot_arguments.encode_partition(given, own)[aot_arguments.PARTITION]
    found = aot_arguments.decode_partition(encoded)
    assert isinstance(found, partial)
    assert (found.func, found.keywords) == (given.func, given.keywords)
    assert aot_arguments.encode_partition(lambda *args: None, own) == {}
    assert own == [aot_arguments.PARTITION]


@pytest.mark.parametrize(
    "data",
    [
        "default_partition",
        {"name": "draw_graph", "keywords": {}},
        {"name": "default_partition", "keywords": {"compiler": [1]}},
    ],
)
def test_only_partitioners_of_torch_are_read(data: Json) -> None:
    with pytest.raises(UnsupportedError):
        aot_arguments.decode_partition(data)
