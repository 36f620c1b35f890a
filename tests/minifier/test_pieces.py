"""The failure of a part that a backend compiles apart is reduced without that backend."""

from pathlib import Path

import pytest
import torch

from tests import split_backends
from tests.minifier import planted_lowering
from tests.minifier.recorded import record
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.store import Store, queries

planted_lowering.repair()  # all tests of this process have imported it


class Cosines(split_backends.Layers):
    """The second of three layers has the failing call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layers in turn."""
        for number, layer in enumerate(self.layers):
            x = layer(x).relu()
            x = (x * 2).cos() + 1 if number == 1 else x
        return x


def test_the_case_of_one_size_has_values_of_that_size(tmp_path: Path) -> None:
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    model = split_backends.Layers(1).requires_grad_(False)
    path = record(tmp_path / "run.db", model, x, backend=split_backends.splitting())
    with Store.open(path) as store:
        _, _, sized = queries.compiles(store, queries.recordings(store)[-1].id)
        (graph,) = (c for c in queries.checkpoints(store, sized) if c.entry == "graph")
        doc = CheckpointDoc.from_bytes(store.read_blob(graph.digest))
    recorded, *_ = [node.value for node in doc.graph.nodes if node.is_call]
    assert isinstance(recorded, dict)
    assert isinstance(recorded["size"][0], str)
    case = Case.from_checkpoint(doc)
    values = [node.value for node in case.graph.nodes if node.is_call]
    assert [value["size"] for value in values if isinstance(value, dict)] == [[4, 4]] * 3


@pytest.mark.slow
def test_a_failing_part_is_reduced_without_the_backend(tmp_path: Path) -> None:
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    model = Cosines(3).requires_grad_(False)
    planted_lowering.break_again()
    try:
        path = record(tmp_path / "run.db", model, x, backend=split_backends.splitting())
    finally:
        planted_lowering.repair()
    with Store.open(path, write=True) as store:
        found = minify(store, options=MinifyOptions(imports=("tests.minifier.planted_lowering",)))
    assert [node.target for node in found.case.graph.nodes if node.is_call] == ["cos"]
    assert found.case.backend == "inductor"
    assert not found.case.checkpoint.shape_env.get("symbols")
