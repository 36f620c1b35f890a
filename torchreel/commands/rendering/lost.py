"""Prints the losses of a recording under every answer that they may have changed."""

from __future__ import annotations

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.escaping.shell import command
from torchreel.store import Store, queries
from torchreel.store.addressing import Address


def say_lost(store: Store, address: Address) -> None:
    """Print the number of losses in the recordings that an address covers."""
    recordings = [address.recording] if address.recording is not None else _all(store)
    missing = sum(row.count for number in recordings for row in queries.lost(store, number))
    if missing:
        streams.say(
            f"{count(missing, 'thing')} could not be recorded, so this may not be all: see "
            f"{command('torchreel', 'show', address)}"
        )


def _all(store: Store) -> list[int]:
    return [row.id for row in queries.recordings(store)]
