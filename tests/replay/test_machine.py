"""A recording is replayed on another machine: identical, or the verdict says what is missing.

The machines are simulated: the recorded program finds one with 64 cores and AVX2, and the replay
one with 3 cores and no vector instructions at all, under another user, locale and time zone.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
import torch

from tests.replay.programs import UNCACHED, record
from torchreel.events.nondeterminism import VectorISA
from torchreel.events.shape_env import RangeUpdate
from torchreel.replay import Verdict, replay
from torchreel.replay.compare.lanes import lanes
from torchreel.replay.compare.rules import SCOPES, excuses
from torchreel.replay.compare.selection import Point
from torchreel.replay.imposed.facts import Facts, facts_of, variables
from torchreel.replay.imposed.torch_machine import imposed
from torchreel.store import Store, queries

# A machine in four lines, found before anything asks for it.
MACHINE = """
import os, torch, torch._inductor.cpu_vec_isa as isa
os.cpu_count = lambda: {cpus}
torch.cpu._is_avx512_supported = lambda: False
torch.cpu._is_avx2_supported = lambda: {avx2}
isa.valid_vec_isa_list.cache_clear()
"""
# 64 threads on 64 CPUs: Inductor then leaves the number of threads to OpenMP.
PROGRAM = (
    MACHINE.format(cpus=64, avx2=True)
    + "torch.set_num_threads(64)\n"
    + "torch.compile(lambda x: (x.sin() * 2).sum(0))(torch.randn(300, 300))\n"
)
OTHER_MACHINE = MACHINE.format(cpus=3, avx2=False)
AROUND = {
    "PYTHONHASHSEED": "4711",
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "USER": "somebody",
    "LOGNAME": "somebody",
    "LC_ALL": "C",
    "LANG": "C",
    "TZ": "Pacific/Chatham",
}

avx2 = pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="records AVX2")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "run.db"
    assert record(path, "big", source=PROGRAM, **UNCACHED, TORCHREEL_FRAMES="all") == 0
    return path


def elsewhere(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str = "graph"
) -> Verdict:
    """The verdict of a replay on the other machine."""
    (folder / "other_machine.py").write_text(OTHER_MACHINE)
    (folder / "home").mkdir()
    for name, value in AROUND.items():
        monkeypatch.setenv(name, value)
    for name, inner in (("HOME", "home"), ("XDG_CACHE_HOME", "home"), ("TMPDIR", "home")):
        monkeypatch.setenv(name, str(folder / inner))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.chdir(folder / "home")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with Store.open(path, write=True) as store:
            compile = queries.compiles(store, 1)[0]
            return replay(store, compile, entry, imports=["other_machine"], trust=True)
    finally:
        os.sched_setaffinity(0, before)


@avx2
@pytest.mark.slow
@pytest.mark.parametrize("entry", ["graph", "frame"])
def test_a_replay_on_another_machine_is_identical(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    verdict = elsewhere(recorded, tmp_path, monkeypatch, entry)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert any(row.kind == "output code" and row.identical for row in verdict.compared)
    assert not any("not imposed" in note for note in verdict.notes)


@pytest.mark.slow
def test_a_kernel_of_which_inductor_asks_the_machine_early_replays_identically(
    tmp_path: Path,
) -> None:
    """With max_autotune, the lowering of a product looks for kernels in C++."""
    program = """
import torch
with torch.no_grad():
    product = torch.compile(lambda x, y: (x @ y).relu(), options={"max_autotune": True})
    product(torch.ones(2, 16), torch.ones(16, 16))
"""
    path = tmp_path / "run.db"
    assert record(path, "big", source=program, **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        compile = queries.compiles(store, 1)[0]
        asked = [event.stage for event in queries.events(store, compile, VectorISA.kind)]
        verdict = replay(store, compile, "graph")
    assert asked == ["lowering"]
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


@avx2
@pytest.mark.slow
def test_without_the_facts_it_is_not(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("torchreel.replay.replay")
    monkeypatch.setattr(module, "facts_of", lambda *_: Facts())
    verdict = elsewhere(recorded, tmp_path, monkeypatch)
    assert verdict.verdict == "diverged", verdict


@avx2
def test_the_facts_are_on_the_event_log(recorded: Path) -> None:
    with Store.open(recorded) as store:
        facts = facts_of(store, queries.compiles(store, 1)[0])
    assert (facts.cpus, facts.vector_isa) == (64, "avx2")
    assert "-mavx2" in facts.vector_flags
    assert isinstance(facts.seed, int)
    assert facts.capability == torch.backends.cpu.get_cpu_capability()


def test_what_a_process_begins_with() -> None:
    assert variables(Facts()) == {}
    assert variables(Facts(hash_seed="random", capability="AVX512")) == {}
    assert variables(Facts(hash_seed="7", capability="AVX2")) == {
        "PYTHONHASHSEED": "7", "ATEN_CPU_CAPABILITY": "avx2",
    }  # fmt: skip


def test_imposed_facts_are_seen_and_taken_back() -> None:
    from torch._inductor import cpu_vec_isa

    cpus, usable = os.cpu_count(), os.sched_getaffinity(0)
    facts = Facts(cpus=77, usable_cpus=33, vector_isa="avx2", vector_flags="-mavx2 -mfma -mf16c")
    with imposed(facts) as left:
        picked = cpu_vec_isa.pick_vec_isa()
        assert (os.cpu_count(), str(picked), bool(picked)) == (77, "avx2", True)
        assert torch._utils.cpu_count() == 33
        assert isinstance(picked, cpu_vec_isa.VecAVX2)
        assert left == []
    assert (os.cpu_count(), os.sched_getaffinity(0)) == (cpus, usable)
    assert cpu_vec_isa.pick_vec_isa is not picked


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(vector_isa="rvv"), "'rvv': this torch does not know them"),
        (Facts(vector_isa="avx2", vector_flags="-mavx3"), "'-mavx3': it has other flags here"),
    ],
    ids=["unknown", "flags"],
)
def test_what_cannot_be_imposed_is_said(facts: Facts, reason: str) -> None:
    with imposed(facts) as left:
        assert len(left) == 1
        assert reason in left[0]


def test_code_that_this_machine_cannot_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: False)
    facts = Facts(vector_isa="avx2", vector_flags="-mavx2 -mfma -mf16c")
    with imposed(facts, run=True) as left:
        assert "this machine lacks them" in left[0]
    with imposed(facts) as left:
        assert left == []


_TWO_SIZES = """
import torch
torch._dynamo.config.capture_scalar_outputs = True
def f(values, lengths):
    return torch.split(values, lengths.tolist())[0].sum()
torch.compile(f, backend="eager")(torch.ones(9), torch.tensor([4, 5]))
"""


@pytest.mark.slow
def test_the_seed_of_hashes_orders_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols stand in sets, whose order follows from the seed: two seeds give two orders."""
    recorded, canonical = [], []
    for seed in range(1, 5):
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        path = tmp_path / f"{seed}.db"
        assert record(path, "program", source=_TWO_SIZES) == 0
        with Store.open(path) as store:
            (row,) = queries.compiles(store, 1)
            ranges = queries.events(store, row, RangeUpdate.kind)
            recorded.append([event.name for event in ranges])
            found = lanes(store, row, SCOPES["frame"], Point("frame"), excuses())
            assert found is not None
            lines = [line.event for line in found[""].lines]
            canonical.append([event.name for event in lines if event.kind == RangeUpdate.kind])
    assert len(recorded[0]) > 3
    assert any(one != recorded[0] for one in recorded)
    assert all(one == canonical[0] for one in canonical)
