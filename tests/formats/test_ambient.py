"""Ambient state: what Dynamo guards on is what a checkpoint has."""

from __future__ import annotations

import json

import torch

from torchreel.formats.checkpoints import ambient

_KNOWN = {
    "allow_bf16_reduce": "bf16_reduction",
    "allow_fp16_reduce": "fp16_reduction",
    "allow_tf32": "float32_matmul_precision",
    "autocast_state": "autocast_cpu",
    "default_dtype": "default_dtype",
    "deterministic_algorithms": "deterministic",
    "deterministic_algorithms_warn_only": "deterministic",
    "grad_mode": "grad_enabled",
    "num_threads": "num_threads",
}
"""What has each part of the state that Dynamo guards on."""
_ELSEWHERE = {"torch_function", "torch_function_all_disabled"}
"""Parts that a frame's call has (`functions_off`)."""


def _guarded() -> dict[str, object]:
    guard = torch._C._dynamo.guards.GlobalStateGuard()
    found: dict[str, object] = json.loads(guard.__getstate__())
    return found


def test_all_state_that_dynamo_guards_on_is_written_down() -> None:
    assert set(_guarded()) == {*_KNOWN, *_ELSEWHERE}
    assert set(_KNOWN.values()) <= ambient.STATE.keys()


def test_the_precision_of_each_backend_is_imposed_again() -> None:
    plain = ambient.encode_ambient()
    assert "fp32_precision" not in plain
    seen = []
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        seen.append(ambient.encode_ambient())
        torch.backends.fp32_precision = "tf32"
        seen.append(ambient.encode_ambient())
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
        seen.append(ambient.encode_ambient())
        for wanted in [plain, *seen]:
            with ambient.imposed(wanted):
                assert ambient.encode_ambient() == wanted
            assert ambient.encode_ambient() == seen[-1]
    finally:
        ambient._set_precisions(None)
        torch.set_float32_matmul_precision("highest")
    assert ambient.encode_ambient() == plain
    assert all("fp32_precision" in state for state in seen)
    assert seen[0]["float32_matmul_precision"] is None  # torch raises where they differ


def test_state_that_few_programs_change_is_imposed_again() -> None:
    plain, before = ambient.encode_ambient(), _guarded()
    assert not {"autocast_others", "bf16_reduction", "fp16_reduction", "sdp_cudnn"} & plain.keys()
    matmul = torch.backends.cuda.matmul
    with ambient.imposed(plain):
        matmul.allow_bf16_reduced_precision_reduction = False
        torch.set_autocast_enabled("mps", True)
        torch.set_autocast_dtype("xpu", torch.bfloat16)
        torch.backends.cuda.enable_cudnn_sdp(False)
        changed, state = ambient.encode_ambient(), _guarded()
    assert changed.keys() - plain.keys() == {"autocast_others", "bf16_reduction", "sdp_cudnn"}
    assert (_guarded(), ambient.encode_ambient()) == (before, plain)
    with ambient.imposed(changed):
        assert _guarded() == state != before
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert (_guarded(), ambient.encode_ambient()) == (before, plain)
