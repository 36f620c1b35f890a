"""Stores that say something else than they did: one fact of one event, graph or code changed.

What a replay is compared with is changed, not the replay: one replay serves for all of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from torchreel.events.reading import event_types
from torchreel.replay.compare.compiles import EventComparison, Question, Side, compare
from torchreel.replay.compare.lanes import LogLine, lanes
from torchreel.replay.compare.rules import SCOPES, excuses
from torchreel.replay.compare.selection import Point
from torchreel.store import queries, schema
from torchreel.store.blobs.pages import write_pages
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import canonical_json
from torchreel.store.records import Compile, Event
from torchreel.store.writer import Writer

FIELDS: Mapping[str, str] = {
    "shape_env.guard": "expr",
    "shape_env.range": "new",
    "shape_env.set": "changes",
    "shape_env.call": "arguments",
    "guard_added_fast": "guard_added_fast",
    "fake_tensors.dispatch": "result",
    "proxies.node": "target",
    "proxies.symbolic": "result",
    "proxies.traced": "nodes",
    "aot.metadata": "outputs",
    "aot.partition": "saved",
    "inductor.pass": "nodes",
    "inductor.passes": "nodes",
    "inductor.lowering": "result",
    "inductor.schedule": "nodes",
    "inductor.fuse": "nodes",
    "inductor.no_fuse": "reason",
    "inductor.extern": "kernel",
    "inductor.kernel": "source",
    "nondeterminism.vector_isa": "bits",
    "nondeterminism.device": "properties",
}
"""By kind of event, the field that is changed."""

OF_DYNAMO = ("frame.", "guards.", "output_graph.")
"""Beginnings of the kinds of which a replay of a frame alone has events."""

PAYLOADS = ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "inductor_output_code")
"""Kinds whose text is changed, in one line."""


@dataclass(frozen=True)
class Mutation:
    """What is changed: the first (0), middle (1) or last (2) event of a kind, or a row."""

    kind: str
    which: int = 0
    table: str = ""
    field: str = ""
    """The field that is changed, where that is not the one of `FIELDS`."""

    def __str__(self) -> str:
        place = ("first", "middle", "last")[self.which]
        return f"{self.table or place} {self.kind} {self.field}".strip()


ROWS = (
    Mutation("joint", table="graphs"),
    Mutation("forward", table="graphs"),
    Mutation("backward", table="graphs"),
    Mutation("post_grad", table="graphs"),
    Mutation("forward", table="output_codes"),
    Mutation("backward", table="output_codes"),
)


def mutations() -> Iterator[Mutation]:
    """All of them."""
    for kind in FIELDS:
        yield from (Mutation(kind, which) for which in range(3))
    yield from (Mutation(kind) for kind in PAYLOADS)
    yield from ROWS


def mutations_of_dynamo() -> Iterator[Mutation]:
    """Each field of each kind that only a replay of a frame has, in the middle event.

    The first guard has an address as its code, which is compared by where else it stands.
    """
    for kind, fields in event_types().items():
        if kind.startswith(OF_DYNAMO):
            yield from (Mutation(kind, 1, field=name) for name in fields.__struct_encode_fields__)


def original(store: Store) -> Compile:
    """The compile that was replayed: the last one of the program that has a graph."""
    (program, *_) = queries.recordings(store)
    found = [c for c in queries.compiles(store, program.id) if queries.graphs(store, c)]
    return found[-1]


def outcome(store: Store, entry: str = "graph", *, cut: bool = False) -> EventComparison:
    """What comparing the (mutated) recording with the one replay in the store says."""
    recorded = original(store)
    replay = queries.recordings(store)[-1]
    assert replay.replay_of == recorded.id
    found = queries.compiles(store, replay.id)
    (again,) = [
        row
        for row in found
        if (row.compile_id, row.attempt) == (recorded.compile_id, recorded.attempt)
    ]
    return compare(Side(store, recorded), Side(store, again), Question(Point(entry), cut=cut))


def apply(mutation: Mutation, source: Path, copy: Path, entry: str = "graph") -> int | None:
    """Copy a store with that mutation; the position of the changed event, None for a row.

    Raises LookupError when the recording has no such event.
    """
    copy.write_bytes(source.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = original(store)
        if mutation.table:
            _change_row(store, compile, mutation)
            return None
        event = _chosen(lines(store, compile, entry), mutation)
        if mutation.kind in PAYLOADS:
            _change_payload(store, event)
        else:
            change_data(store, event, mutation.field or FIELDS[mutation.kind])
        return event.seq


def _chosen(lines: Sequence[LogLine], mutation: Mutation) -> Event:
    found = [line.event for line in lines if line.event.kind == mutation.kind]
    if len(found) <= (0 if mutation.field else mutation.which):
        raise LookupError(mutation.kind)
    return found[(0, len(found) // 2, -1)[mutation.which]]


def lines(store: Store, compile: Compile, entry: str = "graph") -> list[LogLine]:
    """What is compared of a compile."""
    found = lanes(store, compile, SCOPES[entry], Point(entry), excuses())
    assert found is not None
    return [line for lane in found.values() for line in lane.lines]


def changed(value: Any) -> Any:
    """The same with the first leaf changed; a guard or range stays one."""
    if value == []:
        return ["changed"]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        digit = next((c for c in value if c.isdigit()), "")
        return value.replace(digit, str((int(digit) + 1) % 10), 1) if digit else value + "_"
    if isinstance(value, list) and value:
        place = next((i for i, item in enumerate(value) if _has_leaf(item)), 0)
        return [changed(item) if i == place else item for i, item in enumerate(value)]
    if isinstance(value, dict) and value:
        key = next((key for key, item in value.items() if _has_leaf(item)), next(iter(value)))
        return {k: changed(item) if k == key else item for k, item in value.items()}
    return "changed"


def _has_leaf(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_leaf, value.values()))
    return any(map(_has_leaf, value)) if isinstance(value, list) else value is not None


def change_data(store: Store, event: Event, field: str) -> None:
    """Change one field of an event."""
    assert isinstance(event.data, Mapping)
    data = {**event.data, field: changed(event.data[field])}
    assert data != event.data
    put_data(store, event, data)


def put_data(store: Store, event: Event, data: Mapping[str, Any]) -> None:
    """Give an event other data, in its row or in its page."""
    with store.writer() as writer:
        events = schema.events
        here = (events.c.recording_id == event.recording_id, events.c.seq == event.seq)
        row = writer.connection.execute(select(events.c.id).where(*here)).scalar()
        if row is not None:
            writer.update("events", row, data=data)
            return
        with _page(store, writer, event) as (doc, place):
            row_data: Any = data
            if doc["fields"] is not None:
                row_data = [data[name] for name in doc["fields"]]
            doc["data"][place] = row_data


@contextmanager
def _page(store: Store, writer: Writer, event: Event) -> Iterator[tuple[Any, int]]:
    """The document that an event is in, and its place there; what is done to it is stored."""
    pages = schema.event_pages
    here = select(pages.c.id, pages.c.digest).where(
        pages.c.recording_id == event.recording_id,
        pages.c.first_seq <= event.seq, pages.c.last_seq >= event.seq,
    )  # fmt: skip
    for page in writer.connection.execute(here).all():
        documents = json.loads(store.read_blob(page.digest))
        for doc in documents:
            places = list(itertools.accumulate(doc["seq"]))
            if event.seq in places:
                yield doc, places.index(event.seq)
                new = writer.blob(write_pages([canonical_json(document) for document in documents]))
                writer.update("event_pages", page.id, digest=new)
                return
    raise LookupError(event.seq)


def _change_payload(store: Store, event: Event) -> None:
    """The last line with a number in it says another one."""
    assert event.payload is not None
    document = _with_changed_line(store.read_blob(event.payload).decode())
    with store.writer() as writer:
        digest = writer.blob(document.encode())
        with _page(store, writer, event) as (doc, place):
            doc["payload"][place] = digest


def _with_changed_line(text: str) -> str:
    rows = text.split("\n")
    place = max(i for i, row in enumerate(rows) if any(map(str.isdigit, row)) and "id" not in row)
    rows[place] = changed(rows[place])
    return "\n".join(rows)


def _change_row(store: Store, compile: Compile, mutation: Mutation) -> None:
    if mutation.table == "graphs":
        rows: Any = [g for g in queries.graphs(store, compile) if g.stage == mutation.kind]
    else:
        rows = [c for c in queries.output_codes(store, compile) if c.partition == mutation.kind]
    text = store.read_blob(rows[0].digest).decode()
    if mutation.table == "graphs":
        before, after = '"op":"call_function"', '"op":"call_method"'
        assert before in text
        text = text.replace(before, after, 1)
    else:
        text = _with_changed_line(text)
    with store.writer() as writer:
        writer.update(mutation.table, rows[0].id, digest=writer.blob(text.encode()))


def expected(mutation: Mutation) -> str:
    """What the detail of the verdict has to name, for a row."""
    what = "graph of stage" if mutation.table == "graphs" else "output code of stage codegen"
    return f"{what} {mutation.kind}" if mutation.table == "graphs" else f"{what} ({mutation.kind})"
