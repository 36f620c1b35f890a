"""Modes of a thread that Dynamo asks for: torch function modes, the default device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch._guards


def errors_on_graph_break() -> bool:
    """Return True if `torch._dynamo.error_on_graph_break` is on."""
    from torch._dynamo.utils import _get_error_on_graph_break

    return bool(_get_error_on_graph_break())


def function_modes() -> tuple[str | None, list[str]]:
    """Return the default device, and the classes of the other torch function modes, outermost
    first.
    """
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    devices = [str(mode.device) for mode in modes if isinstance(mode, DeviceContext)]
    others = [type(mode).__qualname__ for mode in own_function_modes()]
    return devices[-1] if devices else None, others


def own_function_modes() -> tuple[object, ...]:
    """Return the torch function modes of the program's, outermost first."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return tuple(mode for mode in modes if not issubclass(type(mode), DeviceContext))


@contextlib.contextmanager
def with_function_modes(modes: Sequence[Any]) -> Iterator[None]:
    """Have torch function modes for the length of a `with`; what they do on entry is past."""
    from torch.overrides import _pop_mode, _push_mode

    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for _ in modes:
            _pop_mode()  # type: ignore[no-untyped-call]


def global_device() -> str | None:
    """Return the device that `torch.set_default_device` set, in whichever thread; None for none.

    `with torch.device(...)` makes tensors in a device too, but Dynamo takes no notice of it.
    """
    from torch.utils import _device

    return None if _device.CURRENT_DEVICE is None else str(_device.CURRENT_DEVICE)


@contextlib.contextmanager
def with_global_device(device: str | None) -> Iterator[None]:
    """Have Dynamo find this device where it looks for that of `torch.set_default_device`."""
    from torch.utils import _device

    before = _device.CURRENT_DEVICE
    _device.CURRENT_DEVICE = None if device is None else torch.device(device)
    try:
        yield
    finally:
        _device.CURRENT_DEVICE = before
