"""Pages: many events of one kind, as one blob.

A compile has thousands of guards, dispatches and ShapeEnv calls.  As rows they would take most of a
store and of the time to write it; as columns of one JSON document they compress some thirty times.
Lives here: the form of such a document.  Who writes it: the recorder.  Who reads it: `queries`.

A document has one list for each column of `COLUMNS`, all of one length; `fields` names the members
of the rows of `data`, or is null where each row is an object itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import Json, parse_json
from torchreel.store.records import Event, EventPage

COLUMNS = ("seq", "time_ns", "stage", "name", "cause", "stack", "payload", "data")
_DIFFERENCES = ("seq", "time_ns")
"""Columns that are kept as the difference from row to row: they grow steadily."""


def write_page(
    columns: Mapping[str, Sequence[object]],
    fields: Sequence[str] | None,
    default: Callable[[object], Json],
) -> bytes:
    """The document; `default` spells what is no JSON value (as in `json.dumps`)."""
    packed: dict[str, object] = {name: _packed(name, columns[name]) for name in COLUMNS}
    text = json.dumps(
        {"fields": fields, **packed},
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=default,
    )
    return text.encode("utf-8", "surrogatepass")


def _packed(name: str, column: Sequence[object]) -> Sequence[object] | None:
    if name in _DIFFERENCES:
        return [column[0], *(b - a for a, b in itertools.pairwise(column))]  # type: ignore[operator]
    return None if all(value is None for value in column) else column


def read_page(page: EventPage, data: bytes) -> Iterator[Event]:
    """The events of a page.  Raises DamagedStore when it is none."""
    try:
        yield from _events(page, parse_json(data))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DamagedStore(f"Page {page.digest:.12} of events can't be read: {error!r}.") from error


def _events(page: EventPage, doc: Any) -> Iterator[Event]:
    fields = doc["fields"]
    columns = [_unpacked(name, doc[name], page.count) for name in COLUMNS]
    for seq, time_ns, stage, name, cause, stack, payload, row in zip(*columns, strict=True):
        value = row if fields is None else dict(zip(fields, row, strict=True))
        yield Event(
            page.recording_id, seq, page.compile_id, stage, page.kind, name, time_ns, value,
            payload, cause, stack,
        )  # fmt: skip


def _unpacked(name: str, column: Any, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    if name not in _DIFFERENCES:
        return list(column)
    return list(itertools.accumulate(column))
