"""Prints the parts of a store that can't be read, after all that can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.errors import DamagedStore, RefusedError, TorchreelError
from torchreel.store import Store

_MOST = 10


@contextmanager
def as_far_as_readable(store: Store) -> Iterator[list[str]]:
    """Leave out what can't be read, say so at the end, and exit as a refusal does.

    The list says what it is so far, a sentence each.
    """
    with store.as_far_as_readable() as unreadable:
        try:
            yield unreadable
        except TorchreelError as error:
            if not unreadable or isinstance(error, RefusedError):
                raise
            # It would be there, or be another, if all could be read.
            raise DamagedStore(f"{error} It may be in what is not readable.") from error
        finally:
            _say(unreadable)
    if unreadable:
        raise typer.Exit(DamagedStore.exit_status)


@contextmanager
def all_statuses(found: list[int]) -> Iterator[None]:
    """Go on where `as_far_as_readable` would exit; its status is added to a list."""
    try:
        yield
    except typer.Exit as ended:
        found.append(ended.exit_code)


def _say(unreadable: list[str]) -> None:
    for sentence in unreadable[:_MOST]:
        streams.say(f"not readable: {sentence}", style="red")
    if len(unreadable) > _MOST:
        streams.say(f"not readable: {count(len(unreadable) - _MOST, 'thing')} more.", style="red")
