"""The watch on a child: its stages, its stack, its limits, and what follows when it is gone.

Lives here: reading the child's lines, deciding when it has to end, the finding for a child that
left none. Not here: forking it (`server`), what it runs (`oracle.child`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Literal, TypeAlias, cast

from torchreel.minifier.hangs import stacks
from torchreel.minifier.oracle.predicates import AtLeast, Measured, parse_predicate
from torchreel.minifier.oracle.protocol import PREPARATION, ChildReport, parse_line
from torchreel.sandbox.processes import has_ended, kill_group, resident
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    hang_signature,
    memory_signature,
    signal_name,
)

_POLL = 0.05  # seconds between two looks at a child's memory
# Parts of the limit after which the stack of a child that may hang is looked at.
_LOOKS = (1 / 16, 1 / 4, 1 / 2, 7 / 8)
_MOST_SAID = 1 << 26  # bytes of a report that has not ended
_MOST_STACKS = 1 << 20  # bytes of stacks that a child has written
# Signals for a process's own error. Any other came from outside.
_OF_ITSELF = frozenset(
    getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "SYS", "TRAP")
)

Killed: TypeAlias = Literal["", "cancelled", "orphaned", "presumed", "time", "memory", "malformed"]
"""The reason for which the watch ended a child; '' for none. Presumed: it is where others hang."""


class StackSamples:
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
        """Return the functions that were on the stack each time."""
        return tuple(sorted(stacks.shared(self._found)))

    def entered(self, stage: str, partition: str) -> None:
        """Note that the child is in another stage."""
        here = self._wanted.failure_class == "hang" and hang_signature(stage, partition)
        self._since = time.monotonic() if here and here.matches(self._wanted) else None

    def shows_hang(self) -> bool:
        """Take a stack sample if one is due. Return True if the child is presumed to hang."""
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
        """Read the new stack. Return True if there is one."""
        text = os.pread(self._file.fileno(), _MOST_STACKS, self._read)
        self._read += len(text)
        if text:
            self._found.append(stacks.functions_of(text.decode("utf-8", "replace")))
        return bool(text)


class ChildWatch:
    """Reads the reports of a child and enforces its limits."""

    def __init__(
        self, pid: int, task: Mapping[str, Json], began: float, looks: StackSamples
    ) -> None:
        self._pid, self._memory = pid, int(str(task["memory"]))
        self._deadline = began + float(str(task["seconds"]))
        self.looks = looks
        self._parent = os.getppid()
        self._buffer = b""
        self.peak = 0
        self.killed: Killed = ""
        self.entered = ("", "")
        self.found: ChildReport | None = None
        self._compiling: tuple[float, int] | None = None  # since when, and from which memory

    def run(self, pipe: IO[bytes], slot: socket.socket) -> None:
        """Watch the child until it reports, is gone, or has to be killed.

        An open pipe proves nothing: processes that the child forked hold it as well.
        """
        pipes = [pipe]
        while self.found is None:
            waiting: list[IO[bytes] | socket.socket] = [*pipes, slot]
            ready, _, _ = select.select(waiting, [], [], _POLL)
            if slot in ready:  # the only thing that is said during a task: nobody waits any more
                self.killed = "cancelled"
                kill_group(self._pid)
                return
            if ready:
                chunk = os.read(pipe.fileno(), 1 << 20)
                pipes = pipes if chunk else []  # closed, which a living child can do as well
                self._take(chunk)
            elif has_ended(self._pid):
                return
            if self.found is None and self._must_end():  # also while it says something without end
                kill_group(self._pid)
                return

    def _must_end(self) -> bool:
        if self.killed:
            return True
        self.peak = max(self.peak, resident(self._pid))
        if os.getppid() != self._parent:
            self.killed = "orphaned"
        elif self.looks.shows_hang():
            self.killed = "presumed"
        elif time.monotonic() > self._deadline:
            self.killed = "time"
        elif self.peak > self._memory or len(self._buffer) > _MOST_SAID:
            self.killed = "memory"
        return bool(self.killed)

    def _take(self, chunk: bytes) -> None:
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            try:
                self._hear(parse_line(line))
            except (KeyError, TypeError, ValueError):  # the code of a case can write there
                self.killed = self.killed or "malformed"

    def _hear(self, said: Mapping[str, Json]) -> None:
        if said["pid"] != self._pid:
            return
        if "entered" in said:
            stage, partition = cast("list[str]", said["entered"])
            self.entered = (stage, partition)
            self.looks.entered(stage, partition)
            if self._compiling is None and stage not in PREPARATION:
                self._compiling = (time.monotonic(), resident(self._pid))
        elif "finding" in said:
            self.found = ChildReport(**said["finding"])  # type: ignore[arg-type]

    def finding(
        self, status: int, output: str, task: Mapping[str, Json]
    ) -> tuple[ChildReport, bool]:
        """Return the report on the child, and whether it would be the same again."""
        if self.found is not None:
            return self.found, True
        wanted = Signature.from_json(task["signature"])
        if self.killed == "time":
            return self._timed_out(wanted), True
        if self.is_presumed:
            return self._timed_out(wanted), False
        if self.killed == "memory":
            return self._too_large(wanted), True
        if self.killed == "malformed":
            return self._unjudged("it reported what can't be read"), False
        if self.killed == "cancelled":
            return self._unjudged("nobody waits for it any more"), False
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            return self._crashed(os.WTERMSIG(status), wanted, output), True
        how = "was killed" if os.WIFSIGNALED(status) else f"exited {os.WEXITSTATUS(status)}"
        return self._unjudged(f"its process {how} without a verdict: {output}"), False

    def was_killed(self, status: int) -> bool:
        """Return True if a signal from outside, and none of ours, ended the child."""
        if self.found is not None or self.killed or not os.WIFSIGNALED(status):
            return False
        return os.WTERMSIG(status) not in _OF_ITSELF

    @property
    def is_presumed(self) -> bool:
        """Return True if the child was ended because it is where others hang."""
        return self.killed == "presumed"

    def _unjudged(self, why: str) -> ChildReport:
        return ChildReport("unjudged", None, why, self.entered[0])

    def _timed_out(self, wanted: Signature) -> ChildReport:
        detail = f"stage {self.entered[0]!r} did not end within the time limit"
        return self._limited(wanted, hang_signature(*self.entered), detail)

    def _too_large(self, wanted: Signature) -> ChildReport:
        stage, limit = self.entered[0], self._memory >> 20
        detail = f"stage {stage!r} took more than {limit} MiB of memory"
        return self._limited(wanted, memory_signature(*self.entered), detail)

    def _limited(self, wanted: Signature, seen: Signature, detail: str) -> ChildReport:
        """Return the report on a limit that was reached; a failure only if one is searched for."""
        if wanted.failure_class == "predicate":
            return self._at_least(wanted, detail)
        if seen.matches(wanted):
            return ChildReport("same", seen.to_json(), detail, seen.stage)
        if wanted.is_kill and seen.failure_class == "memory":
            return ChildReport("other", seen.to_json(), detail, seen.stage)
        return self._unjudged(detail)

    def _at_least(self, wanted: Signature, detail: str) -> ChildReport:
        """Return the report on a killed child, from the least values of the measurements so far."""
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
            return ChildReport("none", None, detail, self.entered[0])
        return ChildReport("same", wanted.to_json(), detail, self.entered[0])

    def _crashed(self, number: int, wanted: Signature, output: str) -> ChildReport:
        stage, partition = self.entered
        detail = f"the process died of {signal_name(number)} in stage {stage!r}: {output}"
        if stage in PREPARATION or not stage:
            return ChildReport("invalid", None, detail, stage)
        seen = crash_signature(stage, partition, number)
        found = ChildReport("other", seen.to_json(), detail, stage)
        return replace(found, verdict="same") if seen.matches(wanted) else found
