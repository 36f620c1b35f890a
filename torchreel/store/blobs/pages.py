"""Pages: many events of one kind, or many frames of stacks, as one blob.

A compile has thousands of guards, dispatches and ShapeEnv calls.  As rows they would take most of a
store and of the time to write it; as columns of one JSON document they compress some thirty times.
Lives here: the form of such a document, and writing one, which the recorder does.  Not here:
reading one (`page_reader`), whose records a process that is recorded need not import.

A document of events has one list for each column of `COLUMNS`, all of one length; `fields` names
the members of the rows of `data`, or is null where each row is an object itself.  A payload is a
digest; a short one is the text itself, in a list.  A document of frames has one list for each of
`FRAMES`.  What a compile has in memory is written as one blob: a JSON array with one document of
events on each line.  `event_pages.kinds` says in the same order of which kind and how many they
are.  (Before revision 0006 a blob could be such a document itself.)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from torchreel.store.documents.jsontypes import Json, digest_of, exact_json

COLUMNS = ("seq", "time_ns", "stage", "name", "cause", "stack", "payload", "data")
FRAMES = ("id", "parent", "file", "line", "name")
SHORT = 4000
"""Characters of a payload that is kept in its page: its text is compressed there as in a blob, and
a blob has a row of 90 bytes more."""
DIFFERENCES = ("seq", "time_ns")
"""Columns that are kept as the difference from row to row: they grow steadily."""
TICK, _TICK_OF_TRACE = 100_000, 1_000
"""Nanoseconds to which times are rounded: what is below a tenth of a millisecond is noise, which
does not compress.

Records of torch's own trace have their microsecond: they are exported as they were."""


class Inline(str):
    """The digest of a short text that is not kept as a blob: it has the text with it."""

    data: bytes

    def __new__(cls, text: str) -> Self:
        """Return the digest of `text`."""
        data = text.encode("utf-8", "surrogatepass")
        digest = super().__new__(cls, digest_of(data))
        digest.data = data
        return digest


def write_page(
    columns: Mapping[str, Sequence[object]],
    fields: Sequence[str] | None,
    default: Callable[[object], Json],
    *,
    exact: bool = False,
) -> bytes:
    """Return the document; `default` spells what is no JSON value (as in `json.dumps`).

    `exact` says that there are no floats in it, and no enums (see `exact_json`).
    """
    tick = _TICK_OF_TRACE if fields is None else TICK
    packed: dict[str, object] = {name: _packed(name, columns[name], tick) for name in COLUMNS}
    if exact:
        return exact_json({"fields": fields, **packed}, default)
    text = json.dumps(
        {"fields": fields, **packed},
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        default=default,
    )
    return text.encode("utf-8", "surrogatepass")


_HEAD, _BETWEEN, _TAIL = b"[\n", b",\n", b"\n]"


def write_pages(documents: Sequence[bytes]) -> bytes:
    """Return one blob of several documents."""
    return _HEAD + _BETWEEN.join(documents) + _TAIL


def documents_of(blob: bytes) -> list[bytes]:
    """Return the documents of a blob: JSON has no bare line breaks, so they are where they were
    put.
    """
    if not blob.startswith(_HEAD):
        return [blob]
    return blob.removeprefix(_HEAD).removesuffix(_TAIL).split(_BETWEEN)


def _packed(name: str, column: Sequence[Any], tick: int) -> Sequence[object] | None:
    if name == "time_ns":
        column = [time - time % tick for time in column]
    if name in DIFFERENCES:
        return [column[0], *(b - a for a, b in itertools.pairwise(column))]
    return None if all(value is None for value in column) else column


def write_frames(frames: Sequence[tuple[int, int | None, str, int, str]]) -> bytes:
    """Return the document of frames: (id, parent, file, line, name)."""
    columns = zip(FRAMES, zip(*frames, strict=True), strict=True)
    text = json.dumps(dict(columns), separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
