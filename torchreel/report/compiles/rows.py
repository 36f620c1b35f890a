"""A row for each compile of a recording: what a listing shows of it.

Lives here: what is read of a whole recording at once.  Not here: the rest of a compile
(`details`), nor what failures have in common (`groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchreel.analysis.durations import compile_ns
from torchreel.analysis.event_log import is_library, users_line
from torchreel.analysis.why.grouped_causes import is_break
from torchreel.events.frames import CacheMiss, FrameStart, GraphBreak, Restart
from torchreel.events.guards import Guard
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.report.document import CallerFrame, CompileRow
from torchreel.store import Store, queries
from torchreel.store.records import Compile, Event, Failure, Recording, StackFrame, Stage

START, MISS, BREAK = FrameStart.kind, CacheMiss.kind, GraphBreak.kind
KINDS = (START, CacheOutcome.kind, Restart.kind, MISS, BREAK)
"""Events that a listing reads: all are rows of the table of events, and none comes in thousands."""
_GUARD = Guard.kind


@dataclass
class RecordingFacts:
    """Rows of a recording that are read once, for all of its compiles."""

    recording: Recording
    compiles: list[Compile]
    failures: list[Failure]
    counts: Mapping[int | None, Mapping[str, int]]
    stacks: Mapping[int, StackFrame]
    stages: Mapping[int, list[Stage]]
    events: dict[int | None, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.failed_in = {row.compile_id: row.stage for row in reversed(self.failures)}
        """The stage of the first failure of each compile."""

    def keep(self, compiles: list[Compile]) -> None:
        """Leave out what is about other compiles than these, where these are not all."""
        if len(compiles) < len(self.compiles):
            known = {row.id for row in compiles}
            self.failures = [row for row in self.failures if row.compile_id in known]
            self.compiles = compiles

    def of(self, compile: Compile, kind: str) -> list[Event]:
        """Return the events of a kind, of those that a listing reads."""
        return [event for event in self.events.get(compile.id, ()) if event.kind == kind]

    def line(self, event: Event) -> StackFrame | None:
        """Return the user's line at an event."""
        return users_line(queries.unwound(self.stacks, event))


def facts_of(store: Store, recording: Recording) -> RecordingFacts:
    """Read what a listing of a recording needs."""
    compiles = queries.compiles(store, recording.id)
    found = RecordingFacts(
        recording,
        compiles,
        queries.failures(store, recording.id),
        queries.event_counts_by_compile(store, recording.id),
        queries.readable(store, lambda: queries.stack_frames(store, recording.id), {}),
        queries.stages_by_compile(store, compiles),
    )
    for event in queries.events(store, recording, KINDS):
        found.events.setdefault(event.compile_id, []).append(event)
    return found


_DEEPEST = 200
"""Frames of a stack that are shown, at most: the innermost ones."""


class StackTable:
    """The frames of stacks in one tree; recordings that ran one program share them."""

    def __init__(self) -> None:
        self.rows: list[CallerFrame] = []
        self._places: dict[CallerFrame, int] = {}

    def innermost(self, stack: Sequence[StackFrame]) -> int | None:
        """Return the place of the innermost frame of a stack, which is added where it is new."""
        place: int | None = None
        for frame in stack[-_DEEPEST:]:
            row = CallerFrame(frame.file, frame.line, frame.name, place, is_library(frame))
            place = self._places.setdefault(row, len(self.rows))
            if place == len(self.rows):
                self.rows.append(row)
        return place


def row_of(
    facts: RecordingFacts, compile: Compile, call_nodes: int | None, stacks: StackTable
) -> CompileRow:
    """Return the row of a compile."""
    counts = facts.counts.get(compile.id, {})
    spent = compile_ns(compile, facts.stages.get(compile.id, ()))
    began = facts.of(compile, START)
    answers = (
        f"{event.name} {event.fields.outcome}"
        for event in facts.of(compile, CacheOutcome.kind)
        if isinstance(event.fields, CacheOutcome)
    )
    return CompileRow(
        compile.place, compile.recording_id, compile.frame_name, compile.frame_file,
        compile.frame_line, compile.status, compile.backend or "",
        (compile.started_ns - facts.recording.started_ns) / 1e6,
        None if spent is None else spent / 1e6,
        stacks.innermost(queries.unwound(facts.stacks, began[0])) if began else None,
        facts.failed_in.get(compile.id, ""), call_nodes, counts.get(_GUARD, 0),
        sum(is_break(event) for event in facts.of(compile, BREAK)), counts.get(MISS, 0),
        list(answers),
    )  # fmt: skip
