"""The two sides of a comparison, what is asked of it, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.time_travel import Stop, Until
from torchreel.replay.compare.verdict import Comparison, Divergence, Reached
from torchreel.store.database import Store
from torchreel.store.records import Compile

Key = tuple[str, str, str]  # kind, stage, partition


@dataclass(frozen=True)
class EventComparison:
    """Everything that was compared, and the first difference ('' when there is none)."""

    compared: tuple[Comparison, ...]
    difference: str
    detail: str
    notes: tuple[str, ...] = ()
    divergence: Divergence | None = None
    reached: Reached | None = None
    hole: str = ""
    """Events are missing in the recorded event log where the two part: nothing can be said."""

    @property
    def agrees(self) -> bool:
        """Return True if every comparison agrees."""
        return self.divergence is None and all(row.agrees for row in self.compared)

    @property
    def failed_alike(self) -> bool:
        """Return True if both sides failed in the same way; a hang ends at a time limit."""
        return any(row.kind == "failure" and row.agrees for row in self.compared)


@dataclass(frozen=True)
class Side:
    """A compile in its store; a replay may have made none."""

    store: Store
    compile: Compile | None


@dataclass(frozen=True)
class Question:
    """A request to compare: the checkpoint to begin at, and the differences that are allowed."""

    point: Point
    allow: frozenset[str] = frozenset()
    cut: bool = False
    """The recorded process died: its event log may end anywhere."""
    until: Until = field(default_factory=Until)
    stop: Stop | None = None
    """The place where the replay was stopped, if it was."""
    stand_ins: frozenset[str] = frozenset()
    """The operators that the replay had stand-ins of."""
    unfinished: bool = False
    """The replay was stopped at its time limit: its event log may end anywhere too."""

    @property
    def partial(self) -> bool:
        """Return True if the replay has not done all that was recorded: it was stopped."""
        return self.stop is not None or self.unfinished
