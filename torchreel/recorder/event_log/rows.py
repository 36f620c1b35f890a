"""The rows of the event log, as plain data that is resolved when it is written.

Lives here: the operations and the values that stand for something known only later (an id, the
digest of a blob).  Not here: when they are written (`event_log.log`), what they mean (`probes`,
`spans`). Several processes write into one store, so ids are only known after the insertion: a `Ref`
holds one from then on.

Here and in the rest of the recorder, values are named tuples: to define a frozen dataclass takes a
millisecond, which every recorded program would pay thirty times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchreel.store.blobs.pages import SHORT, write_frames, write_page, write_pages
from torchreel.store.documents.jsontypes import Json

if TYPE_CHECKING:
    from torchreel.formats.graphs.document import GraphDoc
    from torchreel.store.files.direct import DirectWriter
    from torchreel.store.writer import Writer

    AnyWriter = DirectWriter | Writer


class Orphan(ValueError):
    """A row refers to another one that could not be written."""


class Ref:
    """A row that is written later; `id` is None until then."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id: int | None = None


class Blob(NamedTuple):
    """Stands for the digest of bytes that are made and stored by the writer thread."""

    data: bytes | str | Callable[[], bytes]

    def resolve(self, writer: AnyWriter) -> str:
        data = self.data() if callable(self.data) else self.data
        return writer.blob(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)


class Config(NamedTuple):
    """Stands for the id of a set of config entries ({module, key, value, portable} objects)."""

    entries: Sequence[Json]

    def resolve(self, writer: AnyWriter) -> int:
        from torchreel.store.configs import ConfigEntry

        return writer.config(
            [
                ConfigEntry(str(e["module"]), str(e["key"]), e["value"], bool(e["portable"]))
                for e in self.entries
                if isinstance(e, Mapping)
            ]
        )


class Operation(Protocol):
    """One change of the store."""

    def write(self, writer: AnyWriter) -> None:
        """Carry it out in the transaction of `writer`."""


def _resolved(columns: Mapping[str, object], writer: AnyWriter) -> dict[str, object]:
    return {name: _resolve(value, writer) for name, value in columns.items()}


def _resolve(value: object, writer: AnyWriter) -> object:
    if isinstance(value, (Blob, Config)):
        return value.resolve(writer)
    if isinstance(value, Ref):
        return _id(value)
    return plain(value) if isinstance(value, (dict, list, tuple)) else value


def _id(ref: Ref) -> int:
    if ref.id is None:
        raise Orphan("the row that this one refers to could not be written")
    return ref.id


class Add:
    """Insert a row; `ref` gets its id."""

    __slots__ = ("columns", "ref", "table")

    def __init__(self, table: str, columns: Mapping[str, object], ref: Ref | None = None) -> None:
        self.table, self.columns, self.ref = table, columns, ref or Ref()

    def write(self, writer: AnyWriter) -> None:
        self.ref.id = writer.add(self.table, **_resolved(self.columns, writer))


class Update(NamedTuple):
    """Change columns of a row."""

    table: str
    ref: Ref
    columns: Mapping[str, object]

    def write(self, writer: AnyWriter) -> None:
        writer.update(self.table, _id(self.ref), **_resolved(self.columns, writer))


class AddGraph:
    """Insert a graph, its size and its call targets, all taken from its portable form.

    The form is spelled at once: its nodes are thousands of objects, which Python's collector would
    have to visit until they are written.
    """

    __slots__ = ("columns", "compile", "data", "ref", "targets")

    def __init__(
        self, compile: Ref, stage: str, partition: str, ordinal: int, doc: GraphDoc
    ) -> None:
        counts = doc.counts()
        self.compile, self.ref = compile, Ref()
        self.columns = {
            "compile_id": compile,
            "stage": stage,
            "partition": partition,
            "ordinal": ordinal,
            "nodes": counts.nodes,
            "call_nodes": counts.call_nodes,
            "inputs": counts.inputs,
            "outputs": counts.outputs,
        }
        self.targets = tuple(doc.targets())
        self.data = doc.to_bytes()

    def write(self, writer: AnyWriter) -> None:
        columns = _resolved(self.columns, writer)
        self.ref.id = writer.add("graphs", **columns, digest=writer.blob(self.data))
        names = ("graph_id", "depth", "target", "count")
        writer.add_many(
            "graph_targets",
            [dict(zip(names, (self.ref.id, *found), strict=True)) for found in self.targets],
        )


class NewEvent(NamedTuple):
    """One event, as it was noted: `values` are immutable, and spelled when they are written.

    While it waits it is a plain tuple, the values at its end.  Python's collector forgets a tuple
    of text and numbers when it has looked at it once, one with such tuples in it the second time;
    what it sees a third time brings a full collection of the whole process (0.25 s) nearer.  Hence
    the compile by its number, and the payload as its text.
    """

    kind: str
    compile: int | None
    """`CompileEntry.number`."""
    pages: bool
    exact: bool
    fields: tuple[str, ...] | None
    seq: int
    time_ns: int
    stage: str | None
    name: str
    payload: str | None
    cause: int | None
    stack: int | None
    values: tuple[Any, ...]
    """One for each of the fields; a record of torch's trace has no fields, and is the one value."""

    @classmethod
    def of(cls, row: Row) -> NewEvent:
        """Return the event of a row that waited to be written."""
        return cls._make((*row[:_HEAD], row[_HEAD:]))

    def data(self) -> object:
        """Return the values by name."""
        if self.fields is None:
            return self.values[0]
        return dict(zip(self.fields, self.values, strict=True))


Row = tuple[Any, ...]
"""An `Event` that waits: its fields, but the values in the place of their tuple."""
_HEAD = len(NewEvent._fields) - 1


class AddEvents(NamedTuple):
    """Insert events of one compile as rows."""

    recording: Ref
    compile: Ref | None
    events: Sequence[Row]

    def write(self, writer: AnyWriter) -> None:
        rows = [self._row(NewEvent.of(event), writer) for event in self.events]
        writer.add_many("events", rows)

    def _row(self, event: NewEvent, writer: AnyWriter) -> dict[str, object]:
        return {
            "recording_id": _id(self.recording),
            "seq": event.seq,
            "compile_id": None if self.compile is None else _id(self.compile),
            "stage": event.stage,
            "kind": event.kind,
            "name": event.name,
            "time_ns": event.time_ns,
            "data": plain(event.data()),
            "payload": None if event.payload is None else Blob(event.payload).resolve(writer),
            "cause": event.cause,
            "stack": event.stack,
        }


class AddPages(NamedTuple):
    """Insert events of one compile as pages, one for each kind, all in one blob."""

    recording: Ref
    compile: Ref | None
    pages: Sequence[Sequence[Row]]

    def singly(self) -> list[Operation]:
        """Return each page in a blob of its own, so that one that can't be written costs only
        itself.
        """
        return [AddPages(self.recording, self.compile, [page]) for page in self.pages]

    def write(self, writer: AnyWriter) -> None:
        digest = writer.blob(write_pages([_document(page, writer) for page in self.pages]))
        writer.add(
            "event_pages",
            recording_id=_id(self.recording),
            compile_id=None if self.compile is None else _id(self.compile),
            first_seq=min(NewEvent.of(page[0]).seq for page in self.pages),
            last_seq=max(NewEvent.of(page[-1]).seq for page in self.pages),
            kinds=[[NewEvent.of(page[0]).kind, len(page)] for page in self.pages],
            digest=digest,
        )


def _document(events: Sequence[Row], writer: AnyWriter) -> bytes:
    heads = zip(*(event[:_HEAD] for event in events), strict=True)
    columns: dict[str, Sequence[Any]] = dict(zip(NewEvent._fields, heads, strict=False))
    fields, exact = columns["fields"][0], columns["exact"][0]
    columns["payload"] = [
        None if payload is None else _short(payload, writer) for payload in columns["payload"]
    ]
    data = [event[_HEAD] if fields is None else event[_HEAD:] for event in events]
    try:
        return write_page({**columns, "data": data}, fields, spell, exact=exact)
    except (TypeError, ValueError, RecursionError):
        # Keys that are no text, values that hold themselves: spelled the slow way.
        data = [plain(value) for value in data]
        return write_page({**columns, "data": data}, fields, spell)


def _short(payload: str, writer: AnyWriter) -> str | list[str]:
    """Return a payload as a page holds it: the text in a list if short, else a blob's digest."""
    return [payload] if len(payload) < SHORT else Blob(payload).resolve(writer)


class AddFrames(NamedTuple):
    """Insert a page of frames of stacks: (id, parent, file, line, name)."""

    recording: Ref
    frames: Sequence[tuple[int, int | None, str, int, str]]

    def write(self, writer: AnyWriter) -> None:
        digest = writer.blob(write_frames(self.frames))
        writer.add("stack_pages", recording_id=_id(self.recording), digest=digest)


class AddEnvironment(NamedTuple):
    """Insert or complete the facts about the machine and the program's variables."""

    recording: Ref
    values: Mapping[str, str]

    def write(self, writer: AnyWriter) -> None:
        for key, value in self.values.items():
            writer.put("environment", recording_id=_id(self.recording), key=key, value=value)


class LearnFrom(NamedTuple):
    """Look through a source file for secrets, before rows are written that may have them."""

    file: str

    def write(self, writer: AnyWriter) -> None:
        learn = getattr(writer, "learn_from", None)
        if learn is not None:
            learn(self.file)


def spell(value: object) -> Json:
    """Return a value that is no JSON, as JSON: one of torch's, or a collection, or its text."""
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple):  # of a class of its own
        return list(value)
    from torchreel.formats.event_values import spell_torch

    return spell_torch(value)


def plain(value: object) -> Json:
    """Return `value` as JSON: values without a JSON form become text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return spell(value)
