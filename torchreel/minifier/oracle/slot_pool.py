"""The worker pool: the job slots that are free, busy and being cancelled, and what has come.

Lives here: running tasks on slots. Not here: which cases to run (`runs_ahead`), the lines on a slot
(`job_slots`). There are no threads: a result waits in its socket until it is read.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Collection

from torchreel.minifier.oracle.job_slots import JobSlot, SlotLost
from torchreel.minifier.oracle.protocol import ChildReport, Task, TaskResult
from torchreel.minifier.oracle.runs_ahead import Key, RunResult

# Results that nobody has asked for yet; older ones were guesses that did not come true.
_MOST_ANSWERS = 1024
LOST = TaskResult(
    ChildReport("unjudged", None, "the worker itself ended"), 0.0, 0, lasting=False, killed=True
)
"""The answer to a task that went with its worker."""


class SlotPool:
    """The workers, by the task that each is at.

    One that is gone is replaced. Every method raises `OSError` when that can't be done.
    """

    def __init__(self, jobs: int, open_slot: Callable[[], JobSlot]) -> None:
        self._open_slot = open_slot
        self._free = [open_slot() for _ in range(jobs)]
        self._busy: dict[Key, tuple[JobSlot, Task]] = {}
        self._ending: list[JobSlot] = []
        self.answers: dict[Key, RunResult] = {}

    @property
    def busy(self) -> Collection[Key]:
        """See `runs_ahead.Pool`."""
        return list(self._busy)

    @property
    def room(self) -> int:
        """See `runs_ahead.Pool`."""
        self._collect()
        return len(self._free)

    def begin(self, key: Key, task: Task) -> None:
        """See `runs_ahead.Pool`."""
        slot = self._free.pop(0)
        try:
            slot.send(task)
        except SlotLost:
            slot = self._replaced(slot)
            slot.send(task)
        self._busy[key] = slot, task

    def cancel(self, key: Key) -> None:
        """See `runs_ahead.Pool`."""
        slot, _ = self._busy.pop(key)
        try:
            slot.cancel()
        except SlotLost:
            self._free.append(self._replaced(slot))
        else:
            self._ending.append(slot)

    def wait(self, seconds: float) -> None:
        """See `runs_ahead.Pool`."""
        slots = [*self._ending, *(slot for slot, _ in self._busy.values())]
        if not select.select(slots, [], [], seconds)[0]:
            raise OSError(f"no answer within {seconds:.0f} s")
        self._collect()

    def close(self) -> None:
        """End all connections."""
        for slot in (*self._free, *(slot for slot, _ in self._busy.values()), *self._ending):
            slot.close()
        self._free, self._busy, self._ending, self.answers = [], {}, [], {}

    def _collect(self) -> None:
        """Take the answers that have come."""
        for slot in [slot for slot in self._ending if slot.has_answer]:
            self._ending.remove(slot)
            self._received(slot)
        for key in [found for found, (slot, _) in self._busy.items() if slot.has_answer]:
            slot, task = self._busy.pop(key)
            self.answers[key] = RunResult(task, self._received(slot))
        while len(self.answers) > _MOST_ANSWERS:
            del self.answers[next(iter(self.answers))]

    def _received(self, slot: JobSlot) -> TaskResult:
        """Read the answer on a slot, which is free then."""
        try:
            answer = slot.receive(0.0)
        except SlotLost:
            slot, answer = self._replaced(slot), LOST
        self._free.append(slot)
        return answer

    def _replaced(self, slot: JobSlot) -> JobSlot:
        """Return a new slot in the place of one whose worker is gone."""
        slot.close()
        return self._open_slot()
