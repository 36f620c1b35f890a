"""Compiles that do not end: `--compile-timeout`.

Lives here: a thread that looks at the open spans now and then.  Not here: the spans themselves.
When one is older than the limit it writes down the Python stacks of all threads and a failure of
class 'hang' in the innermost stage; the program goes on.
"""

from __future__ import annotations

import sys
import threading
import time
from traceback import StackSummary, walk_stack
from typing import TYPE_CHECKING

from torchreel.events.frames import Hang
from torchreel.recorder import failing_open
from torchreel.recorder.attach import Events
from torchreel.recorder.failing_open import fail_open

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import Span
    from torchreel.recorder.recorder import Recorder

EVENTS: Events = {Hang: ()}
_ROUNDS = 10
"""Looks per time limit: a hang is noticed at most a tenth late."""


class Watchdog:
    """Watches the spans of a recorder; does nothing without a limit."""

    def __init__(self, recorder: Recorder, limit: float | None) -> None:
        self._recorder = recorder
        self._limit = limit
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching (again, in a forked child)."""
        if self._limit is None:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchreel-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        assert self._limit is not None
        while not self._stop.wait(min(self._limit / _ROUNDS, 1.0)):
            with fail_open("watchdog"):
                failing_open.check("watchdog")
                self._look(self._limit)

    def _look(self, limit: float) -> None:
        spans = self._recorder.spans
        for thread, span in list(spans.outermost.items()):
            if time.monotonic() - span.started > limit and span.entry.status != "hung":
                self._report(span, spans.innermost.get(thread, span), limit)

    def _report(self, outer: Span, inner: Span, limit: float) -> None:
        stacks = _stacks()
        self._recorder.note(Hang(limit), "stacks", payload=stacks, entry=inner.entry)
        self._recorder.add_hang(inner, inner.stage or "dynamo", inner.partition, limit)
        outer.entry.status = "hung"


def _stacks() -> str:
    """Return the Python stack of every thread but this one.

    Its frames are taken at once: a frame that has returned no longer says who called it.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = {ident: list(walk_stack(frame)) for ident, frame in sys._current_frames().items()}
    stacks.pop(threading.get_ident(), None)
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n{''.join(StackSummary.extract(stack[::-1]).format())}"
        for ident, stack in stacks.items()
    )
