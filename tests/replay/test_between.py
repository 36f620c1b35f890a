"""What Dynamo does to a graph between its checkpoint and the backend, a replay does as well."""

from pathlib import Path

import pytest

from tests.replay.programs import record
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

_REGION = """
import torch
@torch.compiler.nested_compile_region
def region(x):
    return torch.cos(torch.sin(x))
def f(x):
    return region(x) + {more}
{config}
torch.compile(f, backend="aot_eager", fullgraph=True)(torch.ones(4))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "config"),
    [
        ("1", ""),
        ("region(x * 2)", "torch._dynamo.config.inline_invoke_subgraph = True"),
    ],
    ids=["used once", "all inlined"],
)
def test_a_region_is_inlined_where_torch_did(tmp_path: Path, more: str, config: str) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_REGION.format(more=more, config=config)) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, queries.compiles(store, 1)[-1])
        assert (verdict.verdict, verdict.difference) == ("identical", "")
