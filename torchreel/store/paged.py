"""Pages, read back into events and frames.  Their form: `pages`.  Called by `queries`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import parse_json
from torchreel.store.pages import COLUMNS, DIFFERENCES, FRAMES, Inline, documents_of
from torchreel.store.records import Event, EventPages, StackFrame, StackPage


def kinds_of(pages: EventPages) -> list[tuple[str, int] | None]:
    """The kind and the number of the events in each page; None for a page that was deleted.

    Raises DamagedStore for what is none.
    """
    found: Any = pages.kinds
    try:
        return [None if each is None else _kind(*each) for each in found]
    except (ValueError, TypeError) as error:
        raise DamagedStore(
            f"Row {pages.id} of event_pages has {found!r:.60} as kinds of events."
        ) from error


def _kind(kind: object, count: object) -> tuple[str, int]:
    if not isinstance(kind, str) or not isinstance(count, int) or not 0 < count < 1 << 63:
        raise ValueError(kind)
    return kind, count


def read_pages(
    pages: EventPages, data: bytes, wanted: Collection[str] | None = None
) -> Iterator[Event]:
    """The events of the pages in a blob, or of those kinds.  DamagedStore for what is none."""
    kinds = kinds_of(pages)
    try:
        documents = documents_of(data)
        for place, found in enumerate(kinds):
            if found is not None and (wanted is None or found[0] in wanted):
                yield from _events(pages, *found, parse_json(documents[place]))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DamagedStore(
            f"Pages {pages.digest:.12} of events can't be read: {error!r}."
        ) from error


def _events(pages: EventPages, kind: str, count: int, doc: Any) -> Iterator[Event]:
    fields = doc["fields"]
    if count != len(doc["seq"]):
        raise ValueError(f"a page of {kind!r:.60} has {len(doc['seq'])} events, and not {count}")
    columns = [_unpacked(name, doc[name], count) for name in COLUMNS]
    for seq, time_ns, stage, name, cause, stack, payload, row in zip(*columns, strict=True):
        value = row if fields is None else dict(zip(fields, row, strict=True))
        yield Event(
            pages.recording_id, seq, pages.compile_id, stage, kind, name, time_ns, value,
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
