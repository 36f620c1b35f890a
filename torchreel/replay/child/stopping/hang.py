"""The end of a replay that hangs as its recording did: as soon as that is written down.

Lives here: the thread of the child that waits for it. Not here: what counts as a hang (the
recorder's watchdog, with the recorded limit). Called by `child` and `frame_child`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_POLL = 0.2
# What the watchdog writes after it has said that a compile hung is on disk by then.
_WRITTEN = 1.0


@contextmanager
def ending_when_hung(recorder: Recorder, limit: float | None) -> Iterator[None]:
    """End this process when a compile has hung; without a limit nothing does."""
    over = threading.Event()
    thread = threading.Thread(target=_wait, args=(recorder, over), name="torchreel-hang")
    thread.daemon = True
    if limit is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()


def _wait(recorder: Recorder, over: threading.Event) -> None:
    while not over.wait(_POLL):
        if any(span.entry.status == "hung" for span in list(recorder.spans.outermost.values())):
            if over.wait(_WRITTEN):
                return
            recorder.event_log.commit("hang")
            os.kill(os.getpid(), signal.SIGKILL)
