"""The event log: compiling threads append to it, a daemon thread writes it to the store in batches.

Lives here: the buffer, the writer thread, `commit` (wait until everything so far is on disk).  Not
here: what a row means.  The buffer is bounded, and a store that stays locked or a full disk can
only cost rows: they are counted as lost, the program never waits longer than a few seconds.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from torchreel.errors import LockedStore, MissingStore
from torchreel.recorder import environment, failing_open
from torchreel.recorder.event_log.rows import (
    Add,
    AddEnvironment,
    AddEvents,
    AddFrames,
    AddPages,
    Operation,
    Ref,
    Row,
)
from torchreel.recorder.event_log.stacks import Stacks
from torchreel.recorder.failing_open import fail_open, losses
from torchreel.recorder.redaction import RedactingWriter
from torchreel.store.processes.marks import KEY, Marks, Place

if TYPE_CHECKING:
    from torchreel.recorder.control import KillSwitch
    from torchreel.recorder.event_log.retention import Retention
    from torchreel.recorder.event_log.rows import AnyWriter
    from torchreel.recorder.event_log.spans import CompileEntry, Span
    from torchreel.recorder.redaction import Redactor
    from torchreel.store.database import Store
    from torchreel.store.files.direct import DirectStore, DirectWriter
    from torchreel.store.writer import Writer

_INTERVAL = 0.5
"""Seconds between two batches when nobody waits: long enough to gather, short enough to lose
little when the process is killed."""
_IDLE_ROUNDS = 4
"""Empty rounds after which the writer thread ends (it is started again when there is work): a
process that has only one thread can fork without a warning."""
_MOST_OPERATIONS = 200_000
"""Rows in memory, at most: more than a minute of the busiest compile writes."""
_MOST_COMPILES = 1_000
"""Compiles whose rows are known by number: the last ones that began or went on, and open ones."""
_MOST_LOOKED_AT = 50
"""The last of them, which are kept without a look if they are still open: a compile itself, and not
only its row, takes a kilobyte."""
_PAGE = 4000
"""Events that wait for their page, at most: what a kill may cost, and what a page holds."""
_LONGEST_LOCK = 0.1
"""Seconds after which a transaction ends at its next row, for other processes want to write too.

The work of a batch is 20 ms, but each statement may wait for the interpreter's lock while the
program computes: half a second was seen."""
_MOST_FAILURES = 6
"""Failed batches in a row after which recording is switched off (each waits 5 s for a lock)."""


class Patience(NamedTuple):
    """The seconds that the program may wait for the disk."""

    begin: float = 1.0
    """For the first rows; they come later where that is too short."""
    first_commit: float = 15.0
    """For the first commit: it creates the store, and loads SQLAlchemy for a server."""
    commit: float = 3.0
    """For any later one, before the program goes on without it."""
    close: float = 2.0
    """For all that is left at the end."""


OF_A_REPLAY = Patience(first_commit=300.0, commit=300.0, close=300.0)
"""No program waits in the child of a replay, and without its recording there is no verdict."""


class _Marker:
    """Stands in the event log where somebody waits until everything before it is on disk."""

    def __init__(self) -> None:
        self.reached = threading.Event()

    def write(self, writer: Writer | DirectWriter) -> None:
        """Do nothing: it only marks a place."""


class _Alarm:
    """An event that a signal handler may set while its thread is setting it.

    `threading.Event` has a lock, for which that thread would wait for ever.
    """

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake whoever waits, now or later."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until it is set, and take that back."""
        with suppress(Empty):
            self._rung.get(timeout=seconds)

    def clear(self) -> None:
        """Take back what was set."""
        with suppress(Empty):
            while True:
                self._rung.get_nowait()


class EventLog:
    """An append-only buffer of operations, with the thread that empties it into `target`."""

    patience = Patience()

    def __init__(self, target: str, recording: Add) -> None:
        self.target = self._wanted = target
        self.recording: Ref = recording.ref
        self._began = os.getpid(), _number(recording.columns["started_ns"])
        self.off = False
        self.stacks = Stacks()
        self._queue: deque[Operation] = deque([recording])
        self._events: deque[Row] = deque()
        self._compiles: OrderedDict[int, Ref] = OrderedDict()
        self._open: OrderedDict[int, CompileEntry] = OrderedDict()
        self._batch: list[Operation] = []
        self._lock = threading.RLock()
        self._wake = _Alarm()
        self._thread: threading.Thread | None = None
        self._store: Store | DirectStore | None = None
        self._stop = False
        self._failures = 0
        self._written_losses = losses.version
        self._committed = False
        self._hurried = False
        self._file: tuple[int, int] | None = None
        self.known: tuple[str, tuple[int, int] | None] = ("", None)
        """The store, and the identity of its file, that the process had open before it forked."""
        self.redactor: Redactor | None = None
        self.retention: Retention | None = None
        self.switch: KillSwitch | None = None
        self.marks = Marks()
        self._why = ""

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was recorded: only the row of the recording itself waits."""
        waiting = len(self._queue) + len(self._events) + len(self._batch)
        return self.recording.id is None and waiting == 1

    def began(self, entry: CompileEntry) -> None:
        """Note that a compile has a row now, or goes on; later rows are kept by default."""
        self._compiles[entry.number], self._open[entry.number] = entry.ref, entry
        self._compiles.move_to_end(entry.number)
        self._open.move_to_end(entry.number)
        for _ in range(len(self._open) - _MOST_LOOKED_AT):
            number, oldest = self._open.popitem(last=False)
            if oldest.open_spans:
                self._open[number] = oldest
        for _ in range(len(self._compiles) - _MOST_COMPILES):
            number, row = self._compiles.popitem(last=False)
            if number in self._open:
                self._compiles[number] = row

    def keep(self, entry: CompileEntry) -> None:
        """Keep everything of this compile: it failed, hung, or did something rare."""

    def finished(self, entry: CompileEntry) -> None:
        """Note that a compile is over, and there is nothing odd about it."""

    def mark(self, entry: CompileEntry) -> None:
        """Mark how a compile stands, so that it is known should the process die now."""
        if entry.ref.id is not None or not self.off:  # else it never gets a row
            self.marks.mark(entry.started_ns, entry.status)

    def mark_place(self, span: Span, node: str = "") -> None:
        """Mark where a compile is now, so that it is known should the process die here."""
        entry = span.entry
        if entry.ref.id is not None or not self.off:
            self.marks.enter(entry.started_ns, Place(span.stage, span.partition, node))

    def wants_checkpoint(self, entry: CompileEntry) -> bool:
        """Return True if the checkpoints of this compile are to be recorded."""
        return True

    def wants_graphs(self, entry: CompileEntry) -> bool:
        """Return True if the graphs between its checkpoints are to be recorded."""
        return True

    def append(self, operation: Operation) -> None:
        """Put a row in the event log; never blocks."""
        if self.off or len(self._queue) > _MOST_OPERATIONS:
            reason = "recording switched off" if self.off else "buffer full"
            losses.add(reason, "event log", follows=self.off)
            return
        self._queue.append(operation)
        if self._thread is None:
            self._start()

    def note(self, event: Row) -> None:
        """Put an event in the event log; never blocks.

        Nothing wakes the writer for it: events wait for a commit, or until they fill a page.
        """
        if self.off or len(self._events) > _MOST_OPERATIONS:
            reason = "recording switched off" if self.off else "buffer full"
            losses.add(reason, "event log", follows=self.off)
            return
        self._events.append(event)
        if self._thread is None:
            self._start()

    def hurry(self) -> None:
        """Have everything so far written now, without waiting for it."""
        self._hurried = True
        self._wake.set()

    def begin(self) -> None:
        """Wait a moment until the first rows are on disk.

        To open the store beside a program that computes takes four times as long: with each file
        and each statement, the interpreter's lock is given away, and comes back after 5 ms.
        """
        if not self.off:
            self._mark().reached.wait(self.patience.begin)

    def commit(self, place: str) -> bool:
        """Wait until everything so far is on disk; False (and counted) when that takes too long."""
        marker = self._mark()
        limit = self.patience.commit if self._committed else self.patience.first_commit
        if not self.off and marker.reached.wait(limit) and not self.off:
            self._committed = True
            return True
        losses.add("not committed in time", place, follows=self.off)
        self.off = self.off or not self._committed
        return False

    def _mark(self) -> _Marker:
        """Return a marker behind everything so far, which the writer is to reach now."""
        marker = _Marker()
        self.append(marker)
        self.hurry()
        return marker

    def close(self) -> None:
        """Write the remaining rows, within the limit of patience, and close the store."""
        if (self._queue or self._events or self._losses_changed) and not self.off:
            self._start()
        self._hurried = True
        self.pause()
        if self._thread is None:
            with _file_limits_are_errors():
                self.marks.end(written=self._is_done)
                self._close_store()
        self.off = True

    def pause(self) -> None:
        """Write everything and end the thread, as before a fork; an append starts it again."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self._stop = True
        self._wake.set()
        try:
            thread.join(self.patience.close)
        finally:
            self._stop = False

    @property
    def _losses_changed(self) -> bool:
        return self._written_losses != losses.version

    @property
    def _is_done(self) -> bool:
        """Return True if the store says that this recording has ended, or if the store is gone."""
        if self._file is not None and _identity(self.target) != self._file:
            return True
        with fail_open("event log.done", quiet=True):
            from torchreel.store.recording import is_done

            return self._store is not None and is_done(self._store, self.recording.id)
        return False

    def _close_store(self) -> None:
        store, self._store = self._store, None
        with fail_open("event log.close"):
            if store is not None:
                store.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._run, name="torchreel-event log", daemon=True
            )
            with fail_open("event log.start", quiet=True) as attempt:
                self._thread.start()
            if attempt.kind is not None:
                # The interpreter is shutting down: this thread writes what is left.
                self._thread = None
                with _file_limits_are_errors():
                    self._step()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXFSZ})  # see below
        idle = 0
        while True:
            if not self._stop:
                self._wake.wait(_INTERVAL)
            self._wake.clear()
            if self.switch is not None:
                self.switch.look()
            idle = 0 if self._step() else idle + 1
            if (self._stop or self.off or idle > _IDLE_ROUNDS) and self._leave():
                return

    def _leave(self) -> bool:
        """Return True if the thread may end.

        `append` takes no lock: rows that it pushed before it saw that there is no thread are looked
        for again after the thread has gone.
        """
        with self._lock:
            me, self._thread = self._thread, None
            waiting = self._queue or self._batch or self._events
            if waiting and not self.off and self._failures == 0:
                self._hurried = True
                self._thread = me
                return False
            return True

    def _step(self) -> bool:
        """Write one batch; False when there was nothing to write."""
        hurried, self._hurried = self._hurried, False
        while self._queue:
            self._batch.append(self._queue.popleft())
        if self._events and (hurried or self._stop or len(self._events) > _PAGE):
            self._batch += self._take_events()
        if not self._batch and not self._losses_changed:
            return False
        kind = self._write_all()
        if kind is not None and not issubclass(kind, LockedStore):
            kind = self._write_singly()
        if kind is None:
            self._failures = 0
            self._keep_within_limits()
        else:
            self._fail(kind)
        return True

    def _keep_within_limits(self) -> None:
        if self.retention is not None:
            with fail_open("retention"):
                failing_open.check("retention")
                self.retention.enforce(self._opened(), self.recording.id)

    def _take_events(self) -> list[Operation]:
        """Return the events so far: rows in one insertion, the others in pages by kind and
        compile.
        """
        rows: dict[int | None, list[Row]] = {}
        pages: dict[int | None, dict[str, list[Row]]] = {}
        for _ in range(len(self._events)):
            event = self._events.popleft()
            kind, compile, in_pages = event[:3]
            if in_pages:
                pages.setdefault(compile, {}).setdefault(kind, []).append(event)
            else:
                rows.setdefault(compile, []).append(event)
        # Last, for an event is on its deque before its frames are looked for here.
        frames = list(self.stacks.take())
        operations: list[Operation] = [
            AddPages(self.recording, self.compile_of(number), list(kinds.values()))
            for number, kinds in pages.items()
        ]
        operations += [
            AddEvents(self.recording, self.compile_of(number), events)
            for number, events in rows.items()
        ]
        if frames:
            operations.append(AddFrames(self.recording, frames))
        return operations

    def compile_of(self, number: int | None) -> Ref | None:
        """Return the row of the compile with that number; None (and counted) when it is long
        over.
        """
        if number is None:
            return None
        row = self._compiles.get(number)
        if row is None:
            losses.add("of a compile that is long over", "event")
        return row

    def _fail(self, kind: type[BaseException]) -> None:
        """Keep the batch for another try, or give up."""
        self._failures += 1
        if self._failures < _MOST_FAILURES and issubclass(kind, LockedStore):
            return
        self.off = True
        losses.add(
            f"recording switched off: {kind.__name__}", "event log", self._why or self.target
        )
        self._queue.clear()
        self._events.clear()
        self._release(len(self._batch))
        # What has taken the store's place is not to find our log beside it.
        self._close_store()

    def _release(self, count: int) -> None:
        """Let those go on who wait for the first `count` rows of the batch, which are done."""
        done, self._batch = self._batch[:count], self._batch[count:]
        for operation in done:
            if isinstance(operation, _Marker):
                operation.reached.set()

    def _write_all(self) -> type[BaseException] | None:
        with fail_open("event log.write", quiet=True) as attempt:
            failing_open.check("event log.write")
            while self._batch:
                self._release(self._write_some())
            self._write_losses()
        self._why = attempt.message
        return attempt.kind

    def _write_some(self) -> int:
        """Write the batch's first rows in one transaction; return the number of rows written."""
        with self._writer() as writer:
            began = time.monotonic()
            for count, operation in enumerate(self._batch, 1):
                operation.write(writer)
                if time.monotonic() - began > _LONGEST_LOCK:
                    return count
        return len(self._batch)

    def _write_singly(self) -> type[BaseException] | None:
        """Write, after a failed batch, each row for itself, so that one bad row costs only itself.

        Returns why when not even an empty transaction is possible.
        """
        with fail_open("event log.open", quiet=True) as attempt, self._writer():
            pass
        if attempt.kind is not None:
            self._why = attempt.message
            return attempt.kind
        for operation in self._batch:
            singles = operation.singly() if isinstance(operation, AddPages) else [operation]
            for single in singles:
                with fail_open("event log.row"), self._writer() as writer:
                    single.write(writer)
        self._release(len(self._batch))
        self._write_losses()
        return None

    def _write_losses(self) -> None:
        if not self._losses_changed or self.recording.id is None:
            return
        version = losses.version
        columns = ("recording_id", "reason", "place", "count", "message")
        rows = [
            dict(zip(columns, (self.recording.id, *row), strict=True)) for row in losses.snapshot()
        ]
        with fail_open("event log.losses", quiet=True), self._writer() as writer:
            writer.clear_losses(self.recording.id)
            writer.add_many("lost", rows)
        self._written_losses = version

    @contextmanager
    def _writer(self) -> Iterator[AnyWriter]:
        """Open a transaction with a writer that redacts."""
        with self._opened().writer() as writer:
            if self.redactor is None or self.redactor.is_off:
                yield writer
            else:
                yield RedactingWriter(writer, self.redactor)  # type: ignore[misc]

    def _opened(self) -> Store | DirectStore:
        if self._store is None:
            from torchreel.store.files.locks import INSTEAD_OF, own_file
            from torchreel.store.recording import open_for_recording

            self.target = own_file(self._wanted, environment.launched_rank())
            target, file = self.known
            if target == self.target and file not in (None, _identity(target)):
                raise _gone(target)
            self._store = open_for_recording(self.target)
            self._file = _identity(self.target)
            facts = {KEY: self.marks.create(self.target, *self._began)}
            if self.target != self._wanted:
                facts[INSTEAD_OF] = os.path.basename(self._wanted)
            # Next to the recording's own row: the process may be killed after the first rows.
            self._batch.insert(1, AddEnvironment(self.recording, facts))
        elif self._file is not None and _identity(self.target) != self._file:
            raise _gone(self.target)
        return self._store

    @property
    def file(self) -> tuple[str, tuple[int, int] | None]:
        """The store that is recorded into, and which file it is, once it is open."""
        return self.target, self._file or self.known[1]


def _gone(target: str) -> MissingStore:
    return MissingStore(f"{target} was deleted or replaced while it was recorded into.")


@contextmanager
def _file_limits_are_errors() -> Iterator[None]:
    """Let no file of ours that gets too large end the process, though the program may
    have said so of its own (SIGXFSZ; Python ignores it).
    """
    limit = {signal.SIGXFSZ}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, limit)
    try:
        yield
    finally:
        if not limit & before:
            while signal.sigtimedwait(limit, 0) is not None:
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _identity(target: str) -> tuple[int, int] | None:
    """Return the device and inode of the file; None if there is none."""
    try:
        status = os.stat(target)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
