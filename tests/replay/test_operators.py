"""Programs with operators of their own replay in a process that does not have their module."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

import torchreel
from tests.replay.operators import ALIASING, FUNCTIONS
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile


def recorded(path: Path, name: str, backend: str, *, dynamic: bool = False) -> Path:
    """A recording of one of the functions, with its backward where it has one."""
    torch._dynamo.reset()
    x = torch.arange(12.0).view(4, 3) - 3
    if name in ("trained", "scaled", "rolled"):
        x.requires_grad_()
    captured = torch._dynamo.config.patch(capture_scalar_outputs=True)
    uncached = torch._inductor.config.patch(force_disable_caches=True)
    # On machines that test (CI is set), torch makes an error of the warning.
    warned = torch._functorch.config.patch(error_on_custom_op_aliasing=False)
    with captured, uncached, warned, torchreel.record(path):
        function = {**FUNCTIONS, **ALIASING}[name]
        compiled = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)
        with contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
            result = compiled(x)
        if x.requires_grad:
            result.backward()
    torch._dynamo.reset()
    return path


def the_compile(store: Store) -> Compile:
    recording = queries.recordings(store)[0]
    (row,) = queries.compiles(store, recording.id)
    return row


@pytest.mark.sampled
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_stand_ins_replay_identically(tmp_path: Path, name: str, dynamic: bool) -> None:
    path = recorded(tmp_path / "run.db", name, "aot_eager", dynamic=dynamic)
    with Store.open(path) as store:
        verdict = replay(store, the_compile(store))
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}\n{verdict.divergence}"
    assert any("a stand-in answers" in note for note in verdict.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trained", "parts", "unbacked", "said"])
def test_they_are_opaque_to_inductor_too(tmp_path: Path, name: str) -> None:
    """And from the graphs that enter it, which call them as well."""
    path = recorded(tmp_path / "run.db", name, "inductor")
    with Store.open(path) as store:
        for entry in ("graph", "aot"):
            verdict = replay(store, the_compile(store), entry)
            assert verdict.verdict == IDENTICAL, f"{entry}: {verdict}\n{verdict.difference}"


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ALIASING)
def test_results_share_memory_as_the_fake_kernel_said(
    tmp_path: Path, name: str, backend: str
) -> None:
    """With an argument, or with each other: as a tensor, or as a view of it."""
    path = recorded(tmp_path / "run.db", name, backend)
    with Store.open(path) as store:
        verdict = replay(store, the_compile(store))
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}\n{verdict.divergence}"
