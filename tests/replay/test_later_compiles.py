"""Later compiles of a process, which differ by what the earlier ones left behind."""

from pathlib import Path

from tests.replay.programs import record
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

_VMAP = """
import torch
def combine(a, b):
    return a * b + a
def f(x):
    while x.shape[0] > 2:
        x = torch.vmap(combine, in_dims=1, out_dims=1)(x[:-1:2], x[1::2])
    return x
compiled = torch.compile(f, backend="aot_eager")
for size in (8, 12):
    compiled(torch.ones(size, 2, 3))
"""


def _cached(store: Store, compile: Compile) -> list[tuple[str, object]]:
    """Whether each operator under vmap, as AOTAutograd traced it, was found in the cache."""
    return [
        (event.name, event.data["outcome"])  # type: ignore[call-overload,index]
        for event in queries.events(store, compile, "fake_tensors.dispatch")
        if event.stage == "joint" and event.name in ("aten.mul.Tensor", "aten.add.Tensor")
    ]


def test_operators_under_vmap_are_in_the_cache_as_dynamo_left_them(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_VMAP) == 0
    with Store.open(path, write=True) as store:
        compile = queries.compiles(store, 1)[-1]
        verdict = replay(store, compile)
        assert verdict.verdict == "identical"
        (again,) = queries.compiles(store, verdict.recording_id or 0)
        assert _cached(store, again) == _cached(store, compile) != []
