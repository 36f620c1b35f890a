"""Pages, read back into events and frames.  Their form: `pages`.  Called by `queries`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import parse_json
from torchreel.store.pages import COLUMNS, DIFFERENCES, FRAMES, Inline
from torchreel.store.records import Event, EventPage, StackFrame, StackPage


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
    if page.count != len(doc["seq"]):
        raise ValueError(f"it has {len(doc['seq'])} events, and not {page.count}")
    columns = [_unpacked(name, doc[name], page.count) for name in COLUMNS]
    for seq, time_ns, stage, name, cause, stack, payload, row in zip(*columns, strict=True):
        value = row if fields is None else dict(zip(fields, row, strict=True))
        yield Event(
            page.recording_id, seq, page.compile_id, stage, page.kind, name, time_ns, value,
            _payload(payload), cause, stack,
        )  # fmt: skip


def _payload(value: Any) -> str | None:
    return Inline(value[0]) if isinstance(value, list) else value


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
    if name not in DIFFERENCES:
        return list(column)
    return list(itertools.accumulate(column))
