"""Says what takes long while it does: with a spinner on a terminal, with lines elsewhere.

Lives here: `while_slow`, for steps that say nothing themselves and are quick for most stores, and
`while_long`, for those that are never quick.  Not here: steps that have something to say of how far
they are (the views of their verbs).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.text import Text

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import seconds
from torchreel.escaping.characters import visible

_AFTER = 5.0
"""Seconds until the first line, and between lines: nobody should wonder for ten."""


@contextmanager
def while_slow(what: str, every: float = _AFTER) -> Iterator[None]:
    """Print the work in progress during a `with`, if it takes longer than `every` seconds."""
    if streams.err().is_terminal:
        with _spinner(what):
            yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, every, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


@contextmanager
def while_long(what: str, *, still: bool = False) -> Iterator[None]:
    """Say that something takes long: with a spinner on a terminal, with one line elsewhere.

    `still`: with one line in any case, because the terminal is needed.
    """
    if still or not streams.err().is_terminal:
        streams.say(what)
        yield
        return
    with _spinner(what):
        yield


def _spinner(what: str) -> AbstractContextManager[object]:
    return streams.err().status(Text(visible(what)))


def _tell(what: str, every: float, done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(every):
        streams.say(f"{what}, {seconds(time.monotonic() - began)}")
