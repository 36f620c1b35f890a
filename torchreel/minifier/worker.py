"""The worker: a warm process that forks a child for every case, and watches it.

Run as `python -m torchreel.minifier.worker`. It imports torch and Inductor once, so that a case
costs a fork and the compile itself, not ten seconds of imports. It must never run a parallel region
of its own: the threads of OpenMP do not survive a fork. A child that crashes, hangs or eats the
memory takes nothing with it. Talks to `oracle` through `protocol`; what a child does is `harness`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn, cast

from torchreel import sandbox
from torchreel.minifier.hangs import stacks
from torchreel.minifier.predicates import AtLeast, Measured, parse_predicate
from torchreel.minifier.protocol import (
    PREPARATION,
    Answer,
    Finding,
    Task,
    entered_line,
    hello_line,
    parse_line,
)
from torchreel.sandbox.processes import (
    adopt_orphans,
    die_with_parent,
    end_children,
    follow_parent,
    has_ended,
    kill_group,
    resident,
)
from torchreel.store.jsontypes import Json, parse_json
from torchreel.store.signature import (
    Signature,
    crash_signature,
    hang_signature,
    memory_signature,
    signal_name,
)

_POLL = 0.05  # seconds between two looks at a child's memory
# Parts of the limit after which the stack of a child that may hang is looked at.
_LOOKS = (1 / 16, 1 / 4, 1 / 2, 7 / 8)
_MOST_STACKS = 1 << 20  # bytes of stacks that a child has written
_TAIL = 2000  # bytes of a dead child's output that are kept
_LARGEST_FILE = 4 << 30  # bytes; a child that prints without end must not fill the disk

_machine: dict[str, Json] = {}
"""What the recording says of its GPUs, for a case that compiles for one."""


def main(arguments: list[str] | None = None) -> int:
    """Answer tasks from stdin until it ends."""
    parser = argparse.ArgumentParser(prog="torchreel-minifier-worker")
    parser.add_argument("--import", dest="imports", action="append", default=[])
    parser.add_argument("--trust", action="store_true", help="run cases that are code")
    parser.add_argument("--kernels", action="store_true", help="be ready to compile kernels")
    parser.add_argument("--lane", dest="lanes", type=int, action="append", help="a socket")
    parser.add_argument("--accelerator", type=Path, help="facts of the recorded machine's GPUs")
    options = parser.parse_args(arguments)
    follow_parent()
    gc.disable()  # nearly nothing of what is imported is garbage: a quarter of the time is saved
    if options.accelerator is not None:
        found = parse_json(options.accelerator.read_bytes())
        assert isinstance(found, Mapping), "`oracle` wrote it"
        _machine.update(found)
    channel = _private_channel()
    sys.path.insert(0, os.getcwd())
    for name in options.imports:
        importlib.import_module(name)
    channel.write(hello_line(_warm_up(options.imports, options.kernels, options.trust)))
    channel.close()
    lanes = [socket.socket(fileno=number) for number in options.lanes]
    if len(lanes) == 1:
        _serve(lanes[0], options.trust)
    else:
        _serve_each(lanes, options.trust)
    return 0


def _serve_each(lanes: Sequence[socket.socket], trust: bool) -> None:
    """One process for each lane, all of them as warm as this one, which only waits for them."""
    me = os.getpid()
    for lane in lanes:
        if os.fork() == 0:
            die_with_parent(me)
            for other in lanes:
                if other is not lane:
                    other.close()
            _serve(lane, trust)
            os._exit(0)
    for lane in lanes:
        lane.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _serve(lane: socket.socket, trust: bool) -> None:
    """Answer the tasks of a lane, one after the other, until it is closed."""
    adopt_orphans()
    for line in lane.makefile("rb"):
        data = parse_line(line)
        if "cancel" not in data:  # of a task that had been answered already
            lane.sendall(_answer(data, lane, trust).to_line())


def _private_channel() -> IO[bytes]:
    """Keep stdout for ourselves: whatever else prints, prints to stderr."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel


def _warm_up(imports: list[str], kernels: bool, trust: bool) -> Mapping[str, Json]:
    """Import and initialise what every case needs; returns what verdicts depend on."""
    from torchreel.minifier import environment, torch_names, warm_up

    if not trust:  # what the sandbox asks of the kernel and of the compiler is kept
        sandbox.prepare()
        sandbox.cpp_compiler()
    torch_names.warm_up()
    warm_up.compile_once(kernels=kernels)
    if trust:
        from torchreel.minifier.source.warm_up import trace_once

        trace_once()
    gc.freeze()  # a collection in a child would copy every page of the parent
    gc.enable()
    return {
        **environment.facts(imports, confined=not trust),
        **({"accelerator": _machine} if _machine else {}),
    }


def _answer(data: Mapping[str, Json], lane: socket.socket, trust: bool) -> Answer:
    """Fork a child for a task and see what becomes of it."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as seen:
        began, me = time.monotonic(), os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            lane.close()
            die_with_parent(me)
            stacks.answer_with_stack(seen)
            _child(data, writing, output, trust)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            watch = _Watch(pid, data, began, _Looks(pid, data, seen))
            watch.run(pipe, lane)
        if watch.found is not None:
            kill_group(pid)
        _, status = os.waitpid(pid, 0)
        kill_group(pid)  # a C++ compiler that outlived it
        end_children()  # and what has left the group
        finding, lasting = watch.finding(status, _tail(output), data)
    seconds, looks = time.monotonic() - began, watch.looks
    return Answer(finding, seconds, watch.peak, lasting, looks.stayed_in, watch.is_presumed)


def _child(data: Mapping[str, Json], pipe: int, output: IO[bytes], trust: bool) -> NoReturn:
    """Run the task and write down what came of it. Ends the process, without any clean-up."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    if not trust:
        _confine()
    from torchreel.minifier.runners import run_case
    from torchreel.minifier.stages import Position
    from torchreel.replay import torch_machine
    from torchreel.replay.facts import Facts

    def announce(position: Position) -> None:
        os.write(pipe, entered_line(position.stage, position.partition))

    task = replace(Task.from_json(data), trust=trust)
    if task.case.is_code and not trust:
        _write_all(pipe, Finding("invalid", None, "the case is not trusted", "decode").to_line())
        os._exit(0)
    # Not in the parent: the threads of autograd for a device would not survive the fork.
    with (
        contextlib.nullcontext() if trust else torch_machine.without_other_programs(),
        torch_machine.imposed(Facts(accelerator=_machine or None)),
    ):
        finding = run_case(task, announce)
    _write_all(pipe, finding.to_line())
    os._exit(0)


def _confine() -> None:
    """Let a case do no harm, whatever it calls: it may write to Inductor's cache of this worker."""
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    folder.mkdir(exist_ok=True)
    programs = sandbox.cpp_compiler() + (sandbox.gpu_compilers() if _machine else ())
    sandbox.confine(sandbox.Confinement(folder, programs))


def _write_all(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


class _Looks:
    """Looks at the stack of a child that is where the hang is, at fractions of its limit."""

    def __init__(self, pid: int, task: Mapping[str, Json], file: IO[bytes]) -> None:
        self._pid, self._file = pid, file
        self._wanted = Signature.from_json(task["signature"])
        self._stack = frozenset(cast("list[str]", task["stack"]))
        self._presume, limit = float(str(task["presume"])), float(str(task["seconds"]))
        self._times = [limit * part for part in _LOOKS]
        if self._presume:
            self._times = sorted([*self._times, self._presume])
        self._since: float | None = None
        self._read = 0
        self._awaited = False
        self._found: list[frozenset[str]] = []

    @property
    def stayed_in(self) -> tuple[str, ...]:
        """The functions that were on the stack each time."""
        return tuple(sorted(stacks.shared(self._found)))

    def entered(self, stage: str, partition: str) -> None:
        """The child is in another stage."""
        here = self._wanted.failure_class == "hang" and hang_signature(stage, partition)
        self._since = time.monotonic() if here and here.matches(self._wanted) else None

    def shows_hang(self) -> bool:
        """Look at the stack if it is time to; whether the child is presumed to hang."""
        if self._since is None:
            return False
        spent = time.monotonic() - self._since
        if self._awaited:
            self._awaited = not self._take()
        elif self._times and spent > self._times[0]:
            self._times = [later for later in self._times if later > spent]
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, stacks.WRITE_STACK)
                self._awaited = True
        if not self._presume or spent <= self._presume or not self._found or self._awaited:
            return False
        return bool(self._stack) and self._stack <= self._found[-1]

    def _take(self) -> bool:
        """Read the stack that was written since; whether there is one."""
        text = os.pread(self._file.fileno(), _MOST_STACKS, self._read)
        self._read += len(text)
        if text:
            self._found.append(stacks.functions_of(text.decode("utf-8", "replace")))
        return bool(text)


class _Watch:
    """Reads what a child says and enforces its limits."""

    def __init__(self, pid: int, task: Mapping[str, Json], began: float, looks: _Looks) -> None:
        self._pid, self._memory = pid, int(str(task["memory"]))
        self._deadline = began + float(str(task["seconds"]))
        self.looks = looks
        self._parent = os.getppid()
        self._buffer = b""
        self.peak = 0
        self.killed = ""
        self.entered = ("", "")
        self.found: Finding | None = None
        self._compiling: tuple[float, int] | None = None  # since when, and from which memory

    def run(self, pipe: IO[bytes], lane: socket.socket) -> None:
        """Until the child says what it found, is gone, or has to be killed.

        That the pipe is open proves nothing: what the child forked holds it as well.
        """
        pipes = [pipe]
        while self.found is None:
            waiting: list[IO[bytes] | socket.socket] = [*pipes, lane]
            ready, _, _ = select.select(waiting, [], [], _POLL)
            if lane in ready:  # the only thing that is said during a task: nobody waits any more
                self.killed = "cancelled"
                kill_group(self._pid)
                return
            if ready:
                chunk = os.read(pipe.fileno(), 1 << 20)
                pipes = pipes if chunk else []  # closed, which a living child can do as well
                self._take(chunk)
            elif has_ended(self._pid):
                return
            elif self._must_end():
                kill_group(self._pid)
                return

    def _must_end(self) -> bool:
        self.peak = max(self.peak, resident(self._pid))
        if os.getppid() != self._parent:
            self.killed = "orphaned"
        elif self.looks.shows_hang():
            self.killed = "presumed"
        elif time.monotonic() > self._deadline:
            self.killed = "time"
        elif self.peak > self._memory:
            self.killed = "memory"
        return bool(self.killed)

    def _take(self, chunk: bytes) -> None:
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            said = parse_line(line)
            if said["pid"] != self._pid:
                continue
            if "entered" in said:
                stage, partition = cast("list[str]", said["entered"])
                self.entered = (stage, partition)
                self.looks.entered(stage, partition)
                if self._compiling is None and stage not in PREPARATION:
                    self._compiling = (time.monotonic(), resident(self._pid))
            elif "finding" in said:
                self.found = Finding(**said["finding"])  # type: ignore[arg-type]

    def finding(self, status: int, output: str, task: Mapping[str, Json]) -> tuple[Finding, bool]:
        """What came of it, and whether it would again."""
        if self.found is not None:
            return self.found, True
        wanted = Signature.from_json(task["signature"])
        if self.killed == "time":
            return self._timed_out(wanted), True
        if self.is_presumed:
            return self._timed_out(wanted), False
        if self.killed == "memory":
            return self._too_large(wanted), True
        if self.killed == "cancelled":
            return self._unjudged("nobody waits for it any more"), False
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            return self._crashed(os.WTERMSIG(status), wanted, output), True
        how = "was killed" if os.WIFSIGNALED(status) else f"exited {os.WEXITSTATUS(status)}"
        return self._unjudged(f"its process {how} without a verdict: {output}"), False

    @property
    def is_presumed(self) -> bool:
        """Whether the child was ended because it is where others hang."""
        return self.killed == "presumed"

    def _unjudged(self, why: str) -> Finding:
        return Finding("unjudged", None, why, self.entered[0])

    def _timed_out(self, wanted: Signature) -> Finding:
        detail = f"stage {self.entered[0]!r} did not end within the time limit"
        return self._limited(wanted, hang_signature(*self.entered), detail)

    def _too_large(self, wanted: Signature) -> Finding:
        stage, limit = self.entered[0], self._memory >> 20
        detail = f"stage {stage!r} took more than {limit} MiB of memory"
        return self._limited(wanted, memory_signature(*self.entered), detail)

    def _limited(self, wanted: Signature, seen: Signature, detail: str) -> Finding:
        """A limit is a failure only where one is looked for, or where a predicate speaks of it."""
        if wanted.failure_class == "predicate":
            return self._at_least(wanted, detail)
        if seen.matches(wanted):
            return Finding("same", seen.to_json(), detail, seen.stage)
        if wanted.is_kill and seen.failure_class == "memory":
            return Finding("other", seen.to_json(), detail, seen.stage)
        return self._unjudged(detail)

    def _at_least(self, wanted: Signature, detail: str) -> Finding:
        """What follows from how far the child had got when it was killed."""
        if self._compiling is None:
            return self._unjudged(detail)
        known: dict[str, Measured] = {
            "compile_seconds": AtLeast(time.monotonic() - self._compiling[0]),
            "memory": AtLeast(max(0, self.peak - self._compiling[1])),
        }
        holds = parse_predicate(wanted.message).holds(known)
        if holds is None:
            return self._unjudged(detail)
        if not holds:
            return Finding("none", None, detail, self.entered[0])
        return Finding("same", wanted.to_json(), detail, self.entered[0])

    def _crashed(self, number: int, wanted: Signature, output: str) -> Finding:
        stage, partition = self.entered
        detail = f"the process died of {signal_name(number)} in stage {stage!r}: {output}"
        if stage in PREPARATION or not stage:
            return Finding("invalid", None, detail, stage)
        seen = crash_signature(stage, partition, number)
        found = Finding("other", seen.to_json(), detail, stage)
        return replace(found, verdict="same") if seen.matches(wanted) else found


def _tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
    return output.read().decode("utf-8", "replace").strip()


if __name__ == "__main__":
    Path.cwd()  # fails early, and clearly, where the directory is gone
    sys.exit(main())
