"""Open the store that a verb writes its results to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.store import Address, Store


def writable_store(where: Address) -> Store:
    """Open the store of an address for writing, or for reading where it can't be written to.

    What a process that died could not say is written down first: a replay runs the compiled code
    where the process died running it.
    """
    from torchreel.errors import DamagedStore, LockedStore
    from torchreel.store import Store
    from torchreel.store.post_mortem import settle

    try:
        store = Store.open(where.store, write=True)
    except LockedStore:
        return Store.open(where.store)
    if not store.is_on_server:  # what is pushed to a server was settled before
        with suppress(DamagedStore, LockedStore):  # of another recording, or by another process
            settle(store)
    return store


def writable_copy(store: Store, directory: Path, where: Address) -> tuple[Store, Address]:
    """Return `store` and `where` if it can be written to; else close it, and return a copy in
    `directory` and the same place there.

    Of a store on a server, the copy has the one recording.
    """
    if store.writable:
        return store, where
    from torchreel.commands.rendering import streams

    path = directory / ("store.db" if store.is_on_server else Path(store.target).name)
    streams.say(f"{store.target} can't be written to: verdicts go to a copy, {path}")
    with store:
        if store.is_on_server:
            return _copy_of_recording(store, path, where)
        return store.copied(path), where


def _copy_of_recording(store: Store, path: Path, where: Address) -> tuple[Store, Address]:
    from torchreel.store import Store, queries
    from torchreel.store.sending.push import send_one

    number = where.recording
    if number is None:
        number = queries.compile_at(store, where).recording_id
    copy = Store.open(path, create=True)
    return copy, where._replace(store=str(path), recording=send_one(store, number, copy))
