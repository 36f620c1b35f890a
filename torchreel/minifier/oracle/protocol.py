"""The protocol of the oracle and its worker: lines of JSON, one object each.

An exit status proves nothing: an import error, a kill and a timeout all look like "not zero". So a
verdict is only what a child wrote down itself, or what the worker saw happen to it.

- `Task`, oracle to worker: a case, the signature to look for, limits.
- `CANCEL`, oracle to worker: nobody waits for that answer any more.
- A greeting, worker to oracle, once: the environment that verdicts hold for.
- `TaskResult`, worker to oracle, one for each task.
- The stage that it enters, and at its end a `ChildReport`, child to worker, over a pipe. Each line
  names its writer: a process that the child forked has no say in the verdict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from torchreel.minifier.cases.protocol import AnyCase, case_from_json
from torchreel.minifier.results.verdicts import OracleReport, Verdict
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.failures.signature import Signature

PREPARATION = ("decode", "fake", "eager")
"""Stages before the compiler: what fails there was no program to begin with."""


@dataclass(frozen=True)
class Task:
    """One run of one case."""

    case: AnyCase
    signature: Signature
    seconds: float
    """Time limit; for a hang, how long the stage has to take."""
    memory: int
    """Limit of resident memory, in bytes."""
    ceiling: str | None = None
    """The step in which the failure is known to happen: nothing after it is run."""
    part: bool = False
    """True if the report is to hold the last ATen graph that Inductor got."""
    trust: bool = False
    """True if config entries that name code, commands or paths are restored; a worker decides that
    for itself, so it is not in the line."""
    presume: float = 0.0
    """Seconds in the stage after which a hang is presumed; 0: after the whole limit only."""
    stack: frozenset[str] = frozenset()
    """The functions that have to be on the stack when a hang is presumed."""

    def to_line(self) -> bytes:
        """Return it as one line."""
        rest = _line(
            {
                "signature": self.signature.to_json(),
                "seconds": self.seconds,
                "memory": self.memory,
                "ceiling": self.ceiling,
                "part": self.part,
                "presume": self.presume,
                "stack": sorted(self.stack),
            }
        )
        return b'{"case":%b,%b' % (self.case.to_bytes(), rest[1:])

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Task:
        """Read what `parse_line` gave for the line."""
        return cls(
            case_from_json(data["case"]),
            Signature.from_json(data["signature"]),
            float(str(data["seconds"])),
            int(str(data["memory"])),
            None if data["ceiling"] is None else str(data["ceiling"]),
            bool(data["part"]),
            presume=float(str(data["presume"])),
            stack=frozenset(cast("list[str]", data["stack"])),
        )


@dataclass(frozen=True)
class ChildReport:
    """The report of a child on its case."""

    verdict: Verdict
    signature: Json = None
    detail: str = ""
    stage: str = ""
    step: str = ""
    """The last step (`stages.STEPS`) that was reached."""
    values: Mapping[str, Json] = field(default_factory=dict)
    note: str = ""
    """See `OracleReport`."""
    missing: Sequence[str] = ()
    """See `OracleReport`."""
    part: Json = None
    """The document of the ATen graph that a task wanted."""
    killed: bool = False
    """True if a program that the case started was killed: nothing is known of the case."""

    def to_line(self) -> bytes:
        """Return it as one line."""
        return _line({"pid": os.getpid(), "finding": vars(self)})


@dataclass(frozen=True)
class TaskResult:
    """The result of a task: the child's report, or one on what happened to the child."""

    finding: ChildReport
    seconds: float
    peak: int
    """Most resident memory seen, in bytes."""
    lasting: bool = True
    stack: tuple[str, ...] = ()
    """See `OracleReport`."""
    presumed: bool = False
    """See `OracleReport`."""
    killed: bool = False
    """True if a signal that somebody sends ended the run: what the case would have done is not
    known."""

    def to_line(self) -> bytes:
        """Return it as one line."""
        # Not `asdict`, which copies what each of thousands of nodes computed.
        return _line({**vars(self), "finding": vars(self.finding)})

    @classmethod
    def from_line(cls, line: bytes) -> TaskResult:
        """Read what `to_line` wrote."""
        data = cast("dict[str, Json]", parse_json(line))
        finding = ChildReport(**cast("dict[str, Json]", data["finding"]))  # type: ignore[arg-type]
        return cls(
            finding, float(str(data["seconds"])), int(str(data["peak"])), bool(data["lasting"]),
            tuple(cast("list[str]", data["stack"])), bool(data["presumed"]), bool(data["killed"]),
        )  # fmt: skip

    def report(self) -> OracleReport:
        """Return the report for the search."""
        found = self.finding
        signature = Signature.from_json(found.signature) if found.signature is not None else None
        return OracleReport(
            found.verdict, signature, found.detail, found.stage, self.seconds, found.values,
            self.lasting, found.note, tuple(found.missing), frozenset(self.stack), self.presumed,
        )  # fmt: skip


def entered_line(stage: str, partition: str) -> bytes:
    """Return the line with which a child says that it entered a stage."""
    return _line({"pid": os.getpid(), "entered": [stage, partition]})


def hello_line(environment: Mapping[str, Json], problem: str = "") -> bytes:
    """Return the line with which a worker says that it is ready, or why it is not."""
    return _line({"environment": environment, "problem": problem})


CANCEL = b'{"cancel":true}\n'
"""Oracle to worker: the task that is under way is not needed any more (it is answered anyhow)."""


def parse_line(line: bytes) -> dict[str, Json]:
    """Parse any line."""
    return cast("dict[str, Json]", parse_json(line))


def _line(data: Json) -> bytes:
    return canonical_json(data) + b"\n"
