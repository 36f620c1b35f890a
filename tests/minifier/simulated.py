"""Workers that look at a case only, and take their time: in a simulated clock, or in a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tests.minifier.hand_made import BUG
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.interface import Ahead
from torchreel.minifier.oracle.protocol import ChildReport, Task, TaskResult
from torchreel.minifier.oracle.runs_ahead import Key, Pool, RunResult, RunsAhead
from torchreel.minifier.results.verdicts import OracleReport

Fails = Callable[[Case], bool]
Latency = Callable[[AnyCase], float]
"""Seconds that a run of a case takes."""


def result_of(case: AnyCase, fails: Fails) -> TaskResult:
    """The verdict of a predicate, as a worker tells it."""
    assert isinstance(case, Case)
    found = ChildReport("same", BUG.to_json()) if fails(case) else ChildReport("none")
    return TaskResult(found, 0.0, 0)


class SimulatedPool:
    """Workers in a clock of their own (`now`, in seconds), which only `wait` moves on."""

    def __init__(self, jobs: int, fails: Fails, latency: Latency) -> None:
        self._jobs, self._fails, self._latency = jobs, fails, latency
        self._ends: dict[Key, tuple[float, Task]] = {}
        self.answers: dict[Key, RunResult] = {}
        self.now = self.worked = 0.0

    @property
    def busy(self) -> Collection[Key]:
        """See `runs_ahead.Pool`."""
        return list(self._ends)

    @property
    def room(self) -> int:
        """See `runs_ahead.Pool`."""
        return self._jobs - len(self._ends)

    def begin(self, key: Key, task: Task) -> None:
        """See `runs_ahead.Pool`."""
        assert self.room > 0
        assert key not in self._ends
        self._ends[key] = self.now + self._latency(task.case), task

    def cancel(self, key: Key) -> None:
        """See `runs_ahead.Pool`."""
        del self._ends[key]

    def wait(self, seconds: float) -> None:
        """Go on to the next end of a run."""
        self.now = min(end for end, _ in self._ends.values())
        for key in [key for key, (end, _) in self._ends.items() if end <= self.now]:
            _, task = self._ends.pop(key)
            self.answers[key] = RunResult(task, result_of(task.case, self._fails))


class SleepingPool:
    """Threads that sleep for as long as a run takes: a cancelled one sleeps on, for nobody."""

    def __init__(self, jobs: int, fails: Fails, latency: Latency) -> None:
        self._jobs, self._fails, self._latency = jobs, fails, latency
        self._threads = ThreadPoolExecutor(jobs)
        self._running: dict[Key, tuple[Future[None], Task]] = {}
        self._given_up: list[Future[None]] = []
        self.answers: dict[Key, RunResult] = {}

    @property
    def busy(self) -> Collection[Key]:
        """See `runs_ahead.Pool`."""
        return list(self._running)

    @property
    def room(self) -> int:
        """See `runs_ahead.Pool`."""
        self._given_up = [found for found in self._given_up if not found.done()]
        return self._jobs - len(self._running) - len(self._given_up)

    def begin(self, key: Key, task: Task) -> None:
        """See `runs_ahead.Pool`."""
        future = self._threads.submit(time.sleep, self._latency(task.case))
        self._running[key] = future, task

    def cancel(self, key: Key) -> None:
        """See `runs_ahead.Pool`."""
        self._given_up.append(self._running.pop(key)[0])

    def wait(self, seconds: float) -> None:
        """See `runs_ahead.Pool`."""
        futures = [*self._given_up, *(found for found, _ in self._running.values())]
        wait(futures, seconds, FIRST_COMPLETED)
        for key in [key for key, (future, _) in self._running.items() if future.done()]:
            _, task = self._running.pop(key)
            self.answers[key] = RunResult(task, result_of(task.case, self._fails))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


class PoolOracle:
    """An oracle over such workers; remembers what it was asked."""

    def __init__(self, pool: Pool, jobs: int) -> None:
        self._pool, self._jobs = pool, jobs
        self._runs = RunsAhead(jobs, self._task)
        self.seen: list[str] = []

    def _task(self, case: AnyCase) -> Task:
        return Task(case, BUG, 1e9, 1 << 40)

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the verdict of the predicate."""
        self.seen.append(case.digest)
        return self._runs.answer(self._pool, self._task(case), 1e9).report()

    def expect(self, ahead: Ahead) -> None:
        """See `ParallelOracle`."""
        self._runs.expect(ahead)

    def arrived(self, case: AnyCase) -> OracleReport | None:
        """See `ParallelOracle`."""
        found = self._runs.arrived(self._pool, case)
        return None if found is None else found.report()

    @property
    def wasted(self) -> int:
        """See `ParallelOracle`."""
        return self._runs.count.wasted
