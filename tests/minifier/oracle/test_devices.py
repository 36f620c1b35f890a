"""The worker starts no CUDA before it forks, and a child that runs a case gets the devices back."""

from __future__ import annotations

import os

import pytest
import torch

from torchreel.minifier.oracle.worker.devices import HiddenDevices


def test_a_process_that_forks_sees_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    start = torch.cuda._lazy_init
    monkeypatch.setattr(torch.cuda, "_lazy_init", start)
    devices = HiddenDevices()
    devices.hide()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="forks others"):
        torch.cuda.current_device()
    devices.reveal()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
    assert torch.cuda._lazy_init is start
