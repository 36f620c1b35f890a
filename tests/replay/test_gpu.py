"""A compile for a GPU is replayed and reduced where there is none: from the facts in its event log.

The recordings come from a machine without a GPU too: it is given the facts of one, and its tensors
have no memory behind them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.replay import devices
from tests.replay.programs import UNCACHED
from torchreel.errors import UnsupportedError
from torchreel.minifier.minify import minify
from torchreel.replay import Verdict, replay
from torchreel.replay.imposed.facts import Facts, device_notes, facts_of
from torchreel.replay.imposed.torch_machine import imposed
from torchreel.store import Store, queries
from torchreel.store.records import Compile

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="GPU code is Triton: install torchreel[triton]",
)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to ask")


def record(path: Path, accelerator: dict[str, Any], *names: str) -> None:
    source = devices.MACHINE + "".join(devices.PROGRAMS[name] for name in names)
    file = path.with_suffix(".py")
    file.write_text(source)
    environment = {**os.environ, **UNCACHED, "ACCELERATOR": json.dumps(accelerator)}
    subprocess.run([sys.executable, str(file), str(path)], env=environment, check=True)


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpu") / "h200.db"
    record(path, devices.H200, "training", "lowering", "constant")
    return path


def compile_of(store: Store, name: str) -> Compile:
    return next(c for c in queries.compiles(store, 1) if c.frame_name == name)


def kinds_that_differ(verdict: Verdict) -> set[str]:
    return {row.kind for row in verdict.compared if not row.agrees}


@needs_triton
@without_gpu
@pytest.mark.slow
def test_a_gpu_compile_replays_to_the_same_triton_code(h200: Path) -> None:
    with Store.open(h200, write=True) as store:
        compile = compile_of(store, "trains")
        codes = [store.read_blob(row.digest) for row in queries.output_codes(store, compile)]
        verdict = replay(store, compile)
    assert len(codes) == 2
    assert all(b"@triton.jit" in code and b"cc=90" in code for code in codes)
    assert verdict.verdict == "identical", (verdict.detail, verdict.difference)
    rows = {(row.kind, row.partition): row for row in verdict.compared}
    for partition in ("forward", "backward"):
        assert rows["output code", partition].identical == 1
    assert any(
        note.startswith("imposed: NVIDIA H200 (compute capability 9.0") for note in verdict.notes
    )
    assert any("the device itself would be needed" in note for note in verdict.notes)


@needs_triton
@without_gpu
@pytest.mark.slow
def test_a_constant_of_the_device_is_kept_for_the_backward(h200: Path) -> None:
    with Store.open(h200, write=True) as store:
        compile = compile_of(store, "scales")
        assert compile.status == "ok"
        assert replay(store, compile).verdict == "identical"


@needs_triton
@without_gpu
@pytest.mark.slow
def test_a_failure_on_a_gpu_is_reduced_without_one(h200: Path) -> None:
    with Store.open(h200, write=True) as store:
        compile = compile_of(store, "fails")
        if compile.status == "ok":
            pytest.skip("this torch has no such bug")
        reduction = minify(store, compile)
    assert reduction.status == "fixpoint"
    assert (reduction.before_call_nodes, reduction.case.call_nodes) == (7, 1)
    assert "cuda" in str(reduction.case.checkpoint.inputs)  # type: ignore[attr-defined]


@needs_triton
@without_gpu
@pytest.mark.slow
def test_an_aten_graph_for_another_gpu(tmp_path: Path) -> None:
    record(tmp_path / "a100.db", devices.A100, "inference")
    with Store.open(tmp_path / "a100.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        facts = facts_of(store, compile)
        assert facts.accelerator is not None
        assert facts.accelerator["devices"][0]["name"] == devices.A100["devices"][0]["name"]  # type: ignore[index,call-overload]
        verdict = replay(store, compile, "aot")
    assert verdict.verdict == "identical", (verdict.detail, verdict.difference)
    assert any(row.kind == "output code" and row.identical for row in verdict.compared)


@without_gpu
def test_a_run_on_a_gpu_is_refused() -> None:
    facts = Facts(accelerator={**devices.H200, "triton": None})
    why = "shows when the compiled code runs on NVIDIA H200"
    with pytest.raises(UnsupportedError, match=why), imposed(facts, run=True):
        pass


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed")
def test_what_is_missing_is_named() -> None:
    why = r"pip install 'torchreel\[triton\]'"
    facts = Facts(accelerator={**devices.H200, "triton": "3.7.1"})
    with pytest.raises(UnsupportedError, match=why), imposed(facts):
        pass


def test_facts_of_nothing_are_said() -> None:
    with imposed(Facts(accelerator={"devices": []})) as left:
        assert left == ["the GPU: the event log does not say what it was"]
    assert device_notes(Facts()) == []
