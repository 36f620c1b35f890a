"""Keeps CUDA untouched in a process that forks: CUDA works in no fork of a process that used it.

A compile asks for devices, also one for the CPU (it keeps the state of their random numbers).  So
the worker has none, and a child whose case runs on a device gets the devices back.
"""

from __future__ import annotations

import os
from collections.abc import Callable

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""With it, torch asks for the number of devices without starting CUDA."""


class HiddenDevices:
    """The devices that the user lets this process see."""

    def __init__(self) -> None:
        self._before = {name: os.environ.get(name) for name in (_VISIBLE, _BY_NVML)}
        self._start: Callable[[], None] | None = None

    def hide(self) -> None:
        """Have this process, and its forks, see no device.  Imports torch."""
        os.environ |= {_VISIBLE: "", _BY_NVML: "1"}
        import torch

        self._start, torch.cuda._lazy_init = torch.cuda._lazy_init, _refuse

    def reveal(self) -> bool:
        """Return True if there is a device to run on; from then on this process sees it."""
        import torch

        from torchreel.torch_compat.inductor.code_generation import forget_devices

        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if self._start is not None:
            torch.cuda._lazy_init = self._start
        forget_devices()
        return torch.cuda.is_available()


def _refuse() -> None:
    """Raise what torch raises where there is no device."""
    raise RuntimeError("No CUDA device in a process that forks others.")
