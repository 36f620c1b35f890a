"""The oracle of the parent: has a worker run a case in a child, under limits.

Lives here: starting and ending the worker, and the limits that follow from the first run. Not here:
the worker (`oracle.worker`), what runs in its child (`oracle.child`). Called by `minify`,
`accuracy` and `bisect`; the search knows only `interface.Oracle`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import torchreel
from torchreel import sandbox
from torchreel.errors import MinifyError, UsageError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.options import MinifyOptions, RunLimits
from torchreel.minifier.oracle.interface import Ahead
from torchreel.minifier.oracle.job_slots import JobSlot
from torchreel.minifier.oracle.predicates import QUANTITIES, parse_predicate
from torchreel.minifier.oracle.protocol import Task, TaskResult, parse_line
from torchreel.minifier.oracle.runs_ahead import RunsAhead
from torchreel.minifier.oracle.slot_pool import LOST, SlotPool
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.replay.imposed.device import libraries
from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.sandbox.processes import available_memory, kill_group, named_parent
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of
from torchreel.store.failures.signature import Signature

# A candidate may take ten times as long as the first run, and at least this many seconds: the first
# one profits from nothing that a later one has warmed up.
_TIMES = 10.0
_LEAST_SECONDS = 10.0
# Before the first run is known; C++ compilers on a loaded machine are slow.
_FIRST_SECONDS = 600.0
# A candidate may take ten times the memory of the first run, and at least this much.
_LEAST_MEMORY = 4 << 30
_SHARE_OF_MEMORY = 0.8
# The worker itself is given up on after this long beyond a task's own limit.
_GRACE = 60.0
# A run that is killed each time, at so many attempts, is one that something kills for what it does.
_MOST_KILLS = 10
_KILLED = tuple(-number for number in (signal.SIGKILL, signal.SIGTERM))
# A worker whose slots are closed has nothing left to do.
_TO_END = 5.0
# A child that ends like this reports no step; of these stages the step is the stage, and what comes
# after it is no part of it.
_ENDED = ("crash", "hang", "memory")
_WITHOUT_STEPS = ("post_grad", "lowering")
# What several cases at a time would falsify.
_MATTERS_OF_TIME = ("hang", "predicate")
# The recorder must not follow us into the worker; caches must not answer.
_REMOVED = (
    "TORCHREEL", "TORCHREEL_RUN", "TORCHREEL_COMPILE_TIMEOUT", "TORCH_TRACE", "TORCH_LOGS",
    "TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM", "TORCH_BISECT_MAX",
)  # fmt: skip
# Failures of these stages are seen only when the C++ compiler has been started.
NEEDS_KERNELS = ("codegen", "run")
_SETTINGS = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}


_NO_BOUNDS = RunLimits()


def _code_is_enough(wanted: Signature) -> bool:
    """Return True if a predicate is decided before any C++ is compiled (true where there
    is none).
    """
    if wanted.failure_class != "predicate":
        return True
    return all(QUANTITIES[name].code_is_enough for name in parse_predicate(wanted.message).names())


class WorkerOracle:
    """Judges cases for one signature; a context manager that ends its worker."""

    def __init__(
        self,
        signature: Signature,
        *,
        imports: Sequence[str] = (),
        trust: bool = False,
        bounds: RunLimits = _NO_BOUNDS,
        jobs: int = 1,
        accelerator: Mapping[str, Json] | None = None,
    ) -> None:
        self._accelerator = accelerator
        self.signature, self._imports, self._bounds = signature, tuple(imports), bounds
        self._trust = trust
        self._jobs = max(1, jobs)
        self._pool: SlotPool | None = None
        self._runs = RunsAhead(self._jobs, self._task)
        self._directory = Path(tempfile.mkdtemp(prefix="torchreel-minify-"))
        self._first: TaskResult | None = None
        self._ceiling: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = ""
        """The digest of what verdicts depend on besides the case."""
        self._start()

    def look_for(self, signature: Signature, bounds: RunLimits | None = None) -> None:
        """Judge for another signature from now on, in the same warm worker."""
        self._bounds = bounds if bounds is not None else self._bounds
        self.signature, self._first, self._ceiling = signature, None, None
        with self._restarted_if_broken():
            self._runs.forget(self._open())

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the verdict on one run of the case."""
        answer = self._ask(self._task(case))
        self._learn(answer)
        return answer.report()

    @property
    def seconds(self) -> float:
        """Return the limit of a run now."""
        return self._seconds()

    def judge_hang(self, case: AnyCase, seconds: float, stack: frozenset[str]) -> OracleReport:
        """Return the verdict on one run, in which a hang is presumed after `seconds` within
        `stack`.
        """
        task = replace(self._task(case), presume=seconds, stack=stack)
        return self._ask(task, "hang").report()

    def part_of(self, case: AnyCase) -> Json:
        """Return the document of the last ATen graph that Inductor gets of a case; None if it gets
        none.

        Nothing is learnt from this run.
        """
        return self._ask(replace(self._task(case), part=True), "part").finding.part

    def expect(self, ahead: Ahead) -> None:
        """Run some of the cases that may follow, while the next one is judged.

        Where the failure is a matter of time, a case runs alone: others would slow it down.
        """
        if self._jobs > 1 and self.signature.failure_class not in _MATTERS_OF_TIME:
            self._runs.expect(ahead)

    def arrived(self, case: AnyCase) -> OracleReport | None:
        """Return the report on a case that was run ahead, if it has come."""
        found = None if self._pool is None else self._runs.arrived(self._pool, case)
        return None if found is None else found.report()

    @property
    def wasted(self) -> int:
        """See `ParallelOracle`."""
        return self._runs.count.wasted

    def _task(self, case: AnyCase) -> Task:
        ceiling = self._ceiling
        if self.signature.failure_class == "predicate" and _code_is_enough(self.signature):
            ceiling = "codegen"
        return Task(case, self.signature, self._seconds(), self._memory(), ceiling)

    def _learn(self, answer: TaskResult) -> None:
        """Learn the limits and the last step that counts from the first run that fails as
        recorded.
        """
        if self._first is not None or answer.finding.verdict != "same":
            return
        self._first = answer
        if self.signature.failure_class == "exception":
            self._ceiling = answer.finding.step or None
        elif self.signature.stage in _WITHOUT_STEPS and self.signature.failure_class in _ENDED:
            backward = "backward " if self.signature.partition == "backward" else ""
            self._ceiling = f"{backward}{self.signature.stage}"

    def _seconds(self) -> float:
        if self._bounds.seconds is not None:
            return self._bounds.seconds
        if self._first is None:
            return _FIRST_SECONDS
        return max(_TIMES * self._first.seconds, _LEAST_SECONDS)

    def _memory(self) -> int:
        if self._bounds.memory is not None:
            return self._bounds.memory
        wanted = _LEAST_MEMORY if self._first is None else 10 * self._first.peak
        share = available_memory() * _SHARE_OF_MEMORY / self._jobs
        return min(max(wanted, _LEAST_MEMORY), int(share))

    def _ask(self, task: Task, what: str = "") -> TaskResult:
        """Return the answer to a task, which is run again where its run or its worker was killed.

        Anybody may have killed it: that says nothing about the case, unless it happens each time.
        """
        answer = LOST
        for _ in range(_MOST_KILLS):
            answer = LOST
            with self._restarted_if_broken():
                answer = self._runs.answer(self._open(), task, task.seconds + _GRACE, what)
            if not answer.killed:
                break
        return answer

    @contextlib.contextmanager
    def _restarted_if_broken(self) -> Iterator[None]:
        """Stop workers that are gone, so that the next case finds new ones."""
        try:
            yield
        except (OSError, ValueError):
            self._stop()

    def _open(self) -> SlotPool:
        if self._pool is None:
            self._start()
            assert self._pool is not None, "it was started"
        return self._pool

    def _hello(self, process: subprocess.Popen[bytes]) -> bytes:
        """Read the line with which the worker says that it is ready.

        Raises `OSError` without one.
        """
        assert process.stdout is not None, "the worker was started with a pipe"
        ready, _, _ = select.select([process.stdout], [], [], _FIRST_SECONDS)
        line = process.stdout.readline() if ready else b""
        if not line.endswith(b"\n"):
            raise OSError("the worker did not start")
        return line

    def _start(self) -> None:
        command = [sys.executable, "-m", "torchreel.minifier.oracle.worker"]
        for name in self._imports:
            command += ["--import", name]
        if self._trust:
            command.append("--trust")
        if self.signature.stage in NEEDS_KERNELS or not _code_is_enough(self.signature):
            command.append("--kernels")
        if not self._trust:
            sandbox.warn_once()
        # Children wrote there, and may have put code: the worker, which warms up, is not confined.
        shutil.rmtree(self._directory / "inductor", ignore_errors=True)
        # The worker asks for the vector instructions before its first case.
        copy_probes(self._directory / "inductor", make=True)
        if self._accelerator is not None:
            facts = self._directory / "accelerator.json"
            facts.write_bytes(canonical_json(self._accelerator))
            command += ["--accelerator", str(facts)]
            libraries.prepare(self._directory / "inductor")
        for attempt in range(1, _MOST_KILLS + 1):
            process = self._process = self._started(command)
            try:
                hello = parse_line(self._hello(process))
                self._pool = SlotPool(self._jobs, partial(JobSlot.opened, self._control))
            except (OSError, ValueError) as error:
                said = (self._directory / "worker.log").read_text("utf-8", "replace")[-2000:]
                self._stop()
                if process.returncode in _KILLED and attempt < _MOST_KILLS:
                    continue
                self.close()
                raise self._broken(said) from error
            self.environment = digest_of(canonical_json(hello["environment"]))
            return

    def _started(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the process from which all workers are forked."""
        self._control, other = socket.socketpair()
        with other, (self._directory / "worker.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--control", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[other.fileno()],
                env=named_parent(self._environment()),
                start_new_session=True,  # an interrupt is ours to handle
            )

    def _broken(self, said: str) -> MinifyError | UsageError:
        last = said.strip().rpartition("\n")[2]
        if self._imports and "import_module" in said:
            return UsageError(f"A module named with --import could not be imported: {last}")
        return MinifyError(f"The minifier's worker did not start. It said:\n{said}")

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in _REMOVED}
        root = str(Path(torchreel.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(self._directory / "inductor")}
        return {**kept, **_SETTINGS, **cache, "PYTHONPATH": path}

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._pool is not None:
            self._pool.close()
        self._pool = None
        self._control.close()
        if process.stdout is not None:
            process.stdout.close()
        # Without a way to it the worker ends by itself, and counts what its own children took.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TO_END)
        kill_group(process.pid)
        process.wait()

    def close(self) -> None:
        """End the worker and remove its directory."""
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_oracle(
    given: WorkerOracle | None,
    signature: Signature,
    options: MinifyOptions,
    accelerator: Mapping[str, Json] | None = None,
) -> AbstractContextManager[WorkerOracle]:
    """Return the oracle to use, for the length of a `with`: the given one, or one of our own."""
    if given is not None:
        given.look_for(signature, options.bounds)
        return nullcontext(given)
    return WorkerOracle(
        signature,
        imports=options.imports,
        trust=options.trust,
        bounds=options.bounds,
        jobs=options.jobs,
        accelerator=accelerator,
    )
