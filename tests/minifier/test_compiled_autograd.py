"""A failure in what compiled autograd captured is reduced from data."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo import compiled_autograd

import torchreel
from tests import backward_programs
from tests.minifier import planted_lowering
from torchreel.errors import UnsupportedError
from torchreel.formats import autograd_nodes, backward_prologues
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.scripts.names import public_target
from torchreel.store import Store, queries

planted_lowering.repair()  # all tests of this process have imported it


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    torch._dynamo.reset()
    compiled_autograd.reset()
    yield
    compiled_autograd.reset()
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_failing_backward_is_reduced_without_trust(tmp_path: Path) -> None:
    planted_lowering.break_again()
    try:
        with torchreel.record(tmp_path / "run.db"), contextlib.suppress(Exception):
            backward_programs.of_sine()
    finally:
        planted_lowering.repair()
    with Store.open(tmp_path / "run.db", write=True) as store:
        _, inner = queries.compiles(store, queries.recordings(store)[-1].id)
        assert (inner.compile_id, inner.status) == ("!0/0/0", "failed")
        found = minify(store, options=MinifyOptions(imports=("tests.minifier.planted_lowering",)))
    (call,) = (node for node in found.case.graph.nodes if node.is_call)
    assert call.target in ("cos", "op:aten.cos.default")
    assert found.case.backend == "inductor"


@pytest.mark.parametrize(
    "target",
    [
        f"fn:{autograd_nodes.PREFIX}SinBackward0",
        f'{backward_prologues.TAG}{{"bases":0,"deterministic":null,"formats":[],"inputs":[],'
        '"mutates":false,"outputs":[],"rng":false,"tokens":0}',
    ],
)
def test_a_script_does_not_name_what_only_a_capture_makes(target: str) -> None:
    with pytest.raises(UnsupportedError, match="compiled autograd"):
        public_target(target)
