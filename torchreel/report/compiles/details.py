"""Reads the details of one compile: timeline, graphs, code, guards, symbols, breaks, config.

Lives here: the parts of `CompileDetails` that are read from tables, and what happens where one
can't be read: it is left out, with a note, and the others are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TypeVar

from torchreel.analysis.event_log import CompileEventLog, SharedRows
from torchreel.analysis.schedules import disagreements, schedules
from torchreel.analysis.shapes import KINDS as SHAPE_KINDS
from torchreel.analysis.why.frames import why_graph_break, why_recompile
from torchreel.analysis.why.specialised import why_specialised
from torchreel.analysis.why.steps import Story
from torchreel.errors import DamagedStore, TorchreelError
from torchreel.events.frames import FrameStart
from torchreel.events.guards import Guard
from torchreel.events.inductor import ExternKernel, Kernel
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.events.output_graph import SubgraphCompile
from torchreel.report.compiles.exports import export_issues
from torchreel.report.compiles.graphs import content_of, read_graph, sequence_numbers
from torchreel.report.compiles.kernels import kernel_calls
from torchreel.report.compiles.rows import KINDS
from torchreel.report.compiles.stories import guards_of, line_of, moments_of, stories_of, symbols_of
from torchreel.report.compiles.trace_records import records_of
from torchreel.report.document import (
    CacheAnswer,
    CodeAt,
    CodeContent,
    ComparedKey,
    CompileDetails,
    ConfigRow,
    GraphAt,
    GraphSchedule,
    KernelEstimate,
    RecordAt,
    SourceLine,
    StageSpan,
    WhyStory,
)
from torchreel.report.packing import Packer
from torchreel.store import Store, queries
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Event, Graph

_Read = TypeVar("_Read")
_MOST_TEXT = 2_000_000
_MOST_STORIES = 40
_READ_AT_ONCE = (
    *KINDS, Guard.kind, Kernel.kind, ExternKernel.kind, SubgraphCompile.kind, *SHAPE_KINDS,
)  # fmt: skip
"""Kinds and families that the parts ask for: read apart, each would take as long as all."""


class CompileReader:
    """Reads the parts of one compile; what can't be read is a note."""

    def __init__(
        self,
        store: Store,
        compile: Compile,
        packer: Packer,
        shared: SharedRows,
        keys: Callable[[CompileEventLog], list[ComparedKey]],
    ) -> None:
        self.store, self.compile, self.packer = store, compile, packer
        self._keys = keys
        self.event_log = CompileEventLog(store, compile, shared)
        self.notes: list[str] = []

    def details(self, following: str) -> CompileDetails:
        """Return all of it; `following` is the command to run next."""
        self._part(lambda: bool(self.event_log.of(*_READ_AT_ONCE)), False)
        failure = self._part(lambda: queries.failure_of(self.store, self.compile), None)
        return CompileDetails(
            stages=self._part(self._stages, []),
            graphs=self._part(self._graphs, []),
            code=self._part(self._code, []),
            next=following,
            source=self._text(self.compile.frame_source),
            caller=self._part(self._caller, None),
            message=failure.message if failure else "",
            traceback=self._text(failure.traceback if failure else None),
            recompiles=self._stories(why_recompile),
            breaks=self._stories(why_graph_break),
            specialised=self._stories(_that_had_a_symbol),
            guards=self._part(lambda: list(guards_of(self.event_log)), []),
            symbols=self._part(lambda: list(symbols_of(self.event_log)), []),
            config=self._part(self._config, []),
            caches=self._part(self._caches, []),
            events=self._part(lambda: queries.event_counts(self.store, self.compile), {}),
            notes=self.notes,
            moments=self._part(lambda: list(moments_of(self.event_log)), []),
            keys=self._part(lambda: self._keys(self.event_log), []),
            records=self._part(self._records, []),
            schedules=self._part(self._schedules, []),
            exports=self._part(lambda: export_issues(self.event_log), []),
        )

    def _part(self, read: Callable[[], _Read], otherwise: _Read) -> _Read:
        try:
            return read()
        except DamagedStore as error:
            self.store.skip(error)
            self._note(error)
        except TorchreelError as error:
            self._note(error)
        return otherwise

    def _note(self, error: TorchreelError) -> None:
        if str(error) not in self.notes:
            self.notes.append(str(error))

    def _text(self, digest: str | None) -> str:
        if digest is None:
            return ""
        data = self._part(lambda: self.store.read_blob(digest), b"")
        return data[:_MOST_TEXT].decode("utf-8", "replace")

    def _stories(self, why: Callable[[CompileEventLog], list[Story]]) -> list[WhyStory]:
        return self._part(
            lambda: stories_of(self.event_log, why(self.event_log)[:_MOST_STORIES]), []
        )

    def _stages(self) -> list[StageSpan]:
        began = self.compile.started_ns
        return [
            StageSpan(
                row.stage, row.status, (row.started_ns - began) / 1e6, row.partition,
                None if row.ended_ns is None else (row.ended_ns - row.started_ns) / 1e6,
            )
            for row in self.event_log.stages
        ]  # fmt: skip

    def _graphs(self) -> list[GraphAt]:
        read = [(row, self._part(partial(self._graph, row), None)) for row in self.event_log.graphs]
        known = [(row, document) for row, document in read if document is not None]
        forward = sequence_numbers(document for _, document in known)
        return [
            GraphAt(
                row.stage, row.partition, row.nodes, row.call_nodes,
                self.packer.add(content_of(document, forward)),
            )
            for row, document in known
        ]  # fmt: skip

    def _graph(self, row: Graph) -> Mapping[str, Json]:
        return read_graph(self.store.read_blob(row.digest))

    def _code(self) -> list[CodeAt]:
        return list(self._codes())

    def _codes(self) -> Iterator[CodeAt]:
        for row in queries.output_codes(self.store, self.compile):
            text = self._text(row.digest)
            kernels = kernel_calls(self.event_log, row.partition, text)
            yield CodeAt(row.partition, self.packer.add(CodeContent(text)), kernels)

    def _caller(self) -> SourceLine | None:
        """Return the user's line that called the function."""
        for event in self.event_log.of(FrameStart.kind):
            line = self.event_log.line(event)
            return line_of(line) if line else None
        return None

    def _records(self) -> list[RecordAt]:
        return list(records_of(self._events, self.packer, self._text))

    @cached_property
    def _events(self) -> list[Event]:
        """All events of the compile, for the parts that look for records of torch's trace."""
        return queries.events(self.store, self.compile)

    def _schedules(self) -> list[GraphSchedule]:
        codes = {
            row.partition: row.digest for row in queries.output_codes(self.store, self.compile)
        }
        return [
            GraphSchedule(
                row.partition, f"#{self.compile.place}@{row.seq}", list(row.collectives or ()),
                disagreements(row.collectives, self._text(codes[row.partition]))
                if row.collectives and row.partition in codes else [],
                [KernelEstimate(each.name, each.kind, each.ns) for each in row.estimates or ()],
            )
            for row in schedules(self.store, self.event_log.stages, self._events)
        ]  # fmt: skip

    def _config(self) -> list[ConfigRow]:
        return [
            ConfigRow(f"{entry.module}.{entry.key}", spelling.argument(entry.value, str))
            for entry in queries.config(self.store, self.compile.config_id)
        ]

    def _caches(self) -> list[CacheAnswer]:
        return [
            CacheAnswer(event.name, found.outcome, found.key or "", found.reason or "")
            for event, found in self.event_log.typed(CacheOutcome)
        ]


def _that_had_a_symbol(log: CompileEventLog) -> list[Story]:
    """Return the stories of what became static: first dynamic sizes, then numbers of the model."""
    found = why_specialised(log)
    return sorted(found, key=lambda story: "symbol" not in story.facts)
