"""What goes on the tape: rows to come, as plain data, resolved when they are written.

Lives here: the operations and the values that stand for something known only later (an id, the
digest of a blob).  Not here: when they are written (`tape`), what they mean (`probes`, `spans`).
Several processes write into one store, so ids are only known after the insertion: a `Ref` holds one
from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from torchreel.store.jsontypes import Json

if TYPE_CHECKING:
    from torchreel.store.portable.graphs import GraphDoc
    from torchreel.store.writer import Writer


class Orphan(ValueError):
    """A row refers to another one that could not be written."""


class Ref:
    """A row that is written later; `id` is None until then."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id: int | None = None


@dataclass(frozen=True)
class Blob:
    """Stands for the digest of bytes that are made and stored by the writer thread."""

    data: bytes | str | Callable[[], bytes]

    def resolve(self, writer: Writer) -> str:
        data = self.data() if callable(self.data) else self.data
        return writer.blob(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)


@dataclass(frozen=True)
class Config:
    """Stands for the id of a set of config entries ({module, key, value, portable} objects)."""

    entries: Sequence[Json]

    def resolve(self, writer: Writer) -> int:
        from torchreel.store.writer import ConfigEntry

        return writer.config(
            [
                ConfigEntry(str(e["module"]), str(e["key"]), e["value"], bool(e["portable"]))
                for e in self.entries
                if isinstance(e, Mapping)
            ]
        )


class Operation(Protocol):
    """One change of the store."""

    def write(self, writer: Writer) -> None:
        """Carry it out in the transaction of `writer`."""


def _resolved(columns: Mapping[str, object], writer: Writer) -> dict[str, object]:
    return {name: _resolve(value, writer) for name, value in columns.items()}


def _resolve(value: object, writer: Writer) -> object:
    if isinstance(value, (Blob, Config)):
        return value.resolve(writer)
    if isinstance(value, Ref):
        return _id(value)
    return plain(value) if isinstance(value, (dict, list, tuple)) else value


def _id(ref: Ref) -> int:
    if ref.id is None:
        raise Orphan("the row that this one refers to could not be written")
    return ref.id


@dataclass(frozen=True)
class Add:
    """Insert a row; `ref` gets its id."""

    table: str
    columns: Mapping[str, object]
    ref: Ref = field(default_factory=Ref)

    def write(self, writer: Writer) -> None:
        self.ref.id = writer.add(self.table, **_resolved(self.columns, writer))


@dataclass(frozen=True)
class Update:
    """Change columns of a row."""

    table: str
    ref: Ref
    columns: Mapping[str, object]

    def write(self, writer: Writer) -> None:
        writer.update(self.table, _id(self.ref), **_resolved(self.columns, writer))


@dataclass(frozen=True)
class AddGraph:
    """Insert a graph, its size and what it calls, all taken from its portable form."""

    compile: Ref
    stage: str
    partition: str
    ordinal: int
    doc: GraphDoc
    ref: Ref = field(default_factory=Ref)

    def write(self, writer: Writer) -> None:
        counts = self.doc.counts()
        self.ref.id = writer.add(
            "graphs",
            compile_id=_id(self.compile),
            stage=self.stage,
            partition=self.partition,
            ordinal=self.ordinal,
            nodes=counts.nodes,
            call_nodes=counts.call_nodes,
            inputs=counts.inputs,
            outputs=counts.outputs,
            digest=writer.blob(self.doc.to_bytes()),
        )
        rows: list[dict[str, object]] = [
            {"graph_id": self.ref.id, "depth": depth, "target": target, "count": count}
            for depth, target, count in self.doc.targets()
        ]
        writer.add_many("graph_targets", rows)


@dataclass(frozen=True)
class AddEnvironment:
    """Insert or complete what is known of the machine and the program's variables."""

    recording: Ref
    values: Mapping[str, str]

    def write(self, writer: Writer) -> None:
        for key, value in self.values.items():
            writer.put("environment", recording_id=_id(self.recording), key=key, value=value)


def plain(value: object) -> Json:
    """`value` as JSON: what has no JSON form becomes text, so that nothing is refused."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    return repr(value)
