"""An issue says of this machine what torch says, without what is nobody's business."""

from __future__ import annotations

import torch

from torchreel.minifier.repro.collect_env import collect_env, redacted

_SAID = """Collecting environment information...
PyTorch version: 2.13.0+cpu
CUDA_HOME set to: /home/alice/cuda
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.9
/data/acme/lib/libcudnn.so.9
Caching allocator config: N/A
Spectre v1: Mitigation; usercopy/swapgs barriers

[pip3] acme-torch-secret-model==1.2
[pip3] numpy==2.4.6
[pip3] nvidia-cublas-cu12==12.8
[pip3] torch @ file:///data/acme/wheels/torch.whl
[pip3] torch==2.13.0+cpu
[conda] numpy 1.26 py311_0 https://conda.acme.example/internal
[conda] Could not collect
"""


def test_paths_and_packages_of_ones_own_are_taken_out() -> None:
    assert redacted(_SAID).splitlines() == [
        "PyTorch version: 2.13.0+cpu",
        "CUDA_HOME set to: <path>",
        "cuDNN version: Probably one of the following:",
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.9",
        "<path>",
        "Caching allocator config: N/A",
        "Spectre v1: Mitigation; usercopy/swapgs barriers",
        "",
        "[pip3] numpy==2.4.6",
        "[pip3] nvidia-cublas-cu12==12.8",
        "[pip3] torch @ file:<path>",
        "[pip3] torch==2.13.0+cpu",
        "[conda] numpy 1.26",
        "[conda] Could not collect",
        "(1 more packages are left out)",
    ]


def test_it_is_torchs_own_answer() -> None:
    said = collect_env()
    assert f"PyTorch version: {torch.__version__}" in said
    assert "[pip3] numpy==" in said
    assert "Collecting environment" not in said


def test_a_python_without_torch_says_nothing(tmp_path: object) -> None:
    assert collect_env(f"{tmp_path}/no-python") == ""
