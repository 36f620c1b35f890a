"""Pages, read back into events and frames.  Their form: `pages`.  Called by `queries`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from torchreel.errors import DamagedStore
from torchreel.store import limits
from torchreel.store.blobs.pages import COLUMNS, DIFFERENCES, Inline, documents_of
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.reading.typed import convert
from torchreel.store.records import Event, EventPages, StackFrame, StackPage


class Room:
    """The bytes that one query may still read out of pages, which many rows may name."""

    def __init__(self, target: str, file_bytes: int) -> None:
        self._target, self._left = target, limits.pages_memory(file_bytes)

    def take(self, data: bytes) -> bytes:
        """Return the data; DamagedStore when it is more than the pages of such a file hold."""
        self._left -= limits.json_memory(data)
        if self._left < 0:
            raise DamagedStore(
                f"{self._target} is damaged: its pages hold more than a file of its size does."
            )
        return data


class _Events(msgspec.Struct):
    """A document of events (`pages`): a list for each column, or null where all are null."""

    fields: list[str] | None
    seq: list[int]
    time_ns: list[int]
    name: list[str] | None
    stage: list[str | None] | None
    cause: list[int | None] | None
    stack: list[int | None] | None
    payload: list[str | list[str] | None] | None
    data: list[Any] | None


class _Frames(msgspec.Struct):
    """A document of frames."""

    id: list[int]
    parent: list[int | None]
    file: list[str]
    line: list[int]
    name: list[str]


_Document = TypeVar("_Document", _Events, _Frames)
_KINDS = list[tuple[str, Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]] | None]


def kinds_of(pages: EventPages) -> list[tuple[str, int] | None]:
    """Return the kind and the number of the events in each page; None for a page that was deleted.

    Raises DamagedStore for what is none.
    """
    try:
        return convert(pages.kinds, _KINDS)
    except ValueError as error:
        raise DamagedStore(
            f"Row {pages.id} of event_pages has {pages.kinds!r:.60} as kinds of events: {error}."
        ) from error


def read_pages(
    pages: EventPages, data: bytes, wanted: Collection[str] | None = None
) -> Iterator[Event]:
    """Yield the events of the pages in a blob, or of those kinds.

    DamagedStore for what is none.
    """
    kinds = kinds_of(pages)
    try:
        documents = documents_of(data)
        for place, found in enumerate(kinds):
            if found is not None and (wanted is None or found[0] in wanted):
                yield from _events(pages, *found, _parsed(documents[place], _Events))
    except (ValueError, LookupError) as error:
        raise DamagedStore(f"Pages {pages.digest:.12} of events can't be read: {error}.") from error


def _parsed(data: bytes, kind: type[_Document]) -> _Document:
    return convert(parse_json(data), kind)


def _events(pages: EventPages, kind: str, count: int, doc: _Events) -> Iterator[Event]:
    if count != len(doc.seq):
        raise ValueError(f"a page of {kind!r:.60} has {len(doc.seq)} events, and not {count}")
    if doc.name is None:
        doc.name = [""] * count
    columns = [_unpacked(name, getattr(doc, name), count) for name in COLUMNS]
    for seq, time_ns, stage, name, cause, stack, payload, row in zip(*columns, strict=True):
        yield Event(
            pages.recording_id, seq, pages.compile_id, stage, kind, name, time_ns,
            _object(doc.fields, row), _payload(payload), cause, stack,
        )  # fmt: skip


def _object(fields: Sequence[str] | None, row: Any) -> Json:
    if fields is None:
        return row  # type: ignore[no-any-return]
    if not isinstance(row, list):
        raise ValueError(f"{row!r:.60} is no list of values")
    return dict(zip(fields, row, strict=True))


def _payload(value: str | list[str] | None) -> str | None:
    return Inline(value[0]) if isinstance(value, list) else value


def read_frames(page: StackPage, data: bytes) -> Iterator[StackFrame]:
    """Yield the frames of a page.  Raises DamagedStore when it is none."""
    try:
        doc = _parsed(data, _Frames)
        for id_, parent, file, line, name in zip(
            doc.id, doc.parent, doc.file, doc.line, doc.name, strict=True
        ):
            yield StackFrame(page.recording_id, id_, parent, file, line, name)
    except ValueError as error:
        raise DamagedStore(f"Page {page.digest:.12} of frames can't be read: {error}.") from error


def _unpacked(name: str, column: Sequence[Any] | None, count: int) -> Sequence[Any]:
    if column is None:
        return [None] * count
    if len(column) != count:
        raise ValueError(f"{name!r} has {len(column)} values, and not {count}")
    return column if name not in DIFFERENCES else list(itertools.accumulate(column))
