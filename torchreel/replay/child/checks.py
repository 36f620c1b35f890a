"""Checks a what-if against this torch: config entries and devices.

Called in the child of a replay, before it restores the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchreel.errors import UnsupportedError, UntrustedError, UsageError
from torchreel.formats import node_arguments
from torchreel.formats.checkpoints import config as portable_config
from torchreel.torch_compat import configs


def check_config(changed: Sequence[tuple[str, Any]], *, trust: bool) -> None:
    """Check that config entries (name, value as a tagged tree) can be set to these values.

    Raises UsageError for an unknown name, a value of another type than the entry's, or an entry
    that a replay sets itself; UntrustedError for one that names a command, a path or code.
    """
    modules = configs.config_modules()
    for name, tree in changed:
        module, key = name.split(".", 1)
        entry = modules[module]._config.get(key)
        if entry is None:
            raise UsageError(f"This torch ({torch.__version__}) has no config entry {name!r:.120}.")
        if key in _REPLAYS_OWN:
            raise UsageError(f"A replay sets {name} itself: it cannot be changed.")
        if not trust and not portable_config.is_portable(module, key, tree):
            raise UntrustedError(
                f"the config entry {name} names a command, a path or code: add --trust to set it"
            )
        _check_type(name, entry.default, node_arguments.decode_value(tree, _no_leaf))


def check_devices(names: Sequence[str]) -> None:
    """Check that a graph can be compiled for these devices, real or imposed.

    Raises UsageError for what is no device; UnsupportedError where there is none of the kind.
    """
    for name in names:
        try:
            kind = torch.device(name).type
        except RuntimeError as error:
            raise UsageError(f"This torch has no device {name!r:.60}.") from error
        if kind in ("cpu", "meta"):
            continue
        backend = getattr(torch, kind, None)
        if backend is None or not backend.is_available():
            raise UnsupportedError(
                f"the graph is to be moved to {name}, the recording has no facts of such a device, "
                f"and this machine has none: replay on one that does, or record on one"
            )


_REPLAYS_OWN = frozenset({
    "fx_graph_cache", "fx_graph_remote_cache", "compile_threads", "enable_autograd_cache",
    "enable_remote_autograd_cache", "bundled_autograd_cache",
})  # fmt: skip


def _no_leaf(kind: str, data: object) -> object:
    raise UsageError(f"A config value holds no {kind!r}, found {data!r:.60}.")


def _check_type(name: str, default: object, value: object) -> None:
    """Check that a value is of its default's type; what is None by default may be anything."""
    known = isinstance(default, (bool, int, float, str, list, tuple, dict))
    if not known or value is None or type(value) is type(default):
        return
    if isinstance(default, float) and type(value) is int:
        return
    raise UsageError(
        f"{name} is of type {type(default).__name__} ({default!r:.60} by default), "
        f"not {type(value).__name__} ({value!r:.60})."
    )
