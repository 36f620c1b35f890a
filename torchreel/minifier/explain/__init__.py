"""After the minimum: what cures it, what hardly differs and passes, and what does not matter.

Public names are loaded on first use. `asking.explain` asks the oracle about a few dozen cases near
the smallest one; the answers are kept in the store. Called by `minify`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.minifier.explain.asking import explain
    from torchreel.minifier.explain.results import Explanation

__all__ = ["Explanation", "explain"]

_LAZY = {"Explanation": "results", "explain": "asking"}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.minifier.explain' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.minifier.explain.{_LAZY[name]}"), name)
