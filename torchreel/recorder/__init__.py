"""The recorder: attaches to torch's compiler and writes what it sees into a store.

Public: `record`, `install`, `uninstall`, `Recorder`, loaded on first use: what `import torch` calls
imports `guard` from here, and whatever is wrong with the rest has to be met inside of it.  Imports
neither torch nor SQLAlchemy; it may not import the replayer, the minifier or the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder
    from torchreel.recorder.session import install, record, uninstall

__all__ = ["Recorder", "install", "record", "uninstall"]

_LAZY = {
    "Recorder": "recorder",
    "install": "session",
    "record": "session",
    "uninstall": "session",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.recorder' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.recorder.{_LAZY[name]}"), name)
