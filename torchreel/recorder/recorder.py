"""The recorder of one process: what the probes call, and how a recording begins and ends.

Lives here: `Recorder`, which turns what probes see into rows.  Not here: the public functions
(`session`), where it attaches (`attach`), what each probe sees (`probes`), how rows get to disk
(`event_log.log`).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import astuple

from torchreel.recorder import control, environment, failing_open
from torchreel.recorder.event_log import failures
from torchreel.recorder.event_log.flight import FlightEventLog
from torchreel.recorder.event_log.log import OF_A_REPLAY, EventLog
from torchreel.recorder.event_log.retention import Limits, Retention
from torchreel.recorder.event_log.rows import (
    Add,
    AddEnvironment,
    AddGraph,
    Blob,
    Config,
    LearnFrom,
    NewEvent,
    Ref,
    Update,
)
from torchreel.recorder.event_log.spans import (
    CompileEntry,
    Mark,
    Span,
    Spans,
    current_context,
)
from torchreel.recorder.failing_open import fail_open, losses
from torchreel.recorder.frames import secrets
from torchreel.recorder.frames.secrets import is_installed
from torchreel.recorder.redaction import Redactor
from torchreel.recorder.settings import Settings
from torchreel.store.addressing import UNNAMED

if TYPE_CHECKING:
    from torchreel.events.event import EventType
    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.formats.graphs.document import GraphDoc
    from torchreel.store.failures.signature import Signature


boundaries: list[Callable[[Recorder, tuple[str, str, int] | None], None]] = []
"""Functions called where a stage ends or a checkpoint is taken (its entry, partition, ordinal)."""


class Watcher(Protocol):
    """Watches events as they happen, and may end the compile (`failures.Stopped`)."""

    def event(self, event: NewEvent) -> None:
        """Note that an event was written."""

    def stage(self, stage: str, partition: str) -> None:
        """Note that a stage is about to begin."""


_MOST_ENTRIES = 1_000
"""Compiles that are known by their names, at most: a late backward may belong to any of them."""


_MOST_FILES = 100
"""Source files of the program that are looked through for secrets, at most."""


class RecordingOptions(NamedTuple):
    """The options of a recording: its store, its mode, and its purpose."""

    target: str
    mode: str = "full"
    run: str = ""
    kind: str = "program"
    """'program', or 'replay' of the compile `replay_of` (row id) from the checkpoint `entry`."""
    replay_of: int | None = None
    entry: str | None = None
    lazy: bool = False
    """Write nothing at all when nothing is compiled (a process that only imports torch)."""
    settings: Settings = Settings()


class Recorder:
    """Receives the notes of the probes; one per process, `active()` while it records."""

    def __init__(self, options: RecordingOptions) -> None:
        self.options = options
        self.watcher: Watcher | None = None
        self._begin()

    def _begin(self) -> None:
        """Start a new recording: at first, and in a forked child."""
        losses.reset()
        self.pid = os.getpid()
        self.spans = Spans()
        self._rank = environment.rank()
        self.event_log = self._new_event_log()
        self._sequence = itertools.count(1)
        self._described = self._begun = False
        self._failed = failures.Written()
        self._files: set[str] = set()

    def _new_event_log(self) -> EventLog:
        options, row = self.options, self._recording_row()
        settings = options.settings
        target = control.filled_in(options.target, environment.launched_rank())
        event_log: EventLog
        if options.mode == "flight" or settings.sample < 1:
            full = options.mode == "full"
            event_log = FlightEventLog(target, row, full=full, sample=settings.sample)
        else:
            event_log = EventLog(target, row)
        if options.kind == "replay":
            event_log.patience = OF_A_REPLAY
        event_log.redactor = Redactor(settings.rules, argv=_arguments())
        if settings.limits != Limits() and "://" not in target:
            event_log.retention = Retention(settings.limits)
        return event_log

    @property
    def wants_checkpoint(self) -> bool:
        """Return True if a checkpoint of the current compile is to be taken."""
        return self.event_log.wants_checkpoint(self.entry_here())

    @property
    def wants_graphs(self) -> bool:
        """Return True if graphs between the checkpoints are recorded.

        To encode one costs as much as a pass.
        """
        return self.event_log.wants_graphs(self.entry_here())

    @property
    def wants_guards(self) -> bool:
        """Return True if guards are recorded.

        They are made last: by then a compile may have been too slow, and is kept.
        """
        slow, stack = self.options.settings.slow_compile, self.spans.here.stack
        late = slow is not None and stack and time.monotonic() - stack[0].started > slow
        return bool(late) or self.wants_graphs

    def _recording_row(self) -> Add:
        options = self.options
        return Add(
            "recordings",
            {
                "run": options.run,
                "kind": options.kind,
                "replay_of": options.replay_of,
                "entry": options.entry,
                "pid": os.getpid(),
                "rank": self._rank,
                "argv": environment.arguments(_arguments()),
                "cwd": _working_directory(),
                "started_ns": time.time_ns(),
                "status": "running",
            },
        )

    @property
    def recording_id(self) -> int | None:
        """The row id of this recording, once anything of it is on disk."""
        return self.event_log.recording.id

    @property
    def busy(self) -> bool:
        """Return True if this thread is inside a hook of ours: nothing is recorded there."""
        return self.spans.here.inside

    @property
    def is_compiling(self) -> bool:
        """Return True if this thread works on a compile."""
        return self.spans.top is not None or current_context() is not None

    # -- compiles -------------------------------------------------------------------------------

    def entry_here(self, stage: str = "", partition: str = "") -> CompileEntry:
        """Return the compile that this thread works on, made up when it did not come through
        Dynamo.
        """
        context, top = current_context(), self.spans.top
        if top is not None and top.entry.parent is not None:
            return top.entry
        if context is not None:
            return self.spans.of_context(context) or self.add_compile(
                context.compile_id, int(context.attempt)
            )
        return top.entry if top is not None else self._unnamed(stage, partition)

    def _unnamed(self, stage: str, partition: str) -> CompileEntry:
        """Return the unnamed compile that this thread goes on with, or the next one.

        Outside of Dynamo nothing says which calls of AOTAutograd belong together; but the stages
        of one compile come in order.
        """
        last = self.spans.here.unnamed
        if last is not None and last.can_go_on(stage, partition):
            return last
        entry = self.add_compile(UNNAMED, next(self.spans.unnamed))
        self.spans.here.unnamed = entry
        return entry

    def add_part(self, parent: CompileEntry, **columns: object) -> CompileEntry:
        """Return a compile of its own inside of another, under the next number there is in it."""
        name = f"{parent.compile_id}/{parent.ordinal('part')}"
        return self._add_compile(self.spans.name(name, parent.attempt, parent), columns)

    def add_compile(self, name: object, attempt: int, **columns: object) -> CompileEntry:
        """Return a new row of `compiles`; `name` is a torch CompileId or its text."""
        numbers = {
            "frame_id": getattr(name, "frame_id", None),
            "frame_compile_id": getattr(name, "frame_compile_id", None),
        }
        return self._add_compile(self.spans.name(str(name), attempt), {**numbers, **columns})

    def _add_compile(self, entry: CompileEntry, columns: Mapping[str, object]) -> CompileEntry:
        self._describe()
        frame = {"frame_name": "", "frame_file": "", "frame_line": 0, **columns}
        row = {
            "recording_id": self.event_log.recording,
            "compile_id": entry.compile_id,
            "attempt": entry.attempt,
            "status": "running",
            "started_ns": entry.started_ns,
            "generation": entry.generation,
            **frame,
        }
        off = self.event_log.switch is not None and self.event_log.switch.look(now=True)
        self._forget_old_entries()
        self.event_log.append(Add("compiles", self._permitted(row), entry.ref))
        self.event_log.began(entry)
        if not (self._begun or off):
            # A process that dies in its first compile has left a word.
            self._begun = True
            self.event_log.begin()
        return entry

    def learn(self, values: Iterable[str], file: str) -> None:
        """Learn secrets of a frame, and its source file: they are not to reach the disk."""
        redactor = self.event_log.redactor
        if redactor is None or redactor.rules.mode == "none":
            return
        redactor.look_again()
        redactor.learn(values)
        if file in self._files or len(self._files) > _MOST_FILES or is_installed(file):
            return
        self._files.add(file)
        self.event_log.append(LearnFrom(file))

    def keep_words_of(self, checkpoint: bytes) -> None:
        """Do not redact the words of a checkpoint that the compiler needs."""
        redactor = self.event_log.redactor
        if redactor is not None:
            redactor.keep_words_of(checkpoint)

    def saw(self, error: BaseException) -> None:
        """Note an exception that passes: its message may hold secrets of its frames."""
        with fail_open("secrets"):
            for values, file in secrets.of_error(error):
                self.learn(values, file)
            redactor = self.event_log.redactor
            if redactor is not None and redactor.is_strict:
                redactor.learn_texts([*secrets.messages(error)], ())

    def _forget_old_entries(self) -> None:
        """Forget old entries: a process that compiles for weeks must not grow."""
        entries = self.spans.entries
        while len(entries) > _MOST_ENTRIES:
            entries.pop(next(iter(entries)), None)

    def update_compile(self, entry: CompileEntry, **columns: object) -> None:
        """Complete the row of a compile."""
        self.event_log.append(Update("compiles", entry.ref, self._permitted(columns)))

    def _permitted(self, columns: dict[str, object]) -> dict[str, object]:
        """Leave the source of the frame out where everything is redacted: it has comments."""
        if self.options.settings.redact != "all":
            return columns
        return {name: value for name, value in columns.items() if name != "frame_source"}

    def finish(self, entry: CompileEntry, status: str, seconds: float = 0.0) -> None:
        """End a compile; the status of one that failed or hung does not change any more.

        `seconds` is its duration, as far as it is known here.
        """
        if entry.status not in ("failed", "hung"):
            entry.status = status
        self.event_log.mark(entry)
        self.update_compile(entry, status=entry.status, ended_ns=time.time_ns())
        slow = self.options.settings.slow_compile
        if entry.status in ("failed", "hung") or (slow is not None and seconds > slow):
            self.event_log.keep(entry)
        self.event_log.finished(entry)

    # -- stages ---------------------------------------------------------------------------------

    def enter(self, stage: str, partition: str = "", entry: CompileEntry | None = None) -> Span:
        """Enter a stage; a stage that is entered from itself has one row."""
        entry = entry or self.entry_here(stage, partition)
        known = self.spans.is_open(entry, stage, partition)
        if self.watcher is not None and not known:
            self.watcher.stage(stage, partition)
        entry.entered.append((stage, partition))
        if known:
            span = Span(entry, stage, partition, None)
        else:
            span = Span(entry, stage, partition, Ref())
            self._reopen(entry)
            self.event_log.append(Add("stages", _stage_columns(span), span.ref or Ref()))
        self._push(span)
        return span

    def enter_frame(self, entry: CompileEntry) -> Span:
        """Enter a compile without entering a stage."""
        span = Span(entry, "", "", None)
        self._push(span)
        return span

    def _push(self, span: Span) -> None:
        if self.spans.top is None:
            self._failed.begin()
        self.spans.push(span)
        self.event_log.mark_place(span)

    def _reopen(self, entry: CompileEntry) -> None:
        """Mark a compile that goes on (its backward, its first run): the process may die in it."""
        if entry.open_spans == 0 and entry.status == "ok":
            entry.status = "running"
            self.event_log.mark(entry)
            self.update_compile(entry, status="running", ended_ns=None)
            self.event_log.began(entry)

    def leave(self, span: Span, error: BaseException | None = None, *, soft: bool = False) -> None:
        """Leave a stage, by `error` if there is one; `soft` says that the pipeline handles it."""
        if error is not None and failures.is_control_flow(error):
            soft = True
        failed = error is not None and not soft
        if error is not None and failures.is_odd_restart(error):
            self.event_log.keep(span.entry)
        try:
            self._at_boundary(None)
            if span.ref is not None:
                columns = {"status": _stage_ended(error, failed), "ended_ns": time.time_ns()}
                self.event_log.append(Update("stages", span.ref, columns))
            if error is not None and failed:
                here = Mark(id(error), span.entry, span.stage or "dynamo", span.partition)
                self.spans.here.mark = failures.mark(self.spans.here.mark, error, here)
        finally:
            is_last = self.spans.pop(span)
        if is_last:
            # Without memory for the row of a failure, the compile has still failed.
            with fail_open("failure"):
                self._surface(error if failed else None)
        if span.entry.open_spans == 0 and span.entry.status in ("running", "hung"):
            seconds = time.monotonic() - span.started
            self.finish(span.entry, _ended(error, failed), seconds)
            # What is still in memory when the process is killed looks as if it had never ended.
            self.event_log.hurry()
        if (outer := self.spans.top) is not None:
            self.event_log.mark_place(outer)

    def _at_boundary(self, checkpoint: tuple[str, str, int] | None) -> None:
        for look in boundaries:
            with fail_open("boundary"):
                failing_open.check("boundary")
                look(self, checkpoint)

    def _surface(self, error: BaseException | None) -> None:
        """Note that an exception leaves the outermost span: the program sees it."""
        mark, self.spans.here.mark = self.spans.here.mark, None
        if mark is None or not isinstance(error, Exception):
            return
        self.add_failure(error, mark)

    def lowers(self, node: str) -> None:
        """Mark the node that is lowered from now on."""
        if (top := self.spans.top) is not None:
            self.event_log.mark_place(top, node)

    def partition(self) -> str:
        """Return the partition of the innermost open stage."""
        top = self.spans.top
        return top.partition if top is not None else ""

    # -- failures -------------------------------------------------------------------------------

    def add_failure(self, error: BaseException, mark: Mark) -> None:
        """Write down a failure, once, and see it on disk: a failing program may end soon."""
        if self.has_failed(error):
            return
        self._failed.add(error)
        self.saw(error)
        # The source of a program has comments: where everything is redacted, none is kept.
        with_text = self.options.settings.redact != "all"
        columns = failures.of_exception(error, mark.entry, mark, with_text=with_text)
        for file in failures.files_in(columns):
            self.learn((), file)
        self._describe()
        self.event_log.append(failures.AddException(self._of_recording(columns), error))
        self.finish(mark.entry, "failed")
        self.event_log.commit("failure")

    def add_hang(self, span: Span, stage: str, partition: str, seconds: float) -> None:
        """Write down that a compile does not end."""
        self._write_failure(span.entry, failures.of_hang(span.entry, stage, partition, seconds))
        span.entry.status = "hung"
        self.update_compile(span.entry, status="hung")
        self.event_log.keep(span.entry)
        self.event_log.commit("hang")

    def add_wrong_result(self, signature: Signature, message: str) -> None:
        """Write down that the compile under way computes something else than eager does."""
        entry = self.entry_here()
        self.event_log.keep(entry)
        self._write_failure(entry, failures.of_wrong_result(entry, signature, message))
        self.event_log.commit("failure")

    def has_failed(self, error: BaseException) -> bool:
        """Return True if this very exception has been written down."""
        return error in self._failed

    def _write_failure(self, entry: CompileEntry, columns: Mapping[str, object]) -> None:
        self._describe()
        self.event_log.append(Add("failures", self._of_recording(columns)))

    def _of_recording(self, columns: Mapping[str, object]) -> dict[str, object]:
        return {"recording_id": self.event_log.recording, **columns}

    # -- what was seen --------------------------------------------------------------------------

    def note(
        self,
        event: EventType,
        name: str = "",
        *,
        payload: str | None = None,
        entry: CompileEntry | None = None,
        stack: int | None = None,
    ) -> int:
        """Note an event at the next position of the event log; return the position.

        Its fields are spelled later, by another thread: they must never change and hold no tensor.
        """
        return self._note(
            event.kind, event.__struct_encode_fields__, name, astuple(event), payload, entry,
            stack, event.paged, event.exact,
        )  # fmt: skip

    def note_trace(
        self, kind: str, name: str, data: object, payload: str | None, entry: CompileEntry | None
    ) -> None:
        """Note a record of torch's own trace: its metadata is kept as it is."""
        self._note(kind, None, name, (data,), payload, entry, None, True, False)

    def _note(
        self,
        kind: str,
        fields: tuple[str, ...] | None,
        name: str,
        values: tuple[object, ...],
        payload: str | None,
        entry: CompileEntry | None,
        stack: int | None,
        pages: bool,
        exact: bool,
    ) -> int:
        self._describe()
        here = self.spans.here
        top = here.stack[-1] if here.stack else None
        if entry is None and top is not None:
            entry = top.entry
        seq = next(self._sequence)
        compile = entry.number if entry is not None else None
        stage = (top.stage or "dynamo") if top is not None else None
        event = (
            kind, compile, pages, exact, fields, seq, time.time_ns(), stage, name, payload,
            here.cause, stack, *values,
        )  # fmt: skip
        self.event_log.note(event)
        if self.watcher is not None:
            self.watcher.event(NewEvent.of(event))
        return seq

    def user_stack(self, summary: object = None) -> int | None:
        """Return the id of a stack: that of `summary`, or of the code that Dynamo traces now."""
        if summary is None:
            summary = _user_stack()
        return self.event_log.stacks.add(summary) if summary else None

    def add_graph(self, stage: str, partition: str, doc: GraphDoc) -> Ref:
        """Add the graph of a stage; return its row, or that of an equal graph of the stage."""
        entry = self.entry_here()
        key = (stage, partition, _structure(doc))
        if key in entry.graphs:
            return entry.graphs[key]
        ordinal = entry.ordinal("graph", stage, partition)
        operation = AddGraph(entry.ref, stage, partition, ordinal, doc)
        self.event_log.append(operation)
        entry.graphs[key] = operation.ref
        return operation.ref

    def add_checkpoint(self, doc: CheckpointDoc, stage: str) -> None:
        """Write a checkpoint and its graph; on disk when this returns."""
        entry = self.entry_here()
        graph = self._add_checkpoint_graph(entry, stage, doc)
        ordinal = entry.ordinal("checkpoint", doc.entry, doc.partition)
        self._at_boundary((doc.entry, doc.partition, ordinal))
        columns = {
            "compile_id": entry.ref,
            "entry": doc.entry,
            "partition": doc.partition,
            "ordinal": ordinal,
            "digest": Blob(doc.to_bytes),
            "graph_id": graph,
        }
        operation = Add("checkpoints", columns)
        self.event_log.append(operation)
        if not entry.checkpoints:  # later, torch has set some for the time of a stage
            self.event_log.append(Update("compiles", entry.ref, {"config_id": Config(doc.config)}))
        entry.checkpoints[doc.entry, doc.partition] = operation.ref
        self.event_log.commit("checkpoint")

    def _add_checkpoint_graph(self, entry: CompileEntry, stage: str, doc: CheckpointDoc) -> Ref:
        """Return the row of a checkpoint's graph.

        If graphs of this compile are recorded, the row may be that of an equal graph of the stage.
        If not, the checkpoint's graph gets a row of its own.
        """
        if self.event_log.wants_graphs(entry):
            return self.add_graph(stage, doc.partition, doc.graph)
        ordinal = entry.ordinal("graph", stage, doc.partition)
        operation = AddGraph(entry.ref, stage, doc.partition, ordinal, doc.graph)
        self.event_log.append(operation)
        return operation.ref

    def add_output_code(self, entry: CompileEntry, code: str) -> None:
        """Add source code that the backend generated."""
        partition = self.partition()
        columns = {
            "compile_id": entry.ref,
            "partition": partition,
            "ordinal": entry.ordinal("code", partition),
            "digest": Blob(code),
        }
        self.event_log.append(Add("output_codes", columns))

    def _describe(self) -> None:
        """Write the environment of this recording, before the first thing that it records."""
        if self._described:
            return
        self._described = True
        with fail_open("environment"):
            failing_open.check("environment")
            facts = {
                **environment.facts(),
                "mode": self.options.mode,
                "redact": self.options.settings.redact,
            }
            self.event_log.append(AddEnvironment(self.event_log.recording, facts))
            rank = environment.rank()
            if rank != self._rank:  # a program may join its group long after its start
                self.event_log.append(
                    Update("recordings", self.event_log.recording, {"rank": rank})
                )

    # -- end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the recording; its event log gets two seconds to reach the disk."""
        if self.options.lazy and self.event_log.is_empty and not losses.snapshot():
            return
        self._at_boundary(None)
        with fail_open("compiler version"):
            failing_open.check("compiler version")
            self.event_log.append(AddEnvironment(self.event_log.recording, environment.compiler()))
        with fail_open("close"):
            columns = {"status": "done", "ended_ns": time.time_ns()}
            self.event_log.append(Update("recordings", self.event_log.recording, columns))
            self.event_log.close()

    def before_fork(self) -> None:
        """Leave no thread and no lock behind for the child."""
        with fail_open("fork"):
            self.event_log.pause()

    def after_fork(self) -> None:
        """Begin, in the child, a recording of its own."""
        with fail_open("fork"):
            known = self.event_log.file
            self._begin()
            self.event_log.known = known


def _ended(error: BaseException | None, failed: bool) -> str:
    """Return the status of a stage, or of a compile, that has ended."""
    if error is None or failed:
        return "failed" if failed else "ok"
    if isinstance(error, failures.Stopped):
        return "stopped"
    if failures.is_restart(error):
        return "restarted"
    left_to_python = failures.is_control_flow(error) or failures.is_soft(error)
    return "skipped" if left_to_python else "ok"


def _stage_ended(error: BaseException | None, failed: bool) -> str:
    """Return the status of a stage: a soft error fails it, whatever Dynamo does with the frame."""
    return _ended(error, failed or (error is not None and failures.is_soft(error)))


def _structure(doc: GraphDoc) -> str:
    """Return a digest of a graph's computation, without the metadata that passes add."""
    nodes = [(node.name, node.op, node.target, node.args, node.kwargs) for node in doc.nodes]
    inner = {name: _structure(module) for name, module in doc.modules.items()}
    return hashlib.sha256(repr((nodes, inner)).encode()).hexdigest()


def _stage_columns(span: Span) -> dict[str, object]:
    return {
        "compile_id": span.entry.ref,
        "stage": span.stage,
        "partition": span.partition,
        "started_ns": time.time_ns(),
        "status": "open",
    }


def _user_stack() -> object:
    """Return the user's stack at the instruction that Dynamo, or the interpreter of a graph, is
    at.
    """
    guards = sys.modules.get("torch._guards")
    return guards.TracingContext.extract_stack() if guards is not None else None


def _arguments() -> list[str]:
    return list(getattr(sys, "orig_argv", sys.argv))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
