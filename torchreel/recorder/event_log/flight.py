"""`flight` mode, and sampling: an event log that keeps what failed, and a summary of the rest.

What a compile writes waits in memory until it is known how the compile ended.  The rows that sum it
up (`compiles`, `stages`, `failures`) go to disk as they come, and so does a checkpoint, before the
stage that it is the input of runs: a process that dies in the compiler leaves what it died of.
Everything else is let go when the compile succeeds.  A checkpoint on disk is deleted a few compiles
later, for a graph that compiled well may still crash in its first call or its late backward.

Kept is a compile that failed, that hung (`--compile-timeout`), that took longer than
`--slow-compile`, or that Dynamo began anew for any reason but its two usual ones
(`failures.USUAL_RESTARTS`).  What a replay from its checkpoint makes again is not looked at:
torch's own trace, and what happens once for each operator (`attach.Tap.flight`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from torchreel.recorder.event_log.log import EventLog
from torchreel.recorder.event_log.retention import drop_material
from torchreel.recorder.event_log.rows import Add, AddGraph, NewEvent, Operation, Ref, Row, Update
from torchreel.recorder.failing_open import losses

if TYPE_CHECKING:
    from torchreel.recorder.event_log.rows import AnyWriter
    from torchreel.recorder.event_log.spans import CompileEntry

_RECENT = 8
"""Compiles that went well whose checkpoints stay on disk for a while."""
_MOST_EVENTS = 20_000
"""Events of one compile in memory, at most: the last ones are those that matter."""
_MOST_BYTES = 16 << 20
"""Bytes of their payloads, at most."""
_MOST_BETWEEN = 1_000
"""Events between compiles that are remembered."""
_MOST_HELD = 64
"""Unfinished compiles whose material is held, at most (nested ones, and some on other threads)."""
_MOST_KNOWN = 1_000
"""Compiles that are known to be kept, or not to be in the sample, at most."""


_COMPILE, _PAYLOAD = NewEvent._fields.index("compile"), NewEvent._fields.index("payload")


class Held:
    """Rows of one compile that wait in memory until it is known how the compile ended."""

    def __init__(self) -> None:
        self.events: deque[Row] = deque()
        self.operations: list[Operation] = []
        self.payloads = 0

    def note(self, event: Row) -> None:
        """Remember an event; the oldest goes when there are too many."""
        self.events.append(event)
        self.payloads += _size(event)
        while len(self.events) > _MOST_EVENTS or self.payloads > _MOST_BYTES:
            self.payloads -= _size(self.events.popleft())
            losses.add("more events than flight mode holds", "flight")


def _size(event: Row) -> int:
    return len(event[_PAYLOAD] or "")


class FlightEventLog(EventLog):
    """An event log that holds back the material of a compile until it is known to be needed.

    In `full` mode with a sample, the compiles in the sample are kept from the start, the others
    leave their summary only; in `flight` mode those outside of the sample leave no checkpoint.
    """

    def __init__(self, target: str, recording: Add, *, full: bool, sample: float) -> None:
        super().__init__(target, recording)
        self._full = full
        self._sample = sample
        self._held: dict[Ref, Held] = {}
        self._kept: dict[Ref, None] = {}
        self._skipped: dict[Ref, None] = {}
        self._between: deque[Row] = deque(maxlen=_MOST_BETWEEN)
        self._recent: deque[CompileEntry] = deque()

    def began(self, entry: CompileEntry) -> None:
        """Note that a compile begins, or goes on: its late backward, its first call."""
        super().began(entry)
        ref = entry.ref
        if not in_sample(entry.compile_id, self._sample):
            if ref not in self._skipped:
                losses.add("not in the sample", "compile")
            _remember(self._skipped, ref)
        elif self._full:
            _remember(self._kept, ref)
        elif ref not in self._kept:
            self._hold(ref)

    def wants_checkpoint(self, entry: CompileEntry) -> bool:
        """Return True if the checkpoints of this compile are to be recorded."""
        return entry.ref not in self._skipped

    def wants_graphs(self, entry: CompileEntry) -> bool:
        """Return True if the graphs between its checkpoints are to be recorded."""
        return entry.ref in self._kept

    def append(self, operation: Operation) -> None:
        """See `EventLog`: material of a compile is held back."""
        compile = _compile_of_material(operation)
        if compile is None or compile in self._kept:
            super().append(operation)
        elif compile in self._skipped:
            return
        elif isinstance(operation, Add) and operation.table == "checkpoints":
            self._append_checkpoint(compile, operation)
        elif compile in self._held:
            self._held[compile].operations.append(operation)

    def _append_checkpoint(self, compile: Ref, operation: Add) -> None:
        """Have it on disk now; its graph's row, which is held, is tied to it when it is written."""
        graph = operation.columns.get("graph_id")
        bare = Add(operation.table, {**operation.columns, "graph_id": None}, operation.ref)
        super().append(bare)
        if isinstance(graph, Ref) and compile in self._held:
            tie = Update("checkpoints", operation.ref, {"graph_id": graph})
            self._held[compile].operations.append(tie)

    def note(self, event: Row) -> None:
        """See `EventLog`: events are held back."""
        number = event[_COMPILE]
        compile = self.compile_of(number)
        if number is None:
            self._between.append(event)
        elif compile is None:
            return
        elif compile in self._kept:
            super().note(event)
        elif compile in self._held:
            self._held[compile].note(event)

    def keep(self, entry: CompileEntry) -> None:
        """Write everything of this compile: the held rows, and all later ones."""
        if entry.ref in self._kept or entry.ref in self._skipped:
            return
        _remember(self._kept, entry.ref)
        held = self._held.pop(entry.ref, None) or Held()
        between, self._between = self._between, deque(maxlen=_MOST_BETWEEN)
        for operation in held.operations:
            super().append(operation)
        for event in (*between, *held.events):
            super().note(event)
        if entry in self._recent:
            self._recent.remove(entry)

    def finished(self, entry: CompileEntry) -> None:
        """Drop the held rows of a finished compile, unless it is kept."""
        if entry.ref in self._kept:
            return
        self._held.pop(entry.ref, None)
        entry.graphs.clear()
        if entry.checkpoints and entry not in self._recent:
            self._recent.append(entry)
            if len(self._recent) > _RECENT:
                self._drop(self._recent.popleft())

    def _drop(self, entry: CompileEntry) -> None:
        entry.checkpoints.clear()
        super().append(Drop(entry.ref))

    def close(self) -> None:
        """See `EventLog`: a process that ends in order has no more crashes to come."""
        while self._recent:
            self._drop(self._recent.popleft())
        super().close()

    def _hold(self, compile: Ref) -> None:
        """Hold back the rows of a compile from now on."""
        while compile not in self._held and len(self._held) >= _MOST_HELD:
            self._held.pop(next(iter(self._held)))
            losses.add("more compiles than flight mode holds", "flight")
        self._held.setdefault(compile, Held())


def _remember(known: dict[Ref, None], ref: Ref) -> None:
    """Put `ref` among the last ones that are known."""
    known[ref] = None
    while len(known) > _MOST_KNOWN:
        known.pop(next(iter(known)), None)


class Drop(NamedTuple):
    """Delete the material of a compile; its row, its stages and its failures stay."""

    compile: Ref

    def write(self, writer: AnyWriter) -> None:
        """See `rows.Operation`."""
        if self.compile.id is not None:
            drop_material(writer, self.compile.id)


def in_sample(compile_id: str, share: float) -> bool:
    """Return True if a compile is in the sample, which is equal in processes that compile alike."""
    if share >= 1:
        return True
    number = int.from_bytes(hashlib.sha256(compile_id.encode()).digest()[:8], "big")
    return number < share * 2**64


def _compile_of_material(operation: Operation) -> Ref | None:
    """Return the compile whose material this is; None for rows that are always written."""
    if isinstance(operation, AddGraph):
        return operation.compile
    if isinstance(operation, Add) and operation.table in ("checkpoints", "output_codes"):
        found = operation.columns.get("compile_id")
        return found if isinstance(found, Ref) else None
    return None
