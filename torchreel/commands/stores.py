"""Open the store that a verb writes its results to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.store import Address, Store


def writable_store(where: Address) -> Store:
    """Open the store of an address for writing, or for reading where it can't be written to."""
    from torchreel.errors import LockedStore
    from torchreel.store import Store

    try:
        return Store.open(where.store, write=True)
    except LockedStore:
        return Store.open(where.store)


def writable_copy(store: Store, directory: Path) -> Store:
    """Return `store` if it can be written to, else close it and return a copy in `directory`."""
    if store.writable:
        return store
    from torchreel.commands.rendering import streams

    path = directory / Path(store.target).name
    streams.say(f"{store.target} can't be written to: verdicts go to a copy, {path}")
    with store:
        return store.copied(path)
