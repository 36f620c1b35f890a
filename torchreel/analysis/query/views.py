"""The views that a query may name, with their columns and what fills them.

A recording keeps most of its events in compressed pages, and graphs as documents: SQL alone can't
look into them.  A view is a table that is filled from them when a statement names it.  Not here:
running the statement (`query`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ForwardRef, NamedTuple

from torchreel.analysis.differences import spelled_bound
from torchreel.analysis.durations import compile_ns
from torchreel.analysis.event_log import CompileEventLog, SharedRows
from torchreel.analysis.guard_check.check import guards_of
from torchreel.analysis.query.rows import (
    CacheDecisionsRow,
    CompilesRow,
    FailuresRow,
    GraphBreaksRow,
    GraphNodesRow,
    GuardsRow,
    KernelsRow,
    RecompilesRow,
    StagesRow,
    SymbolsRow,
)
from torchreel.analysis.shapes import Symbol, shape_events, symbol_table
from torchreel.errors import DamagedStore, TorchreelError
from torchreel.events.documentation import meaning, meanings_of_fields
from torchreel.events.frames import CacheMiss, GraphBreak
from torchreel.events.inductor import ExternKernel, Kernel
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.events.shape_env import ShapeEnvCreate
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.documents import graph_documents, spelling
from torchreel.store.documents.jsontypes import Json, json_text, parse_json
from torchreel.store.documents.kinds import as_object
from torchreel.store.records import Compile, Event, Graph, Recording

Value = int | float | str | None
Values = tuple[Value, ...]
_MOST_NESTING = 20


@dataclass(frozen=True)
class QueryView:
    """A table that is filled when a statement names it."""

    name: str
    row: type[NamedTuple]
    """Its columns (`rows`)."""
    rows: Callable[[QueryScope], Iterator[Values]]

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns in SQL, by name."""
        annotations = self.row.__annotations__
        return {name: _TYPES[_plainly(annotations[name])] for name in self.row._fields}


_TYPES = {"int": "INTEGER", "float": "REAL", "str": "TEXT"}


def _plainly(annotation: object) -> str:
    """Return the name of a type, whether or not None may stand there."""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
    return text.removesuffix(" | None")


class QueryScope:
    """The part of a store that the views are filled from: a store, a recording or a compile."""

    def __init__(
        self, store: Store, recording: int | None = None, compile: Compile | None = None
    ) -> None:
        self.store, self.compile, self._recording = store, compile, recording

    @classmethod
    def at(cls, store: Store, address: Address) -> QueryScope:
        """Return the scope of an address.  Raises UsageError if it names nothing of the store."""
        queries.require(store, address)
        names_one = address.compile is not None or address.event is not None
        compile = queries.compile_at(store, address) if names_one else None
        return cls(store, address.recording, compile)

    @cached_property
    def compiles(self) -> list[tuple[Recording, Compile]]:
        """The compiles, with the recording of each."""
        rows = queries.compiles_by_recording(self.store, self.recordings)
        found = [(recording, row) for recording in self.recordings for row in rows[recording.id]]
        return [each for each in found if self.compile is None or each[1].id == self.compile.id]

    @cached_property
    def recordings(self) -> list[Recording]:
        """The recordings."""
        if self._recording is not None:
            return [queries.recording(self.store, self._recording)]
        return queries.recordings(self.store)

    def logs(self) -> Iterator[CompileEventLog]:
        """Yield the events of each compile; the stacks of a recording are read once."""
        shared: dict[int, SharedRows] = {}
        for recording, row in self.compiles:
            if recording.id not in shared:
                read = partial(queries.stack_frames, self.store, recording.id)
                frames = queries.readable(self.store, read, {})
                shared[recording.id] = SharedRows(self.store, recording.id, frames)
            yield CompileEventLog(self.store, row, shared[recording.id])


# -- what is in tables ----------------------------------------------------------------------------


def _compiles(scope: QueryScope) -> Iterator[Values]:
    rows = [row for _, row in scope.compiles]
    graphs = queries.first_graphs_of(scope.store, rows)
    stages = queries.stages_by_compile(scope.store, rows)
    for recording, row in scope.compiles:
        first = graphs.get(row.id)
        yield (
            row.place, recording.id, recording.kind, recording.rank, row.compile_id, row.attempt,
            row.frame_name, row.frame_file, row.frame_line, row.backend, row.status,
            row.started_ns, _in_seconds(compile_ns(row, stages.get(row.id, ()))),
            first.call_nodes if first is not None else None,
        )  # fmt: skip


def _failures(scope: QueryScope) -> Iterator[Values]:
    compiles = {row.id: row for _, row in scope.compiles}
    numbers = [recording.id for recording in scope.recordings]
    versions = queries.environment_values(scope.store, "torch", numbers)
    failures = queries.failures_by_recording(scope.store, numbers)
    for recording in scope.recordings:
        torch = versions.get(recording.id)
        for failure in failures[recording.id]:
            row = compiles.get(failure.compile_id) if failure.compile_id is not None else None
            if row is None and scope.compile is not None:
                continue
            signature = failure.signature
            yield (
                row.place if row is not None else None, recording.id, recording.rank, torch,
                failure.stage, failure.partition, failure.failure_class,
                failure.exception_type or signature.signal, failure.message,
                signature.frames[0] if signature.frames else None, failure.signature_digest,
                failure.time_ns,
            )  # fmt: skip


def _stages(scope: QueryScope) -> Iterator[Values]:
    stages = queries.stages_by_compile(scope.store, [row for _, row in scope.compiles])
    for _, row in scope.compiles:
        for stage in stages.get(row.id, ()):
            ended = stage.ended_ns
            spent = _in_seconds(None if ended is None else ended - stage.started_ns)
            yield row.place, stage.stage, stage.partition, stage.status, stage.started_ns, spent


def _in_seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


# -- graphs ---------------------------------------------------------------------------------------


def _graph_nodes(scope: QueryScope) -> Iterator[Values]:
    for _, row in scope.compiles:
        for graph in queries.graphs(scope.store, row):
            document = queries.readable(scope.store, partial(_document, scope.store, graph), {})
            for number, values in enumerate(_nodes(document, "")):
                yield row.place, graph.stage, graph.partition, graph.ordinal, number, *values


def _document(store: Store, graph: Graph) -> Mapping[str, Json]:
    try:
        found = parse_json(store.read_blob(graph.digest))
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored graph is not JSON: {error}.") from error
    return as_object(found)


def _nodes(document: Mapping[str, Json], path: str) -> Iterator[Values]:
    """Yield the nodes of a graph, and after them those of the graphs in it."""
    for node in map(as_object, graph_documents.unfold(document)):
        meta = as_object(node.get("meta"))
        value = as_object(meta.get("val", meta.get("example_value")))
        yield (
            path, _text(node.get("name")), _text(node.get("op")), _text(node.get("target")),
            spelling.node(node, document), _text(value.get("dtype")), _sizes(value.get("size")),
            _text(value.get("device")), _text(meta.get("stack_trace")),
        )  # fmt: skip
    for name, inner in as_object(document.get("modules")).items():
        if path.count(".") < _MOST_NESTING:
            yield from _nodes(as_object(inner), f"{path}.{name}".lstrip("."))


def _sizes(sizes: Json) -> str | None:
    return (
        json_text([s if isinstance(s, int) else spelling.size(s) for s in sizes])
        if (isinstance(sizes, list))
        else None
    )


# -- events ---------------------------------------------------------------------------------------


def _guards(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        for event, guard in guards_of(log):
            yield (
                log.compile.place, event.seq, event.name, guard.expression,
                "\n".join(guard.code), *_line(log, event),
            )  # fmt: skip


def _symbols(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        made = {event.seq: event for event in log.of("shape_env.", "unbacked.")}
        for row in queries.readable(log.store, partial(_symbols_of, log), ()):
            low, high = row.range or (None, None)
            yield (
                log.compile.place, row.created, row.name, int(row.backed), _plain(row.hint),
                _end(low), _end(high), _plain(row.replacement), row.renamed,
                json_text(list(row.sources)), *_line(log, made.get(row.created)),
            )  # fmt: skip


def _symbols_of(log: CompileEventLog) -> Collection[Symbol]:
    if not log.of(ShapeEnvCreate.kind):
        return ()
    try:
        return symbol_table(shape_events(log)).symbols.values()
    except TorchreelError as error:
        raise DamagedStore(f"The symbols of {log.address} can't be read: {error}") from error


def _plain(value: Json) -> str | None:
    return None if value is None else spelling.size(value)


def _end(bound: Json) -> str | None:
    return None if bound is None else spelled_bound(bound)


def _recompiles(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        for event, miss in log.typed(CacheMiss):
            yield (
                log.compile.place, event.seq, miss.reason, json_text(list(miss.guards)),
                *_line(log, event),
            )  # fmt: skip


def _graph_breaks(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        for event, found in log.typed(GraphBreak):
            yield (
                log.compile.place, event.seq, found.type, found.outcome, found.reason,
                *_line(log, event),
            )  # fmt: skip


def _cache_decisions(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        for event, found in log.typed(CacheOutcome):
            yield (
                log.compile.place, event.seq, event.name, found.outcome, found.key, found.reason,
                event.stage,
            )  # fmt: skip


def _kernels(scope: QueryScope) -> Iterator[Values]:
    for log in scope.logs():
        for event in log.of(Kernel.kind, ExternKernel.kind):
            place = (log.compile.place, event.seq)
            match event.fields:
                case Kernel(backend=backend, origins=origins, source=source):
                    yield (*place, event.name, backend, json_text(list(origins)), source)
                case ExternKernel(kernel=name, origins=origins):
                    yield (*place, name, "extern", json_text(list(origins)), None)


def _line(log: CompileEventLog, event: Event | None) -> tuple[str | None, int | None]:
    line = log.line(event) if event is not None else None
    return (None, None) if line is None else (line.file, line.line)


def _text(value: Json) -> str | None:
    """Return a value as it stands in a column: text as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json_text(value)


# -- all of them ----------------------------------------------------------------------------------


VIEWS: Mapping[str, QueryView] = {
    view.name: view
    for view in (
        QueryView("compiles", CompilesRow, _compiles),
        QueryView("failures", FailuresRow, _failures),
        QueryView("stages", StagesRow, _stages),
        QueryView("graph_nodes", GraphNodesRow, _graph_nodes),
        QueryView("guards", GuardsRow, _guards),
        QueryView("symbols", SymbolsRow, _symbols),
        QueryView("recompiles", RecompilesRow, _recompiles),
        QueryView("graph_breaks", GraphBreaksRow, _graph_breaks),
        QueryView("cache_decisions", CacheDecisionsRow, _cache_decisions),
        QueryView("kernels", KernelsRow, _kernels),
    )
}
"""By name."""


def page() -> str:
    """Return the columns of all views, as the page of the documentation has them."""
    return "\n\n".join(map(_section, VIEWS.values())) + "\n"


def _section(view: QueryView) -> str:
    meanings = meanings_of_fields(view.row)
    rows = [f"| `{name}` | {type_} | {meanings[name]} |" for name, type_ in view.columns.items()]
    head = f"### {view.name}\n\n{meaning(view.row)}\n\n| column | type | is |\n|---|---|---|\n"
    return head + "\n".join(rows)


if __name__ == "__main__":
    print(page(), end="")
