"""Sharing: the slice of a recording that a failure needs, built of what may leave and nothing else.

- `share`: the whole way, from a failure in a store to a bundle and the map of its pseudonyms
- `bundle`: writing the new store; `verify`: does it still show the failure; `residue`: what leaves
- `neutral`: numbers, config and ambient state that the failure does not need
- `constructed`: a case built by allow-list; `audit`: what a file holds that should not leave
- `pseudonyms`: names, and the map that undoes them; `words_of_torch`: the words of torch itself

Nothing is copied and then cleaned: each part of a bundle is made by a function that knows which
values may stand there. Public names are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.sharing.audit.audit import audit
    from torchreel.sharing.share import share

__all__ = ["audit", "share"]

_LAZY = {"audit": "audit.audit", "share": "share"}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.sharing' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.sharing.{_LAZY[name]}"), name)
