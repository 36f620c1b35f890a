"""Replays here what was compiled on an H200.

`h200.tar.xz` has a store of each of `programs` but one, by `record` with torch 2.13.0+cu130, triton
3.7.1.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

from tests.replay.programs import UNCACHED
from torchreel.errors import UntrustedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.export import ExportOptions, export
from torchreel.minifier.scripts.script import compile_form, graph_form, refuse_untrusted
from torchreel.replay import replay
from torchreel.replay.compare.causes import likely
from torchreel.store import Store, queries

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="GPU code is Triton: install torchreel[triton]",
    ),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to ask"),
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="they are torch 2.13's"),
    pytest.mark.slow,
]
_ON_STAND_IN = """
import sys, torch, torch._inductor.config
from tests.replay import devices
from torchreel.replay.imposed.facts import Facts
from torchreel.replay.imposed.torch_machine import imposed
torch._inductor.config.compile_threads = 1
with imposed(Facts(accelerator=devices.H200)):
    open("repro.py", "w").write(sys.argv[1])
    import runpy
    runpy.run_path("repro.py", run_name="__main__")
"""
IDENTICAL = (
    "lowering_error", "mlp", "convolutions", "attention", "reductions", "flex", "cuda_graphs",
    "dynamic", "two_devices", "optimizer_step", "scaler", "float8", "conditions", "random_numbers",
    "indices", "item", "breaks", "wrapper_in_cpp", "llama", "bert", "t5", "size_assert",
    "device_assert", "wrong_result", "sum_to_bool",
)  # fmt: skip
REFUSED = {
    "max_autotune": "Inductor measured on the device whether to fuse kernels",
    "no_memory": "shows when the compiled code runs on NVIDIA H200",
    "triton_kernel": "calls Triton kernels of the program's own",
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(Path(__file__).with_name("h200.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", IDENTICAL)
def test_a_compile_of_a_gpu_is_identical_without_one(stores: Path, name: str) -> None:
    with Store.open(stores / f"{name}.db", write=True) as store:
        compiles = [one for one in queries.compiles(store, 1) if one.backend is not None]
        verdicts = [replay(store, one) for one in compiles if queries.checkpoints(store, one)]
    assert verdicts
    assert {verdict.verdict for verdict in verdicts} == {"identical"}, [
        (verdict.detail, verdict.difference) for verdict in verdicts
    ]
    for verdict in verdicts:
        codes = [row for row in verdict.compared if row.kind == "output code"]
        assert codes or name == "lowering_error"
        assert all(row.identical == row.recorded for row in codes)


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_the_device_is_refused(stores: Path, name: str) -> None:
    with Store.open(stores / f"{name}.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        verdict = replay(store, compile)
    assert verdict.verdict == "refused"
    assert REFUSED[name] in verdict.detail


@pytest.mark.parametrize("name", ["triton_kernel", "triton_error"])
def test_kernels_of_a_trusted_program_are_made_anew(stores: Path, name: str) -> None:
    with Store.open(stores / f"{name}.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        verdict = replay(store, compile, trust=True)
    assert verdict.verdict == "identical", (verdict.detail, verdict.difference)


def test_an_error_of_triton_is_reduced_without_a_gpu(stores: Path, tmp_path: Path) -> None:
    with Store.open(stores / "triton_error.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        reduction = minify(store, compile, options=MinifyOptions(trust=True))
    assert (reduction.before_call_nodes, reduction.case.call_nodes) == (6, 1)
    assert reduction.signature.exception_types == ("CompilationError", "ValueError")
    case = reduction.case
    assert isinstance(case, Case)
    with pytest.raises(UntrustedError):
        refuse_untrusted(case, trust=False)
    refuse_untrusted(case, trust=True)
    for script in (
        compile_form(case, reduction.signature, []),
        graph_form(case, reduction.signature, []),
    ):
        assert "@triton.jit\ndef _crooked(" in script.text
        done = subprocess.run(
            [sys.executable, "-c", _ON_STAND_IN, script.text],
            env={**os.environ, **UNCACHED, "PYTHONPATH": os.getcwd()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "arange's range must be a power of 2" in done.stderr, done.stderr[-2000:]


def test_a_failure_of_a_gpu_is_reduced_without_one(stores: Path, tmp_path: Path) -> None:
    with Store.open(stores / "lowering_error.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        reduction = minify(store, compile)
        assert reduction.status == "fixpoint"
        assert reduction.case.call_nodes == 1
        assert "cuda" in str(reduction.case.checkpoint.inputs)  # type: ignore[attr-defined]
        options = ExportOptions(directory=tmp_path, checks=1)
        exported = export(store, compile, options)
    assert exported.check.holds
    assert exported.check.stands_in
    assert exported.test is not None
    assert exported.test.holds
    said = (tmp_path / "issue.md").read_text()
    assert "with a device that stands in for it: the same error, in 1 of 1 runs" in said


def test_a_replay_that_fails_is_said_before_versions(stores: Path) -> None:
    with Store.open(stores / "mlp.db") as one, Store.open(stores / "lowering_error.db") as other:
        recorded, replayed = queries.compiles(one, 1)[0], queries.compiles(other, 1)[0]
        said = likely((one, recorded), (other, replayed), "")
        assert said.startswith("the replay failed, which the recorded compile did not: ")
        assert "did not" not in likely((other, replayed), (other, replayed), "")
