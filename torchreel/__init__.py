"""torchreel: a flight recorder, a replayer and a reducer for ``torch.compile``.

The public names live here and are loaded on first use, so that ``import torchreel`` imports
neither torch nor SQLAlchemy: torch itself imports us (entry point group ``torch.backends``).

    with torchreel.record("run.db"):
        torch.compile(model)(x)
    with torchreel.open("run.db") as run:
        print([failure.message for failure in run.failures])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.analysis.query.opened import open
    from torchreel.recorder import install, record, uninstall
    from torchreel.sharing.audit.audit import audit
    from torchreel.sharing.share import share

__version__ = "0.2.0"
__all__ = ["__version__", "audit", "install", "open", "record", "share", "uninstall"]

_LAZY = {
    **dict.fromkeys(("install", "record", "uninstall"), "torchreel.recorder"),
    "open": "torchreel.analysis.query.opened",
    "share": "torchreel.sharing.share",
    "audit": "torchreel.sharing.audit.audit",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
