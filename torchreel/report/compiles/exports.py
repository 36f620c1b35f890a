"""Lists what an export ran into: missing and wrong fake kernels, values it had to assume, guards.

Lives here: from the records of torch's own trace to `ExportIssue`s, each with the user's line.  Not
here: the exception that ended it, which is a failure as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from torchreel.analysis.event_log import CompileEventLog, is_library
from torchreel.analysis.why.guards import expression_of
from torchreel.events.export import ExportStart
from torchreel.events.proxies import ProxyNode
from torchreel.events.scalars import DataDependentError
from torchreel.events.shape_env import ShapeGuard
from torchreel.events.trace import TraceStrings
from torchreel.report.compiles.graphs import last_line, meta_of, read_graph
from torchreel.report.document import ExportIssue, SourceLine
from torchreel.store import Store, queries
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.records import Event, Failure, StackFrame
from torchreel.store.trace.metadata import STRING

EXPORT = "export"
"""The backend of a compile that is an export."""
MISSING, MISMATCHED = "missing_fake_kernel", "mismatched_fake_kernel"
ASSUMED, GUARD = "propagate_real_tensors_provenance", "guard_added_fast"
_KINDS = (MISSING, MISMATCHED, ASSUMED, GUARD, ShapeGuard.kind, DataDependentError.kind)
_MOST = 500
_MOST_TEXT = 1_000_000
_MOST_LOCALS = 40
_LONGEST = 500


def export_issues(log: CompileEventLog) -> list[ExportIssue]:
    """Return the issues of an export, in order, each once; [] for other compiles."""
    if not log.of(ExportStart.kind):
        return []
    return list({_identity(row): row for row in _Reader(log).issues()}.values())[:_MOST]


def raised_line(store: Store, failure: Failure) -> SourceLine | None:
    """Return the innermost line of the program in the traceback of an export that failed.

    An export runs the program itself, unless Dynamo traces it: then its frames are in there.
    """
    if failure.traceback is None:
        return None
    found = last_line(store.read_blob(failure.traceback)[-_MOST_TEXT:].decode("utf-8", "replace"))
    if found is None or "/site-packages/" in found.file:
        return None
    return SourceLine(found.file, found.line, found.function, found.code)


def _identity(row: ExportIssue) -> tuple[object, ...]:
    return row.kind, row.text, row.line


class _Reader:
    """Reads the issues of one export."""

    def __init__(self, log: CompileEventLog) -> None:
        self.log = log

    def issues(self) -> Iterator[ExportIssue]:
        guarded: Event | None = None
        for event in self.log.of(*_KINDS):
            if event.kind == GUARD:
                guarded = event
            elif event.kind == ShapeGuard.kind:
                yield self._guard(event, guarded)
                guarded = None
            elif isinstance(event.fields, DataDependentError):
                yield self._undecided(event, event.fields)
            else:
                yield self._issue(event)

    def _undecided(self, event: Event, error: DataDependentError) -> ExportIssue:
        text = error.message.partition("\n")[0]
        failure = queries.failure_of(self.log.store, self.log.compile)
        is_its_end = failure is not None and failure.message.startswith(text)
        line = raised_line(self.log.store, failure) if failure and is_its_end else None
        return ExportIssue("data-dependent", text, self._at(event), line)

    def _issue(self, event: Event) -> ExportIssue:
        data = _of(event)
        name, at = _text(data.get("op")), self._at(event)
        if event.kind == MISSING:
            text = f"torch.ops.{name} has no fake kernel: its result was inferred from a real run"
            return ExportIssue("missing fake kernel", text, at, self._node_line(event, name))
        if event.kind == MISMATCHED:
            text = f"the fake kernel of torch.ops.{name} is wrong: {_text(data.get('reason'))}"
            return ExportIssue("wrong fake kernel", text.rstrip(), at, self._node_line(event, name))
        text = f"{_text(data.get('expr'))} depends on data: taken to be {_text(data.get('result'))}"
        return ExportIssue("data-dependent", text, at, self._line(event), _locals(data))

    def _guard(self, event: Event, record: Event | None) -> ExportIssue:
        text = f"{expression_of(event)} became a guard, which the dynamic shapes may not allow"
        line = self._line(record) if record else None
        return ExportIssue("guard", text, self._at(event), line)

    def _at(self, event: Event) -> str:
        return f"#{self.log.compile.place}@{event.seq}"

    def _line(self, event: Event) -> SourceLine | None:
        """Return the user's line in the stacks of a record."""
        data = _of(event)
        for stack in (data.get("user_stack"), data.get("stack")):
            lines = [self._source_line(row) for row in _frames(stack)]
            own = [line for line in lines if line and not _is_library(line)]
            if own:
                return own[-1]
        return None

    def _source_line(self, row: Mapping[str, Json]) -> SourceLine | None:
        number, file = row.get("line"), row.get("filename")
        name = self._files.get(file, "") if isinstance(file, int) else _text(file)
        if not name or not isinstance(number, int):
            return None
        return SourceLine(name, number, _text(row.get("name")), _text(row.get("loc")))

    @cached_property
    def _files(self) -> dict[int, str]:
        """File names by the numbers that stand for them in the trace of the recording."""
        recording = queries.recording(self.log.store, self.log.compile.recording_id)
        found: dict[int, str] = {}
        for event in queries.events(self.log.store, recording, (STRING, TraceStrings.kind)):
            if isinstance(event.fields, TraceStrings):
                pairs: Sequence[Json] = list(event.fields.names)
            else:
                pairs = [event.data.get(STRING)] if isinstance(event.data, Mapping) else []
            for pair in pairs:
                if isinstance(pair, Sequence) and len(pair) == 2 and isinstance(pair[1], int):
                    found[pair[1]] = _text(pair[0])
        return found

    def _node_line(self, event: Event, target: str) -> SourceLine | None:
        """Return the line of the node that called an operator last before an event."""
        nodes = [
            each.name
            for each, node in self.log.typed(ProxyNode)
            if each.seq < event.seq and node.target == target
        ]
        return _named_in(self._traces.get(nodes[-1], "")) if nodes else None

    @cached_property
    def _traces(self) -> dict[str, str]:
        """The stack traces of the nodes of the exported graph, by name."""
        return {
            str(node.get("name")): str(meta_of(node).get("stack_trace") or "")
            for graph in self.log.graphs
            for node in graph_documents.unfold(read_graph(self.log.store.read_blob(graph.digest)))
            if isinstance(node, Mapping)
        }


def _named_in(text: str) -> SourceLine | None:
    """Return the last line of the program that a text with stack traces names."""
    named = last_line(text)
    return SourceLine(named.file, named.line, named.function, named.code) if named else None


def _of(event: Event) -> Mapping[str, Json]:
    """Return the data of a record, without its context; {} if it has none."""
    return as_object(as_object(event.data).get(event.kind))


def _frames(stack: Json) -> list[Mapping[str, Json]]:
    """Return the frames of a stack in a record; nothing where there is none."""
    return [row for row in list_only(stack) if isinstance(row, Mapping)]


def _is_library(line: SourceLine) -> bool:
    return is_library(StackFrame(0, 0, None, line.file, line.line, line.function))


def _locals(data: Mapping[str, Json]) -> list[str]:
    """Return the local variables of the user's frame that torch names, as text."""
    found = as_object(as_object(data.get("frame_locals")).get("locals"))
    pairs = list(found.items())[:_MOST_LOCALS]
    return [f"{_text(name)}: {_text(value)}" for name, value in pairs]


def _text(value: Json) -> str:
    return "" if value is None else str(value)[:_LONGEST]
