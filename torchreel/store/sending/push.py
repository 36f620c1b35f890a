"""Pushes a store: every recording that has ended and that the other store does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Row, select

from torchreel.errors import DamagedStore, StoreError, UnreadableSource
from torchreel.store import queries, schema
from torchreel.store.copying import reading
from torchreel.store.database import Store
from torchreel.store.failures.failure_kinds import FailureKind
from torchreel.store.files.locks import is_claimed
from torchreel.store.post_mortem import settle
from torchreel.store.sending import origins
from torchreel.store.sending.blobs_asked_again import send_wanted
from torchreel.store.sending.contents import SourceBlobs
from torchreel.store.sending.later import LaterRows, read_later
from torchreel.store.sending.rows import read, read_layout
from torchreel.store.sending.target import row_of, send_later, send_recording

Listener = Callable[[int, int], None]
"""Gets the number of each recording that was sent, and its number in the other store."""
KindsOf = Callable[[Store, int], Mapping[int, FailureKind]]
"""Returns the kinds of the failures of a recording, by their row ids, as far as it knows them."""


def no_kinds(source: Store, number: int) -> Mapping[int, FailureKind]:
    """Return no kinds: whoever groups the failures reads them then."""
    return {}


@dataclass
class PushReport:
    """The result of a push: what was sent, and what was not, and why."""

    sent: dict[int, int] = field(default_factory=dict)
    """By the number of a recording: its number in the other store."""
    added: int = 0
    """Failures and reductions that came to recordings which were there already."""
    mended: int = 0
    """The blobs that the other store asked for again."""
    known: int = 0
    """The recordings that were there already."""
    running: int = 0
    """The recordings whose process goes on: they are sent when it has ended."""
    refused: list[str] = field(default_factory=list)
    """Of each recording that can't be sent, the reason."""
    is_refused_there: bool = False
    """True if the other store refused something: its reason may pass."""

    def refuse(self, what: str, error: StoreError) -> None:
        """Note that something was not sent: an error that is no UnreadableSource is the other
        store's.
        """
        self.refused.append(f"{what}: {error}")
        self.is_refused_there |= not isinstance(error, UnreadableSource)


@dataclass(frozen=True)
class _Found:
    row: Row[Any]
    identity: str
    later: LaterRows


def send_one(source: Store, number: int, target: Store) -> int:
    """Send one recording; return its number in the target.  Raises StoreError where it can't be."""
    query = select(schema.recordings).where(schema.recordings.c.id == number)
    (row,) = source.rows(query)
    identity = origins.of_recording(row)
    found = _Found(row, identity, read_later(source, number, identity))
    report = PushReport()
    _push_one(source, SourceBlobs(source), target, found, set(), report, lambda *_: None)
    there = row_of(target, identity)
    assert there is not None, "it was just written, or there before"
    return there


def push_path(
    path: str,
    target: Store,
    listener: Listener = lambda *_: None,
    kinds_of: KindsOf = no_kinds,
) -> PushReport:
    """Push the store at a path (see `open_settled`), as `push` does."""
    with open_settled(path) as source:
        return push(source, target, listener, kinds_of)


def open_settled(path: str) -> Store:
    """Open a store to push; where its process died, that is written down first.

    While a launcher waits for a program, that is left to the launcher, which knows of what it died.
    Raises StoreError for a store that can't be opened.
    """
    with Store.open(path) as source, source.as_far_as_readable():
        is_running = _says_running(source)
        true = {row.id for row in queries.recordings(source) if row.status == "running"}
    if is_running - true and not is_claimed(path):
        # What can't be written down (in use, damaged, a full disk) counts as running.
        with suppress(StoreError), Store.open(path, write=True) as source:
            settle(source, only_certain=True)
    return Store.open(path)


def _says_running(source: Store) -> set[int]:
    table = schema.recordings
    rows = source.rows(select(table.c.id).where(table.c.status == "running"))
    return {row.id for row in rows}


def push(
    source: Store,
    target: Store,
    listener: Listener = lambda *_: None,
    kinds_of: KindsOf = no_kinds,
) -> PushReport:
    """Send what is new in `source`; each recording whole, or not at all.

    Replays are left out: they are checks that were made here.  What can't be read is in the report.
    Raises UnreadableSource for a source of which nothing can be read, and StoreError for a target
    that can't be written to.
    """
    report = PushReport()
    blobs = SourceBlobs(source)
    try:
        report.mended = send_wanted(blobs, target)
    except (UnreadableSource, DamagedStore) as error:
        report.refuse(f"a blob that {target.target} asks for", error)
    found = list(_found(source, report))
    digests = [each.identity for each in found]
    known = origins.known(target, digests + [d for each in found for d in each.later.identities])
    for each in found:
        report.known += each.identity in known
    wanted = [each for each in found if not {each.identity, *each.later.identities} <= known]
    if not wanted:
        return report
    for each in wanted:
        try:
            with reading():
                kinds = kinds_of(source, each.row.id) if each.later.failures else {}
            each = replace(each, later=replace(each.later, kinds=kinds))
            _push_one(source, blobs, target, each, known, report, listener)
        except (UnreadableSource, DamagedStore) as error:  # of this recording: nothing was written
            report.refuse(f"recording {each.row.id}", error)
    return report


def _found(source: Store, report: PushReport) -> Iterator[_Found]:
    """Yield the recordings that have ended, with what came to them since."""
    table = schema.recordings
    with reading(), source.as_far_as_readable() as unreadable:
        is_wanted = table.c.kind.is_distinct_from("replay")  # one without a kind is refused
        rows = source.rows(select(table).where(is_wanted).order_by(table.c.id))
    report.refused += unreadable
    numbers = Counter(row.id for row in rows)
    for row in rows:
        if numbers[row.id] > 1:
            report.refused.append(
                f"recording {row.id}: {source.target} has several of that number."
            )
            continue
        if row.status == "running":
            report.running += 1
            continue
        identity = origins.of_recording(row)
        try:
            yield _Found(row, identity, read_later(source, row.id, identity))
        except StoreError as error:
            report.refused.append(f"recording {row.id}: {error}")


def _push_one(
    source: Store,
    blobs: SourceBlobs,
    target: Store,
    found: _Found,
    known: set[str],
    report: PushReport,
    listener: Listener,
) -> None:
    later = found.later.without(known)
    if found.identity not in known:
        with reading():
            rows = read(source, found.row)
            later.check(source.target, rows.ids)
            named = blobs.named_by([*rows.texts(), *later.texts()])
        number = send_recording(rows, later, found.identity, blobs, named, target)
        if number is not None:
            report.sent[found.row.id] = number
            listener(found.row.id, number)
            return
        # Somebody was faster, who may not have had all that came to it later.
        report.known += 1
        later = later.without(origins.known(target, later.identities))
    if later.identities:
        with reading():
            layout = read_layout(source, found.row.id)
            later.check(source.target, {**layout, "recordings": [found.row.id]})
            named = blobs.named_by(later.texts())
        report.added += send_later(found.identity, later, layout, blobs, named, target)
