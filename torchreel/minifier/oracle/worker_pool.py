"""The worker pool: which case runs on which job slot, and whose results are still wanted.

Lives here: the slots that are free, busy and being cancelled, and results that came before they
were needed. Not here: which cases to run (`worker_oracle`), the lines on a slot (`job_slots`).
There are no threads: a result waits in its socket until it is read.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection

from torchreel.minifier.oracle.job_slots import JobSlot, SlotLost
from torchreel.minifier.oracle.protocol import ChildReport, Task, TaskResult

# Results that nobody has needed yet; older ones were guesses that did not come true.
_MOST_ANSWERS = 256
# A worker that has to drop a case needs no longer than this.
_TO_CANCEL = 60.0
LOST = TaskResult(
    ChildReport("unjudged", None, "the worker itself ended"), 0.0, 0, lasting=False, killed=True
)
"""The answer to a task that went with its worker."""


class WorkerPool:
    """The workers, by the digest of the case that each is at.

    One that is gone is replaced. Every method raises `OSError` when that can't be done.
    """

    def __init__(self, jobs: int, open_slot: Callable[[], JobSlot]) -> None:
        self._open_slot = open_slot
        self._free = [open_slot() for _ in range(jobs)]
        self._busy: dict[str, JobSlot] = {}
        self._ending: list[JobSlot] = []
        self._answers: dict[str, TaskResult] = {}

    @property
    def has_room(self) -> bool:
        """Return True if a worker is free."""
        self._collect()
        return bool(self._free)

    def begin(self, digest: str, task: Task) -> None:
        """Begin with a task, unless that was done; what began first gives way to it."""
        self._collect()
        if digest in self._answers and not self._answers[digest].lasting:
            del self._answers[digest]
        if digest in self._busy or digest in self._answers:
            return
        if not self._free and not self._ending:
            self._cancel(next(iter(self._busy)))
        self._wait(_TO_CANCEL)
        slot = self._free.pop(0)
        try:
            slot.send(task)
        except SlotLost:
            slot = self._replaced(slot)
            slot.send(task)
        self._busy[digest] = slot

    def answer(self, digest: str, seconds: float) -> TaskResult:
        """Return the answer to a task that was begun.  Raises `OSError` when none comes in time."""
        if digest not in self._answers:
            self._answers[digest] = self._received(self._busy[digest], seconds)
            del self._busy[digest]
        return self._answers.pop(digest)

    def drop_all_but(self, digests: Collection[str]) -> None:
        """Cancel all other tasks."""
        self._collect()
        for digest in [found for found in self._busy if found not in digests]:
            self._cancel(digest)

    def forget(self) -> None:
        """Cancel all tasks and forget their results.

        What comes next is judged by another measure.
        """
        self.drop_all_but(())
        self._answers.clear()

    def close(self) -> None:
        """End all connections."""
        for slot in (*self._free, *self._busy.values(), *self._ending):
            slot.close()
        self._free, self._busy, self._ending, self._answers = [], {}, [], {}

    def _cancel(self, digest: str) -> None:
        slot = self._busy.pop(digest)
        try:
            slot.cancel()
        except SlotLost:
            self._free.append(self._replaced(slot))
        else:
            self._ending.append(slot)

    def _wait(self, seconds: float) -> None:
        """Wait until a worker is free."""
        deadline = time.monotonic() + seconds
        while not self._free:
            slots = [*self._ending, *self._busy.values()]
            left = deadline - time.monotonic()
            if left < 0 or not select.select(slots, [], [], left)[0]:
                raise OSError(f"no worker is free within {seconds:.0f} s")
            self._collect()

    def _collect(self) -> None:
        """Take the answers that have come."""
        for slot in [slot for slot in self._ending if slot.has_answer]:
            self._received(slot)
            self._ending.remove(slot)
        for digest in [found for found, slot in self._busy.items() if slot.has_answer]:
            self._answers[digest] = self._received(self._busy.pop(digest))
        while len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def _received(self, slot: JobSlot, seconds: float = 0.0) -> TaskResult:
        """Read the answer on a slot, which is free then."""
        try:
            answer = slot.receive(seconds)
        except SlotLost:
            slot, answer = self._replaced(slot), LOST
        self._free.append(slot)
        return answer

    def _replaced(self, slot: JobSlot) -> JobSlot:
        """Return a new slot in the place of one whose worker is gone."""
        slot.close()
        return self._open_slot()
