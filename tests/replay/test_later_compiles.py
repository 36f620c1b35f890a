"""Later compiles of a process, which differ by what the earlier ones left behind."""

from pathlib import Path

import pytest

from tests.replay.programs import UNCACHED, record
from torchreel.events.shape_env import ShapeGuard
from torchreel.replay import replay
from torchreel.replay.compare.lanes import cache_hits
from torchreel.replay.compare.normalise import canonical_cached_code, canonical_code
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

_FROM_A_CACHE = """
import torch
from torch._inductor.utils import fresh_cache
def f(x):
    return x.sin() + 1
def g(x):
    return x.cos() * 2
def h(x):
    return x.sin() + 1
with fresh_cache():
    for function in (f, g, h):
        torch.compile(function)(torch.ones(4))
"""
_FROM_A_CACHE_WITH_GUARDS = """
import torch, torch._functorch.config
from torch._inductor.utils import fresh_cache
torch._functorch.config.enable_autograd_cache = False
def f(x):
    return x.expand(x.shape[0], 8).sum(0), (x.t() @ x).sum()
with fresh_cache():
    for size in (6, 9):
        torch._dynamo.reset()
        torch.compile(f, dynamic=True)(torch.ones(size, 8))
"""
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
_REGIONS = """
import torch
from torch.utils.checkpoint import checkpoint
@torch.compiler.nested_compile_region
def region(x):
    return x.sin().cos()
def f(x, w):
    y = checkpoint(lambda a, b: torch.tanh(a @ b), x, w, use_reentrant=False)
    return region(region(y))
compiled = torch.compile(f, backend="aot_eager")
for size in (3, 4):
    x, w = (torch.ones(size, size, requires_grad=True) for _ in range(2))
    compiled(x, w).sum().backward()
"""
_SCATTERED = """
import torch
def fill(y, x):
    y[:, 1:, 3:, 1:] = x[:, :1, 3:, 1:]
    y[:, 1:, :, 2:] = x[:, :1, :, 2:] + 1
    y[:, :1, 1:, 2:] = x[:, 1:, 1:, 2:] + 1
    return y * 2
def f(x):
    return fill(x.new_zeros(x.size()), x)
def g(x):
    return fill(x.new_zeros(x.size()), x).sin()
for function in (f, g):
    torch.compile(function, backend="aot_eager")(torch.ones(2, 2, 6, 5))
"""
_UNKNOWN_THEN = """
import torch
def tile(x, n):
    torch._check(n < 20)
    return x.repeat(n, 1)[: n + 1].cumsum(0)
compiled = torch.compile(tile)
for n in (3, 4):
    compiled(torch.rand(2, 3), n)
"""
_IN_GRAPH = """
import functools
import torch
@torch.compiler.allow_in_graph
def mine(x):
    return x.sin()
@torch.compiler.allow_in_graph
@functools.lru_cache
def kept(x):
    return x.cos()
class Shift:
    by = 1
    def add(self, x):
        return x + self.by
shifted = torch.compiler.allow_in_graph(Shift().add)
def f(x):
    return shifted(mine(x)) * kept(x)
torch.compile(f, backend="aot_eager")(torch.ones(2))
"""
_FAILING_LATER = """
import torch
@torch.compile(backend="aot_eager", fullgraph=True)
def f(x, transform):
    return transform(x) * 2
f(torch.ones(2), torch.sin)
try:
    f(torch.ones(2), torch.vmap(lambda x: x.reshape(3)))
except RuntimeError:
    pass
"""


@pytest.mark.slow
def test_a_compile_that_failed_replays_without_those_of_the_same_code_before_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_FAILING_LATER) == 0
    with Store.open(path, write=True) as store:
        compile = queries.compiles(store, 1)[-1]
        assert (compile.place, compile.status) == ("1/0/1", "failed")
        verdict = replay(store, compile, entry="frame", trust=True)
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
        assert any("set aside: earlier compiles" in note for note in verdict.notes)
        assert any("record with --frames all" in note for note in verdict.notes)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["graph", "aot"])
def test_a_question_without_an_answer_is_asked_again(tmp_path: Path, entry: str) -> None:
    """Torch remembers that it could not tell, and so adds the same guard twice."""
    path = tmp_path / "run.db"
    assert record(path, "program", source=_UNKNOWN_THEN, **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        compile = queries.compiles(store, 1)[-1]
        guards = [
            event.data["expr"]  # type: ignore[call-overload,index]
            for event in queries.events(store, compile, ShapeGuard.kind)
        ]
        assert len(set(guards)) < len(guards)
        verdict = replay(store, compile, entry)
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


@pytest.mark.slow
def test_a_function_of_the_programs_own_in_a_graph_replays_on_trust(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_IN_GRAPH, TORCHREEL_FRAMES="all") == 0
    with Store.open(path, write=True) as store:
        (compile,) = queries.compiles(store, 1)
        refused = replay(store, compile)
        assert refused.verdict == "refused"
        assert "target program.mine (" in refused.detail
        assert "add --trust" in refused.detail
        for entry in ("graph", "frame"):
            again = replay(store, compile, entry, trust=True)
            assert (again.verdict, again.detail, again.difference) == ("identical", "", "")


@pytest.mark.slow
def test_code_that_an_earlier_compile_left_in_a_cache_replays_identically(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_FROM_A_CACHE) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, queries.compiles(store, 1)[-1])
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


def _cached(store: Store, compile: Compile) -> list[tuple[str, object]]:
    """Whether each operator under vmap, as AOTAutograd traced it, was found in the cache."""
    return [
        (event.name, event.data["outcome"])  # type: ignore[call-overload,index]
        for event in queries.events(store, compile, "fake_tensors.dispatch")
        if event.stage == "joint" and event.name in ("aten.mul.Tensor", "aten.add.Tensor")
    ]


@pytest.mark.slow
def test_operators_under_vmap_are_in_the_cache_as_dynamo_left_them(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_VMAP) == 0
    with Store.open(path, write=True) as store:
        compile = queries.compiles(store, 1)[-1]
        verdict = replay(store, compile)
        assert verdict.verdict == "identical"
        (again,) = queries.compiles(store, verdict.recording_id or 0)
        assert _cached(store, again) == _cached(store, compile) != []


@pytest.mark.slow
def test_what_an_earlier_compile_left_in_the_fake_tensor_cache_is_found_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_SCATTERED) == 0
    with Store.open(path, write=True) as store:
        for compile in queries.compiles(store, 1):
            verdict = replay(store, compile)
            assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
            (again,) = queries.compiles(store, verdict.recording_id or 0)
            assert _outcomes(store, again) == _outcomes(store, compile) != []


def _outcomes(store: Store, compile: Compile) -> list[tuple[str, object]]:
    """What each operator found in the cache, as AOTAutograd traced it."""
    return [
        (event.name, event.data["outcome"])  # type: ignore[call-overload,index]
        for event in queries.events(store, compile, "fake_tensors.dispatch")
        if event.stage == "joint"
    ]


@pytest.mark.slow
def test_regions_and_their_calls_have_the_numbers_that_the_process_gave_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_REGIONS) == 0
    with Store.open(path, write=True) as store:
        compiles = queries.compiles(store, 1)
        assert len(compiles) == 2
        for compile in compiles:
            verdict = replay(store, compile)
            assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


def test_only_code_from_a_cache_goes_without_the_number_of_its_graph() -> None:
    ours, theirs = (f"# AOT ID: ['{number}_inference']\ncode = {number}" for number in (0, 2))
    assert canonical_code(ours) != canonical_code(theirs)
    assert (
        canonical_cached_code(ours).splitlines()[0] == canonical_cached_code(theirs).splitlines()[0]
    )
    assert canonical_cached_code(ours) != canonical_cached_code(theirs)


@pytest.mark.slow
def test_code_from_a_cache_comes_with_guards_and_the_sizes_of_another_compile(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    assert record(path, "program", source=_FROM_A_CACHE_WITH_GUARDS) == 0
    with Store.open(path, write=True) as store:
        _, later = queries.compiles(store, 1)
        assert cache_hits(store, later) == {"FxGraphCache"}
        verdict = replay(store, later)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    rows = {(row.stage, row.kind): row.identical for row in verdict.compared}
    assert rows["codegen", "output code"] == 1


def test_only_code_from_a_cache_goes_without_the_inputs_of_its_benchmark() -> None:
    ours, theirs = (
        f"def call(args):\n    size = 5\n\n\ndef get_args():\n"
        f"    arg0_1 = {size}\n    arg1_1 = rand_strided(({size}, 8), (8, 1), device='cpu')\n"
        f"    return [arg0_1, arg1_1]\n"
        for size in (6, 9)
    )
    assert canonical_code(ours) != canonical_code(theirs)
    assert canonical_cached_code(ours) == canonical_cached_code(theirs)
    assert "    size = 5" in canonical_cached_code(ours)
