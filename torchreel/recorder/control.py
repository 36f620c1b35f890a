"""Switching a recording off from outside, and where its file goes.

Lives here: the kill switch (a file that appears, a signal that arrives), and the placeholders of a
target.  Not here: what switching off means (`session`), the file of its own that a process gets
where the file system has no locks (`store.files.locks`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from torchreel.errors import UsageError
from torchreel.recorder.failing_open import log

OFF_FILE_VARIABLE = "TORCHREEL_OFF_FILE"
OFF_SIGNAL_VARIABLE = "TORCHREEL_OFF_SIGNAL"

_ROUND = 0.5
"""Seconds between two looks for the file: half of what switching off may take."""


class KillSwitch:
    """Calls `off` once, with the reason, when the file is there or the signal has come."""

    def __init__(self, file: str | None, off: Callable[[str], None]) -> None:
        self._file = file
        self._off = off
        self._next = 0.0
        self._signalled: str | None = None
        self._previous: tuple[signal.Signals, object] | None = None
        self.thrown = False

    def look(self, *, now: bool = False) -> bool:
        """Return True if recording is switched off.

        Check the file at most every half second, or `now`.
        """
        if self.thrown:
            return True
        if self._signalled is not None:
            return self._throw(self._signalled)
        time_now = time.monotonic()
        if now or time_now >= self._next:
            self._next = time_now + _ROUND
            if self._file is not None and os.path.exists(self._file):
                return self._throw(f"{self._file} is there")
        return False

    def _throw(self, reason: str) -> bool:
        self.thrown = True
        log.warning("torchreel: recording is switched off: %s", reason)
        self._off(reason)
        return True

    def listen(self, name: str | None) -> None:
        """Let a signal throw it, unless the program has a handler for that one.

        Raises UsageError when there is no such signal.
        """
        if not name:
            return
        number = signal_number(name)
        if signal.getsignal(number) is not signal.SIG_DFL:
            log.warning("torchreel: %s has a handler already, and is left to it", number.name)
            return
        # Only the main thread can set a handler; elsewhere only the file works.
        with contextlib.suppress(ValueError):
            self._previous = number, signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        # Nothing else here: whatever the main thread was doing, it may hold any lock.
        self._signalled = f"{signal.Signals(number).name} came"

    def stop_listening(self) -> None:
        """Give the signal back."""
        if self._previous is None:
            return
        number, handler = self._previous
        self._previous = None
        with contextlib.suppress(ValueError):
            if signal.getsignal(number) == self._receive:
                signal.signal(number, handler)  # type: ignore[arg-type]


def signal_number(name: str) -> signal.Signals:
    """Return the signal of that name ('SIGUSR2' or 'USR2'); UsageError when there is none."""
    full = name if name.startswith("SIG") else f"SIG{name}"
    try:
        return signal.Signals[full]
    except KeyError:
        raise UsageError(f"There is no signal {name!r}: name one such as SIGUSR2.") from None


def off_file(target: str) -> str | None:
    """Return the file that switches a recording off: `TORCHREEL_OFF_FILE`, or `<store>.off`."""
    chosen = os.environ.get(OFF_FILE_VARIABLE)
    if chosen:
        return chosen
    return None if "://" in target else f"{target}.off"


def filled_in(target: str, rank: int | None) -> str:
    """Return `target` with `{rank}` and `{pid}` filled in; no rank gives 0."""
    return target.replace("{rank}", str(rank or 0)).replace("{pid}", str(os.getpid()))
