"""The recorder: attaches to torch's compiler and writes what it sees into a store.

To read it, follow an event:

- `session`: a recording begins and ends; `attach`: wrappers in front of functions of torch
- `probes`: one module for each layer of the pipeline; each calls `recorder.Recorder.note`
- `event_log`: the buffer, and the thread that writes it; `redaction`: what is taken out before
- `frames`: Python frames as pickles; `environment`: versions, devices and variables
- `failing_open`: catches every exception of ours; `watchdog`: sees compiles that hang

Public: `record`, `install`, `uninstall`, `Recorder`, loaded on first use.  `import torch` needs
`failing_open` alone: an error in any other module is caught by it.  Importing this package imports
neither torch nor SQLAlchemy.  It may not import the replay, the minifier or the command line.
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
