"""Tracks the compile and the stage that each thread is in, and makes their rows.

Lives here: `CompileEntry` (one `compiles` row), `Span` (one `stages` row) and the stack of open
spans of each thread.  Not here: what opens them (`probes`), what becomes of exceptions
(`failures`).
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchreel.recorder.event_log.rows import Ref
from torchreel.store.addressing import UNNAMED
from torchreel.store.trace.metadata import compile_name

_numbers = itertools.count(1)

# The stages that begin outside of any other, in the order in which a compile goes through them.
_ORDER = {"pre_grad": 0, "joint": 1, "forward": 2, "backward": 2}


@dataclass
class GraphCall:
    """The progress of compiling the graph that a compile begins with (see `pieces`)."""

    graph: int
    """The id of its graph module."""
    is_any: bool = False
    """True if the backend is torch's own, which may compile a copy of the graph."""
    level: int | None = None
    """The innermost entry that was reached; None before the first, and after it returned."""
    is_over: bool = False
    """True after the graph was compiled: the next one is another graph."""


class CompileEntry:
    """One attempt at one frame, as long as the process lives (a backward may be compiled late)."""

    def __init__(
        self, compile_id: str, attempt: int, generation: int = 0, parent: CompileEntry | None = None
    ) -> None:
        self.compile_id, self.attempt, self.generation = compile_id, attempt, generation
        self.parent = parent
        """The compile whose graph this one compiles apart."""
        self.call: GraphCall | None = None
        """Of its own graph, while the backend has it."""
        self.is_piece = False
        """True if a backend of the program compiles it apart."""
        self.number = next(_numbers)
        """By which its events know it, as long as they wait."""
        self.ref = Ref()
        self.started_ns = time.time_ns()
        """By which the marks know it."""
        self.frame: Mapping[str, object] = {}
        """The columns about the frame, which the rows of its pieces have as well."""
        self.status = "running"
        self.open_spans = 0
        self.checkpoints: dict[tuple[str, str], Ref] = {}
        self.ordinals: Counter[tuple[str, ...]] = Counter()
        self.graphs: dict[tuple[str, str, str], Ref] = {}
        self.entered: list[tuple[str, str]] = []
        self.read: set[tuple[str, ...]] = set()
        """Paths that its guards would look at, where frames are kept: a global of the frame, and
        the names of members from there on."""

    def ordinal(self, *key: str) -> int:
        """Return the number of earlier things of this kind, and count this one."""
        self.ordinals[key] += 1
        return self.ordinals[key] - 1

    def checkpoint(self, partition: str) -> Ref | None:
        """Return the checkpoint nearest to a stage that works on `partition`."""
        return self.checkpoints.get(("aot", partition)) or self.checkpoints.get(("graph", ""))

    def can_go_on(self, stage: str, partition: str) -> bool:
        """Return True if `stage` can be a later part of this compile."""
        if self.status != "ok" or stage not in _ORDER:
            return stage not in _ORDER
        if stage == "pre_grad" and self.entered:
            return False  # of a graph that a cache has code for, nothing more may follow
        latest = max((_ORDER[s] for s, _ in self.entered if s in _ORDER), default=0)
        if _ORDER[stage] == _ORDER["forward"]:
            return (stage, partition) not in self.entered
        return _ORDER[stage] >= latest


class Span:
    """One open stage; `ref` is None for one that has no row of its own (the same one is open)."""

    def __init__(self, entry: CompileEntry, stage: str, partition: str, ref: Ref | None) -> None:
        self.entry, self.stage, self.partition, self.ref = entry, stage, partition, ref
        self.started = time.monotonic()


class Mark(NamedTuple):
    """The place where an exception on its way out was first seen."""

    error: int
    entry: CompileEntry
    stage: str
    partition: str


class _ThreadState(threading.local):
    """The state of one thread; every attribute starts anew in each thread."""

    def __init__(self) -> None:
        self.stack: list[Span] = []
        self.inside = False
        self.cause: int | None = None
        """The event under way, by its seq: those noted meanwhile are a part of it."""
        self.mark: Mark | None = None
        self.unnamed: CompileEntry | None = None

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Record nothing that this thread does inside of the `with`."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before


class Spans:
    """The open spans of every thread, and the compiles by their names."""

    def __init__(self) -> None:
        self.here = _ThreadState()
        self.entries: dict[tuple[int, str, int], CompileEntry] = {}
        """By generation, name and attempt."""
        self.generation = 0
        """The number of resets of Dynamo after a compile: each time names begin anew."""
        self._is_used = False
        self._contexts: weakref.WeakKeyDictionary[object, dict[int, CompileEntry]] = (
            weakref.WeakKeyDictionary()
        )
        """The attempts of each of torch's CompileContexts: a backward that is compiled after a
        reset has the context of its forward, whose name may be another compile's by then."""
        self.outermost: dict[int, Span] = {}
        """By thread: what the watchdog looks at."""
        self.innermost: dict[int, Span] = {}
        self.unnamed = itertools.count()

    @property
    def top(self) -> Span | None:
        """The innermost open span of this thread."""
        stack = self.here.stack
        return stack[-1] if stack else None

    @property
    def only(self) -> CompileEntry | None:
        """The one compile under way in the process, for threads that work for it; else None."""
        entries = {span.entry for span in tuple(self.outermost.values())}
        return entries.pop() if len(entries) == 1 else None

    def push(self, span: Span) -> None:
        """Open a span on this thread."""
        self.here.mark = None
        self.here.stack.append(span)
        span.entry.open_spans += 1
        self._publish()

    def pop(self, span: Span) -> bool:
        """Close `span` and those above it that a failing hook left open; True if none is left."""
        stack = self.here.stack
        while span in stack:
            stack.pop().entry.open_spans -= 1
        self._publish()
        return not stack

    @contextmanager
    def outside(self, entry: CompileEntry) -> Iterator[None]:
        """Hide the open spans of other compiles, for an event of `entry`, whose own have ended.

        A frame may be skipped while the graph of another compile is traced.  It has nothing of the
        stage of that compile.
        """
        here, stack = self.here, self.here.stack
        if stack and stack[-1].entry is not entry:
            here.stack = []
        try:
            yield
        finally:
            here.stack = stack

    def _publish(self) -> None:
        stack, thread = self.here.stack, threading.get_ident()
        if stack:
            self.outermost[thread], self.innermost[thread] = stack[0], stack[-1]
        else:
            self.outermost.pop(thread, None)
            self.innermost.pop(thread, None)

    def is_open(self, entry: CompileEntry, stage: str, partition: str) -> bool:
        """Return True if the innermost span of this thread is that very stage."""
        top = self.top
        return top is not None and (top.entry, top.stage, top.partition) == (
            entry, stage, partition,
        )  # fmt: skip

    def reset(self) -> None:
        """Dynamo is reset: a name that it gives from now on is another compile's."""
        if self._is_used:
            self.generation, self._is_used = self.generation + 1, False

    def name(
        self, compile_id: str, attempt: int, parent: CompileEntry | None = None
    ) -> CompileEntry:
        """Return a new compile of that name.

        A name that is known comes again where Dynamo's counters were reset without Dynamo.
        """
        if compile_id == UNNAMED:
            generation = 0
        else:
            if (self.generation, compile_id, attempt) in self.entries:
                self.reset()
            self._is_used, generation = True, self.generation
        entry = CompileEntry(compile_id, attempt, generation, parent)
        self.entries[generation, compile_id, attempt] = entry
        return entry

    def of_context(self, context: Any) -> CompileEntry | None:
        """Return the compile and the attempt that a CompileContext of torch stands for, when
        known.
        """
        attempts = self._contexts.setdefault(context, {})
        found = attempts.get(context.attempt)
        if found is None:
            found = self.entries.get((self.generation, str(context.compile_id), context.attempt))
            if found is not None:
                attempts[context.attempt] = found
        return found

    def of_trace(self, metadata: Mapping[str, object]) -> CompileEntry | None:
        """Return the compile that a record of the structured trace belongs to."""
        top = self.top
        if top is not None and top.entry.parent is not None:
            return top.entry
        name = compile_name(metadata)
        if name is None:
            return top.entry if top is not None else None
        context = current_context()
        if context is not None and str(context.compile_id) == name:
            return self.of_context(context)
        attempt = metadata.get("attempt", 0)
        key = (self.generation, name, attempt if isinstance(attempt, int) else 0)
        return self.entries.get(key)


def current_context() -> Any:
    """Return torch's CompileContext of this thread; None if it compiles nothing that has a name."""
    guards = sys.modules.get("torch._guards")
    context = guards.CompileContext.try_get() if guards is not None else None
    return None if context is None or context.compile_id is None else context
