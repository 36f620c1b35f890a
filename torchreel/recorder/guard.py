"""The one broad `except` of the project: no exception of ours reaches the recorded program.

Lives here: `fail_open`, and the count of what was lost because of it.  Not here: writing those
counts down (`tape`).  Every hook body of the recorder runs inside `fail_open`; the function that a
hook stands in front of is called outside of it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import signal
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

log = logging.getLogger("torchreel")

_MESSAGE_LIMIT = 500
"""Characters of a message that are kept: enough to tell errors apart, whatever they quote."""

Fault = Callable[[str], None]
inject: Fault | None = None
"""A test's hook: called with the place at the start of every guarded hook, and may raise."""


class Loss:
    """How often something was lost at one place for one reason, and the first message."""

    def __init__(self, count: int, message: str) -> None:
        self.count, self.message = count, message


class Losses:
    """What was lost so far, by (reason, place)."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Loss] = {}
        self._lock = threading.Lock()
        self.version = 0

    def add(self, reason: str, place: str, message: str = "", count: int = 1) -> None:
        """Count a loss; the first of its kind is logged."""
        with self._lock:
            self.version += 1
            loss = self._by_key.get((reason, place))
            if loss is not None:
                loss.count += count
                return
            self._by_key[reason, place] = Loss(count, message[:_MESSAGE_LIMIT])
        log.warning("torchreel lost something at %s (%s: %s)", place, reason, message[:200])

    def snapshot(self) -> list[tuple[str, str, int, str]]:
        """Every loss as (reason, place, count, message)."""
        with self._lock:
            return [(*key, loss.count, loss.message) for key, loss in self._by_key.items()]

    def reset(self) -> None:
        """Forget everything: a new recording begins (also after a fork: hence a new lock)."""
        self._lock = threading.Lock()
        self._by_key = {}
        self.version += 1


losses = Losses()


def _no_dynamo(callback: object) -> object:
    return None


set_eval_frame: Callable[[Any], Any] = _no_dynamo
"""Dynamo's: sets what is shown each frame that begins in this thread, and returns what it was.

`unseen` puts it here."""


class fail_open:
    """Swallow any `Exception` that the body raises; count and log it under `place`.

    Dynamo, which may look at every frame here, does not see what the body calls.
    KeyboardInterrupt and SystemExit are the program's own and pass, and so does what a signal
    handler of the program raised meanwhile (an alarm's time limit). `kind` says afterwards what was
    raised, if anything; `quiet` leaves the counting to the caller.
    """

    __slots__ = ("_callback", "kind", "place", "quiet")

    def __init__(self, place: str, *, quiet: bool = False) -> None:
        self.place = place
        self.quiet = quiet
        self.kind: type[Exception] | None = None

    def __enter__(self) -> Self:
        self._callback = set_eval_frame(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            if not isinstance(error, Exception) or _is_of_a_handler(error):
                return False
            return self._swallow(error)
        finally:
            set_eval_frame(self._callback)

    def _swallow(self, error: Exception) -> bool:
        self.kind = type(error)
        if self.quiet:
            return True
        # Logging itself may be broken, and a program's exception may refuse to be printed.
        with contextlib.suppress(Exception):
            losses.add(type(error).__name__, self.place, str(error))
        return True


def _is_of_a_handler(error: Exception) -> bool:
    """Whether a signal handler raised it: Python runs one wherever the main thread just is.

    Seen by how a handler is called, since it may have given its signal back before it raised.
    """
    found = False
    with contextlib.suppress(Exception):  # without memory it is ours
        frames = traceback.walk_tb(error.__traceback__)
        found = any(_is_a_handlers(frame) for frame, _ in frames)
    return found


def _is_a_handlers(frame: FrameType) -> bool:
    """Whether a frame was given the number of a signal and, next to it, the frame it came from."""
    given: list[object] = []
    for value in frame.f_locals.values():
        given += value if type(value) is tuple else (value,)  # *args, of a decorated one
    return any(
        before is frame.f_back and type(number) is int and 0 < number < signal.NSIG
        for number, before in itertools.pairwise(given)
        if before is not None
    )


def check(place: str) -> None:
    """Where a test may make a hook raise; called first in every guarded hook body."""
    if inject is not None:
        inject(place)
