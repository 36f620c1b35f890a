"""Bounded disk: what is deleted, in what order, so that a store stays under its cap.

Lives here: `--max-bytes` and `--max-age`, carried out by the writer thread between two batches, and
the deletion of one compile's material (`flight`).  The oldest material of compiles that went well
goes first, then their rows, then repeats of failures, then the first of each kind; the newest
failures never go.  Failures that go are counted.  Each transaction is small, so that nobody waits
for the lock.

A page of events names the blobs of its payloads in its own document: to know which blobs nobody
needs any more, the documents of the pages that stay are looked through.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.recorder.failing_open import losses
from torchreel.store.blobs.packing import LastPack, read
from torchreel.store.blobs.packs import DROP_UNUSED
from torchreel.store.files.descriptors import kept_open

if TYPE_CHECKING:
    from torchreel.recorder.event_log.rows import AnyWriter
    from torchreel.store.database import Store
    from torchreel.store.files.direct import DirectStore

_HIGH, _LOW = 0.85, 0.6
"""Shares of the cap: where deleting begins, and where it ends.  A batch may be as large as what
lies between the first and the cap."""
_NEWEST_FAILURES = 10
REPEATS = "max-bytes: a repeat of a failure was deleted"
OLD = "max-bytes: an old failure was deleted"
"""Reasons of losses: the number of each is how often."""
_CHUNK = 100
"""Compiles, and blobs, that one transaction deletes."""
_AGE_ROUND = 600.0
"""Seconds between two looks at the age of what is there."""
_VACUUM_PAGES = 2000

_MATERIAL = (
    "checkpoints", "graphs", "output_codes", "frame_bundles", "event_pages", "events",
)  # fmt: skip
_DIGESTS = (
    ("checkpoints", "digest"), ("graphs", "digest"), ("graphs", "text_digest"),
    ("output_codes", "digest"), ("event_pages", "digest"), ("events", "payload"),
    ("stack_pages", "digest"),
    ("compiles", "frame_source"), ("failures", "traceback"),
    ("frame_bundles", "digest"), ("frame_bundles", "tensors"),
)  # fmt: skip
"""Every column of a recording that names a blob."""
_CASES = ("cases", "document")
"""The same of what 'minify' writes into the file, which has that table from then on."""
_FAILING = "('failed', 'crashed', 'hung')"
_HEX = re.compile(rb'"([0-9a-f]{64})"')


class Limits(NamedTuple):
    """The limits of what is kept: bytes and seconds."""

    max_bytes: int | None = None
    max_age: float | None = None


def drop_material(writer: AnyWriter, compile_id: int) -> None:
    """Delete what a compile left but its row, its stages and its failures."""
    writer.flush()
    blobs = {
        digest
        for table, column in _DIGESTS
        if table in ("checkpoints", "graphs", "output_codes", "frame_bundles")
        for (digest,) in _rows(
            writer, f"SELECT {column} FROM {table} WHERE compile_id = :id", id=compile_id
        )
        if digest is not None
    }
    for table in _MATERIAL:
        _rows(writer, f"DELETE FROM {table} WHERE compile_id = :id", id=compile_id)
    unused = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {table} WHERE {table}.{column} = :digest)"
        for table, column in _digests(writer)
    )
    for digest in blobs:
        _rows(writer, f"DELETE FROM blobs WHERE digest = :digest AND {unused}", digest=digest)
    _rows(writer, DROP_UNUSED)
    _forget(writer, blobs)


def _digests(writer: AnyWriter) -> tuple[tuple[str, str], ...]:
    """Return every column that names a blob."""
    (found,) = _rows(writer, "SELECT count(*) FROM sqlite_master WHERE name = 'cases'")
    return (*_DIGESTS, _CASES) if found[0] else _DIGESTS


def _forget(writer: AnyWriter, digests: Iterable[str]) -> None:
    """Tell the writer not to take these blobs for present any more."""
    forget = getattr(writer, "forget", None)
    if forget is not None:
        forget(digests)


def _rows(writer: AnyWriter, statement: str, **values: object) -> Sequence[Any]:
    """Execute a statement on either kind of connection; the rows it returns, if any."""
    connection: Any = writer.connection
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(statement, values).fetchall()
    from sqlalchemy import text

    result = connection.execute(text(statement), values)
    return result.all() if result.returns_rows else ()


class Retention:
    """Keeps one SQLite file within its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._aged = 0.0
        self._stuck = False

    def enforce(self, store: DirectStore | Store, recording: int | None) -> None:
        """Delete what is too much, and what is too old."""
        limit = self._limits.max_bytes
        if limit is not None and size_on_disk(store.target) > _HIGH * limit and not self._stuck:
            _Sweep(store, recording).shrink(int(_LOW * limit), int(_HIGH * limit))
            self._stuck = size_on_disk(store.target) > limit
            if self._stuck:
                losses.add("failures alone are more than max-bytes", "retention")
        age = self._limits.max_age
        if age is not None and time.monotonic() - self._aged > _AGE_ROUND:
            self._aged = time.monotonic()
            _Sweep(store, recording).forget_before(time.time_ns() - int(age * 1e9))


def size_on_disk(target: str) -> int:
    """Return bytes of the file and its log."""
    total = 0
    for name in (target, f"{target}-wal"):
        try:
            total += os.stat(name).st_size
        except OSError:
            continue
    return total


class _Sweep:
    """One round of deletions."""

    def __init__(self, store: DirectStore | Store, recording: int | None) -> None:
        self._store = store
        self._recording = recording or 0

    def shrink(self, size: int, most: int) -> None:
        """Delete, in order, until no more than `size` bytes are in use.

        The first failures of their kinds go only as long as there are more than `most`.
        """
        steps = (
            self._drop_material_of_successes,
            self._delete_successes,
            self._delete_repeats,
            self._delete_empty,
        )
        for step in steps:
            while self._used() > size and step():
                self._sweep_blobs()
        while self._used() > most and self._delete_old_failures():
            self._sweep_blobs()
        self._give_back()

    def forget_before(self, time_ns: int) -> None:
        """Delete every compile, and every finished recording, that began before that time."""
        old = f"started_ns < {time_ns} AND status <> 'running'"
        while self._delete(f"SELECT id FROM compiles WHERE {old} LIMIT {_CHUNK}", "compiles"):
            pass
        empty = "NOT EXISTS (SELECT 1 FROM compiles WHERE recording_id = recordings.id)"
        self._delete(f"SELECT id FROM recordings WHERE {old} AND {empty}", "recordings")
        self._sweep_blobs()
        self._give_back()

    def _drop_material_of_successes(self) -> bool:
        """Drop the material of the oldest successful compiles; return False if none is left."""
        has = " OR ".join(
            f"EXISTS (SELECT 1 FROM {table} WHERE compile_id = compiles.id)" for table in _MATERIAL
        )
        query = f"SELECT id FROM compiles WHERE {self._successes} AND ({has}) ORDER BY id LIMIT 4"
        with self._store.writer() as writer:
            found = [row[0] for row in _rows(writer, query)]
            for compile_id in found:
                drop_material(writer, compile_id)
            return bool(found) or bool(_rows(writer, _STRAY_PAGES, id=self._recording))

    def _delete_successes(self) -> bool:
        query = f"SELECT id FROM compiles WHERE {self._successes} ORDER BY id LIMIT {_CHUNK}"
        return self._delete(query, "compiles")

    def _delete_repeats(self) -> bool:
        """Delete the oldest compile that failed as an older one did: of a kind, the first stays."""
        first = "SELECT min(id) FROM failures GROUP BY signature_digest"
        query = (
            f"SELECT id FROM compiles WHERE {self._old_failures} "
            "AND id IN (SELECT compile_id FROM failures) "
            f"AND id NOT IN (SELECT compile_id FROM failures WHERE id IN ({first}) "
            "AND compile_id IS NOT NULL) ORDER BY id LIMIT 1"
        )
        return self._delete_counted(query, REPEATS)

    def _delete_empty(self) -> bool:
        """Delete the oldest recordings of which nothing else is left."""
        none = " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {table} WHERE recording_id = recordings.id)"
            for table in ("compiles", "failures", "lost")
        )
        query = (
            f"SELECT id FROM recordings WHERE status <> 'running' AND id <> {self._recording} "
            f"AND {none} ORDER BY id LIMIT {_CHUNK}"
        )
        return self._delete(query, "recordings")

    def _delete_old_failures(self) -> bool:
        query = f"SELECT id FROM compiles WHERE {self._old_failures} ORDER BY id LIMIT 1"
        return self._delete_counted(query, OLD)

    def _delete_counted(self, query: str, reason: str) -> bool:
        """Delete a failed compile, and count it as a loss, by the signature of its failure."""
        signatures = f"SELECT min(signature_digest) FROM failures WHERE compile_id IN ({query})"
        with self._store.writer() as writer:
            ((signature,),) = _rows(writer, signatures)
        if not self._delete(query, "compiles"):
            return False
        losses.add(reason, f"failure {(signature or 'unknown')[:12]}")
        return True

    @property
    def _old_failures(self) -> str:
        newest = f"SELECT compile_id FROM failures ORDER BY id DESC LIMIT {_NEWEST_FAILURES}"
        return (
            f"status IN {_FAILING} AND id NOT IN "
            f"(SELECT compile_id FROM ({newest}) WHERE compile_id IS NOT NULL)"
        )

    @property
    def _successes(self) -> str:
        failed = "SELECT compile_id FROM failures WHERE compile_id IS NOT NULL"
        return f"status IN ('ok', 'restarted', 'skipped') AND id NOT IN ({failed})"

    def _delete(self, query: str, table: str) -> bool:
        with self._store.writer() as writer:
            found = [row[0] for row in _rows(writer, query)]
            for row_id in found:
                writer.delete(table, row_id)
        return bool(found)

    def _used(self) -> int:
        """Return bytes of the pages that hold something."""
        with self._store.writer() as writer:
            count, free, size = (
                _rows(writer, f"PRAGMA {name}")[0][0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((count - free) * size)

    def _sweep_blobs(self) -> None:
        """Delete the blobs that nothing names any more."""
        pages: dict[str, frozenset[str]] = {}
        while True:
            with self._store.writer() as writer:
                unused = self._unused(writer, pages)
                for digest in unused[:_CHUNK]:
                    _rows(writer, "DELETE FROM blobs WHERE digest = :digest", digest=digest)
                _rows(writer, DROP_UNUSED)
                _forget(writer, unused[:_CHUNK])
            if len(unused) <= _CHUNK:
                return

    def _unused(self, writer: AnyWriter, pages: dict[str, frozenset[str]]) -> list[str]:
        named: set[str] = set()
        for table, column in _digests(writer):
            named.update(row[0] for row in _rows(writer, f"SELECT {column} FROM {table}"))
        last = LastPack()
        for (digest,) in _rows(writer, "SELECT digest FROM event_pages"):
            if digest not in pages:
                pages[digest] = _payloads(writer, digest, last)
            named |= pages[digest]
        return [d for (d,) in _rows(writer, "SELECT digest FROM blobs") if d not in named]

    def _give_back(self) -> None:
        """Make the file smaller, where it was made so that this can be done in steps."""
        connection: Any = getattr(self._store, "connection", None)
        if not isinstance(connection, sqlite3.Connection):
            return
        check = getattr(self._store, "check_descriptors", None)
        with kept_open():
            if check is not None:
                check()
            _vacuum(connection)


def _vacuum(connection: sqlite3.Connection) -> None:
    while connection.execute("PRAGMA freelist_count").fetchone()[0]:
        before = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        if connection.execute("PRAGMA page_count").fetchone()[0] == before:
            break
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


_STRAY_PAGES = """
DELETE FROM event_pages WHERE id IN (
    SELECT id FROM event_pages WHERE compile_id IS NULL AND recording_id <> :id ORDER BY id LIMIT 20
) RETURNING id
"""
"""Events of other recordings that belong to no compile."""


def _payloads(writer: AnyWriter, digest: str, last: LastPack) -> frozenset[str]:
    """Return the digests that a page's document names (and whatever else looks like one)."""
    document = read(lambda query, values: _rows(writer, query, **values), digest, last)
    return frozenset(found.decode() for found in _HEX.findall(document))
