"""Pages: many events of one kind, or many frames of stacks, as one blob.

A compile has thousands of guards, dispatches and ShapeEnv calls.  As rows they would take most of a
store and of the time to write it; as columns of one JSON document they compress some thirty times.
Lives here: the form of such a document.  Who writes it: the recorder.  Who reads it: `queries`.

A document of events has one list for each column of `COLUMNS`, all of one length; `fields` names
the members of the rows of `data`, or is null where each row is an object itself.  A payload is a
digest; a short one is the text itself, in a list.  A document of frames has one list for each of
`FRAMES`.  What a compile has in memory is written as one blob: a JSON array with one such document
on each line, of which `event_pages.line` says which.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import Json, digest_of, parse_json
from torchreel.store.records import Event, EventPage, StackFrame, StackPage

COLUMNS = ("seq", "time_ns", "stage", "name", "cause", "stack", "payload", "data")
FRAMES = ("id", "parent", "file", "line", "name")
SHORT = 1000
"""Characters of a payload that is kept in its page: as a blob it would take more than its text."""
_DIFFERENCES = ("seq", "time_ns")
"""Columns that are kept as the difference from row to row: they grow steadily."""
_TICK = 1000
"""Nanoseconds: an event has its microsecond. What is below is noise, which does not compress."""


class Inline(str):
    """The digest of a short text that is not kept as a blob: it has the text with it."""

    data: bytes

    def __new__(cls, text: str) -> Self:
        """The digest of `text`."""
        data = text.encode("utf-8", "surrogatepass")
        digest = super().__new__(cls, digest_of(data))
        digest.data = data
        return digest


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


def write_pages(documents: Sequence[bytes]) -> bytes:
    """One blob of several documents; the first one is on line 1."""
    return b"[\n" + b",\n".join(documents) + b"\n]"


def _packed(name: str, column: Sequence[Any]) -> Sequence[object] | None:
    if name == "time_ns":
        column = [time - time % _TICK for time in column]
    if name in _DIFFERENCES:
        return [column[0], *(b - a for a, b in itertools.pairwise(column))]
    return None if all(value is None for value in column) else column


def read_page(page: EventPage, data: bytes) -> Iterator[Event]:
    """The events of a page.  Raises DamagedStore when it is none."""
    try:
        # JSON has no bare line breaks: they are where `write_pages` put them
        own = data if page.line is None else data.split(b"\n")[page.line].removesuffix(b",")
        yield from _events(page, parse_json(own))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DamagedStore(f"Page {page.digest:.12} of events can't be read: {error!r}.") from error


def _events(page: EventPage, doc: Any) -> Iterator[Event]:
    fields = doc["fields"]
    columns = [_unpacked(name, doc[name], page.count) for name in COLUMNS]
    for seq, time_ns, stage, name, cause, stack, payload, row in zip(*columns, strict=True):
        value = row if fields is None else dict(zip(fields, row, strict=True))
        yield Event(
            page.recording_id, seq, page.compile_id, stage, page.kind, name, time_ns, value,
            _payload(payload), cause, stack,
        )  # fmt: skip


def _payload(value: Any) -> str | None:
    return Inline(value[0]) if isinstance(value, list) else value


def write_frames(frames: Sequence[tuple[int, int | None, str, int, str]]) -> bytes:
    """The document of frames: (id, parent, file, line, name)."""
    columns = zip(FRAMES, zip(*frames, strict=True), strict=True)
    text = json.dumps(dict(columns), separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def read_frames(page: StackPage, data: bytes) -> Iterator[StackFrame]:
    """The frames of a page.  Raises DamagedStore when it is none."""
    try:
        doc: Any = parse_json(data)
        for id_, parent, file, line, name in zip(*(doc[key] for key in FRAMES), strict=True):
            yield StackFrame(
                page.recording_id, int(id_), None if parent is None else int(parent), str(file),
                int(line), str(name),
            )  # fmt: skip
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DamagedStore(f"Page {page.digest:.12} of frames can't be read: {error!r}.") from error


def _unpacked(name: str, column: Any, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    if name not in _DIFFERENCES:
        return list(column)
    return list(itertools.accumulate(column))
