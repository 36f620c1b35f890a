"""The options of a reduction: one object, from the command line to the worker."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def usable_cores() -> int:
    """Return the cores that this process may use: fewer than the machine has where some are taken
    away.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Budget:
    """The limits of a search that stop it before a fixpoint; None is no limit."""

    seconds: float | None = None
    runs: int | None = None


@dataclass(frozen=True)
class RunLimits:
    """Limits of one run of a case; None is what the first run suggests."""

    seconds: float | None = None
    memory: int | None = None
    """Bytes of resident memory."""


@dataclass(frozen=True)
class MinifyOptions:
    """Everything that a user can choose about a reduction."""

    imports: tuple[str, ...] = ()
    """Modules that the worker imports: they define backends and operators. Trusted."""
    trust: bool = False
    """True if the code of the program may be run, which is in the bundle of a frame."""
    limits: Budget = field(default_factory=Budget)
    bounds: RunLimits = field(default_factory=RunLimits)
    explain: bool = False
    """True to look for a workaround, the nearest neighbour that passes, and what does not
    matter: at most `explain.MOST_RUNS` more runs, after a fixpoint."""
    other_failure: int | None = None
    """The number of another failure that a reduction met, to reduce instead."""
    comparator: str = "default"
    """The comparator, with `accuracy`: it says that two results differ
    (`replay.accuracy.comparison`)."""
    predicate: str | None = None
    """A predicate to look for instead of a failure (`oracle.predicates`)."""
    command: tuple[str, ...] = ()
    """A command of the user's in its place, which gets the path of a script. Trusted."""
    jobs: int = 1
    """The number of cases that run at a time. The result is the same for any number."""
