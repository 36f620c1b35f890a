"""Whoever kills a worker, or a run in it, decides no verdict."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch._inductor.exc import CppCompileError

from tests.minifier.real import PLANTED, case_from, chain_of, planted
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.child.killed_programs import killed_program
from torchreel.minifier.oracle.interface import Ahead
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.reductions import MinifyResult
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.sandbox.processes import _children as children
from torchreel.store.failures.signature import Signature

BUG = planted("planted: a sine reaches a cosine")


@dataclass
class Killer:
    """Kills, once in a run: the run's process, the worker's, or that from which it was forked."""

    oracle: WorkerOracle
    below: int
    """How many generations below the warm process: 0 itself, 1 a worker, 2 a run."""
    killed: int = 0
    number: int = signal.SIGKILL

    def strike(self, seconds: float = 30.0) -> None:
        """Wait until there is such a process, and kill it."""
        ended = threading.Event()
        for _ in range(int(seconds / 0.002)):
            found = self._found()
            if found:
                os.kill(random.choice(found), self.number)
                self.killed += 1
                return
            ended.wait(0.002)

    def _found(self) -> list[int]:
        process = self.oracle._process
        found = [] if process is None else [process.pid]
        for _ in range(self.below):
            found = [child for pid in found for child in children(pid)]
        return found


@dataclass
class Disturbed:
    """An oracle of which something is killed during chosen runs, a moment after they began."""

    oracle: WorkerOracle
    moments: dict[int, int]
    """How far below the warm process to strike, by the number of the run."""
    strikes: random.Random = field(default_factory=lambda: random.Random(5))
    runs: int = 0
    killed: int = 0

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the oracle's verdict, whatever happened on the way to it."""
        killer = None
        if self.runs in self.moments:
            killer = Killer(self.oracle, self.moments[self.runs])
            waiting = threading.Timer(self.strikes.uniform(0, 0.1), killer.strike)
            waiting.start()
        self.runs += 1
        report = self.oracle.judge(case)
        if killer is not None:
            waiting.cancel()
            waiting.join()
            self.killed += killer.killed
        return report

    def expect(self, ahead: Ahead) -> None:
        """See `ParallelOracle`."""
        self.oracle.expect(ahead)

    def arrived(self, case: AnyCase) -> OracleReport | None:
        """See `ParallelOracle`."""
        return self.oracle.arrived(case)

    @property
    def wasted(self) -> int:
        """See `ParallelOracle`."""
        return self.oracle.wasted


@pytest.fixture(scope="module")
def case() -> Case:
    """Eight calls, of which two matter; a run takes long enough to be struck."""
    functions = ["relu"] * 8
    functions[1], functions[5] = "sin", "cos"
    return case_from(chain_of(functions), torch.randn(4), backend="planted_slow_path")


@pytest.fixture(scope="module")
def undisturbed(case: Case, worker: WorkerOracle) -> MinifyResult:
    """What one worker finds that nobody kills."""
    worker.look_for(BUG)
    return Search(worker, BUG).run(case)


def alike(one: MinifyResult, other: MinifyResult) -> bool:
    """Whether two reductions took the same steps to the same case."""
    passes = [[replace(p, seconds=0.0) for p in found.passes] for found in (one, other)]
    return (
        one.case.to_bytes() == other.case.to_bytes()
        and one.oracle_runs == other.oracle_runs
        and passes[0] == passes[1]
    )


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerOracle]:
    """One worker, which some tests kill."""
    with WorkerOracle(BUG, imports=(PLANTED,)) as found:
        yield found


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerOracle]:
    """Three of them."""
    with WorkerOracle(BUG, imports=(PLANTED,), jobs=3) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("below", [0, 1, 2], ids=["the warm process", "the worker", "the run"])
def test_a_kill_is_no_verdict(worker: WorkerOracle, case: Case, below: int) -> None:
    disturbed = Disturbed(worker, {0: below})
    report = disturbed.judge(case)
    assert disturbed.killed == 1
    assert (report.verdict, report.lasting) == ("same", True), report


def test_a_compiler_that_is_killed_is_no_verdict(worker: WorkerOracle, case: Case) -> None:
    """Not even where it is killed each time: it might not be in another process."""
    worker.look_for(Signature("exception", "codegen", exception_types=("CppCompileError",)))
    report = worker.judge(replace(case, backend="planted_killed_compiler"))
    worker.look_for(BUG)
    assert (report.verdict, report.lasting) == ("unjudged", False), report
    assert "SIGKILL" in report.detail


@pytest.mark.parametrize(("command", "killed"), [("kill -9 $$", True), ("kill -11 $$", False)])
def test_a_driver_says_how_its_compiler_ended(tmp_path: Path, command: str, killed: bool) -> None:
    """A crash of the compiler is a failure, and may be the one that is looked for."""
    compiler = tmp_path / "cc1plus"
    compiler.write_text(f"#!/bin/sh\n{command}\n")
    compiler.chmod(0o700)
    (tmp_path / "x.cpp").write_text("int x;")
    words = ["g++", "-c", f"-B{tmp_path}/", str(tmp_path / "x.cpp"), "-o", str(tmp_path / "x.o")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "terminated program cc1plus" in ended.stderr
    assert bool(killed_program(CppCompileError(words, ended.stderr))) is killed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nor_is_a_signal_that_somebody_sends(worker: WorkerOracle, case: Case, number: int) -> None:
    killer = Killer(worker, 2, number=number)
    striking = threading.Thread(target=killer.strike)
    striking.start()
    report = worker.judge(case)
    striking.join()
    assert killer.killed == 1
    assert report.verdict == "same", report


@pytest.mark.slow
def test_a_warm_process_that_is_killed_as_it_starts_is_started_again(
    worker: WorkerOracle, case: Case
) -> None:
    worker._stop()
    killer = Killer(worker, 0)
    striking = threading.Thread(target=killer.strike)
    striking.start()
    assert worker.judge(case).verdict == "same"
    striking.join()
    assert killer.killed == 1


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["worker", "workers"])
def test_ten_kills_at_random_change_nothing(
    case: Case, undisturbed: MinifyResult, request: pytest.FixtureRequest, jobs: str
) -> None:
    """Of runs, of workers, and once of what they are forked from."""
    oracle: WorkerOracle = request.getfixturevalue(jobs)
    oracle.look_for(BUG)
    strikes = random.Random(1)
    struck = strikes.sample(range(undisturbed.oracle_runs), 10)
    moments = {number: strikes.choice([1, 2]) if at else 0 for at, number in enumerate(struck)}
    disturbed = Disturbed(oracle, moments)
    found = Search(disturbed, BUG).run(case)
    assert disturbed.killed >= 5  # some had been run ahead, and were known already
    assert alike(found, undisturbed)
