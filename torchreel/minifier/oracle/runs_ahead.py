"""Runs ahead: keeping workers busy with the cases that will probably be asked for.

Lives here: which cases run next, which are given up for them, and the count of those that nobody
asked for. Not here: what may follow (`search.look_ahead`), the workers (`slot_pool`). Called by
`worker_oracle`. There are no threads: an answer waits in the pool until it is looked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.interface import Ahead
from torchreel.minifier.oracle.protocol import Task, TaskResult

Key = tuple[str, int | str]
"""The digest of a case, and which of its runs it is."""


class RunResult(NamedTuple):
    """A task and its result."""

    task: Task
    result: TaskResult

    def serves(self, case: AnyCase) -> bool:
        """Return True if the result can be used for a case with the same digest.

        It can't be used if another run may give another result. It can't be used either if the
        nodes of the case have other names, because the result refers to values by these names.
        """
        one, other = self.task.case, case
        if not self.result.lasting:
            return False
        if one is other or not isinstance(one, Case) or not isinstance(other, Case):
            return True
        names = [[node.name for node in found.graph.nodes] for found in (one, other)]
        return names[0] == names[1]


class Pool(Protocol):
    """Workers that run tasks at the same time."""

    answers: dict[Key, RunResult]
    """The results that have come and are not used yet."""

    @property
    def busy(self) -> Collection[Key]:
        """Return the tasks that are under way."""

    @property
    def room(self) -> int:
        """Return the number of free workers."""

    def begin(self, key: Key, task: Task) -> None:
        """Begin with a task; there has to be room."""

    def cancel(self, key: Key) -> None:
        """Cancel a task that is under way."""

    def wait(self, seconds: float) -> None:
        """Wait for an answer, or for room.  Raises `OSError` when nothing comes in time."""


@dataclass
class AheadCount:
    """The number of runs that were begun, and the number of those whose results were used."""

    begun: int = 0
    used: int = 0

    @property
    def wasted(self) -> int:
        """Return the number of runs whose results were not used."""
        return self.begun - self.used


def _nothing() -> Iterator[AnyCase]:
    return iter(())


class RunsAhead:
    """Answers tasks one after the other, with workers that are at the next ones already."""

    def __init__(self, jobs: int, task_of: Callable[[AnyCase], Task]) -> None:
        self._jobs, self._task_of = jobs, task_of
        self._asked: Counter[str] = Counter()
        self._ahead: Ahead = _nothing
        self.count = AheadCount()

    def expect(self, ahead: Ahead) -> None:
        """Let these cases be run while the next task is waited for."""
        self._ahead = ahead

    def arrived(self, pool: Pool, case: AnyCase) -> TaskResult | None:
        """Return the result of a case that was run ahead, if it has come and can be used."""
        answer = pool.answers.get(self._key(case))
        return answer.result if answer is not None and answer.serves(case) else None

    def answer(self, pool: Pool, task: Task, seconds: float, what: str = "") -> TaskResult:
        """Return the result of a task.  Raises `OSError` when none comes in time.

        `what` distinguishes tasks on one case other than a verdict on it.
        """
        key = (task.case.digest, what) if what else self._key(task.case)
        deadline = time.monotonic() + seconds
        while (found := self._taken(pool, key, task)) is None:
            self._fill(pool, key, task)
            pool.wait(max(0.0, deadline - time.monotonic()))
        self.count.used += 1
        if not what and not found.killed:
            self._asked[task.case.digest] += 1
            self._ahead = _nothing
        return found

    def forget(self, pool: Pool) -> None:
        """Cancel all tasks and forget their results: the following ones are judged otherwise."""
        for key in list(pool.busy):
            pool.cancel(key)
        pool.answers.clear()
        self._asked.clear()
        self._ahead = _nothing

    def _taken(self, pool: Pool, key: Key, task: Task) -> TaskResult | None:
        """Take the answer to a task out of the pool, if it has come."""
        answer = pool.answers.pop(key, None)
        if answer is None or not (answer.task is task or answer.serves(task.case)):
            return None
        return answer.result

    def _key(self, case: AnyCase, later: int = 0) -> Key:
        return case.digest, self._asked[case.digest] + later

    def _fill(self, pool: Pool, key: Key, task: Task) -> None:
        """Give tasks to the free workers, and to workers whose results will not be used."""
        wanted = self._wanted(pool, key, task)
        if key not in pool.busy:
            self._begin(pool, key, task, wanted)
        for other, case in wanted.items():
            if (
                other not in pool.busy
                and other != key
                and not self._begin(pool, other, self._task_of(case), wanted)
            ):
                break

    def _begin(self, pool: Pool, key: Key, task: Task, wanted: Mapping[Key, AnyCase]) -> bool:
        """Begin a task if a worker is free; return True if it has begun.

        If no worker is free, a task that is not wanted is cancelled. Its worker is free a little
        later.
        """
        if not pool.room:
            others = [other for other in pool.busy if other not in wanted]
            if others:
                pool.cancel(others[0])
        if not pool.room:
            return False
        pool.begin(key, task)
        self.count.begun += 1
        return True

    def _wanted(self, pool: Pool, key: Key, task: Task) -> dict[Key, AnyCase]:
        """Return the cases to run now, the most probable first."""
        wanted = {key: task.case}
        seen = Counter([task.case.digest])
        if self._jobs == 1:
            return wanted
        for case in self._ahead():
            other = self._key(case, seen[case.digest])
            seen[case.digest] += 1
            if other not in pool.answers:
                wanted.setdefault(other, case)
            if len(wanted) >= self._jobs:
                break
        return wanted
