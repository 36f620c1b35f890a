"""The store: one database that holds recordings, blobs and what was computed from them.

Public names are loaded on first use: importing this package imports neither SQLAlchemy nor torch.
The recorder, the replayer and the minifier write through ``Store.writer``; everyone reads through
``torchreel.store.queries``. Nothing here knows the pipeline of torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.store.addressing import DEFAULT_STORE, Address, parse
    from torchreel.store.configs import ConfigEntry
    from torchreel.store.database import Store
    from torchreel.store.documents.jsontypes import Json, canonical_json
    from torchreel.store.failures.signature import Signature
    from torchreel.store.writer import Writer

__all__ = [
    "DEFAULT_STORE",
    "Address",
    "ConfigEntry",
    "Json",
    "Signature",
    "Store",
    "Writer",
    "canonical_json",
    "parse",
]

_LAZY = {
    "Address": "addressing",
    "DEFAULT_STORE": "addressing",
    "parse": "addressing",
    "Store": "database",
    "Json": "documents.jsontypes",
    "canonical_json": "documents.jsontypes",
    "Signature": "failures.signature",
    "ConfigEntry": "configs",
    "Writer": "writer",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.store' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.store.{_LAZY[name]}"), name)
