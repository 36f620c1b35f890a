"""The minifier: shrinks a failing case and exports what is left as a script.

Public names are loaded on first use. Lives here: the case, the oracle, the passes, the order and
the search. Not here: how a compile is recorded or replayed. Called by the command line; to read it,
start with `search`, then `passes.base`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.minifier.cases.case import Case
    from torchreel.minifier.minify import minify
    from torchreel.minifier.options import Budget
    from torchreel.minifier.results.reductions import Listener, MinifyResult, ProgressEvent

__all__ = ["Budget", "Case", "Listener", "MinifyResult", "ProgressEvent", "minify"]

_LAZY = {
    "Case": "cases.case",
    "Budget": "options",
    "Listener": "results.reductions",
    "ProgressEvent": "results.reductions",
    "MinifyResult": "results.reductions",
    "minify": "minify",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.minifier' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.minifier.{_LAZY[name]}"), name)
