"""Stacks, as a tree of frames: each frame is kept once, under the one that called it.

Most events of a compile are seen from stacks that differ in their last frames only.  Lives here:
the tree of one recording.  Not here: the rows (`rows.AddFrames`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

Frame = tuple[int, int | None, str, int, str]
"""Id, id of the frame that called it, file, line, function."""


_MOST = 50_000
"""Frames that are remembered: some 10 MB. Programs that make code have no end of file names."""


class Stacks:
    """The frames that a recording has seen."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int | None, str, int, str], int] = {}
        self._last = 0
        self._new: list[Frame] = []
        self._lock = threading.RLock()  # a signal handler of the program may compile meanwhile

    def add(self, summary: Any) -> int | None:
        """Return the id of the innermost frame of a `traceback.StackSummary`; None when it is
        empty.
        """
        here: int | None = None
        if len(self._ids) >= _MOST:
            self._forget()
        ids = self._ids
        for frame in summary:
            key = (here, frame.filename, frame.lineno or 0, frame.name)
            found = ids.get(key)
            here = self._insert(key) if found is None else found
        return here

    def _insert(self, key: tuple[int | None, str, int, str]) -> int:
        with self._lock:
            found = self._ids.get(key)
            if found is None:
                self._last += 1
                found = self._ids[key] = self._last
                self._new.append((found, *key))
            return found

    def _forget(self) -> None:
        """Begin the tree anew: a frame that comes again has a second row."""
        with self._lock:
            self._ids = {}

    def take(self) -> Iterable[Frame]:
        """Return the frames that came since the last time."""
        with self._lock:
            new, self._new = self._new, []
        return new
