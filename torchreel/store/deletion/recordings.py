"""Deletes recordings, with what was computed from their failures and the blobs that nobody names.

Which ones go is decided elsewhere (`torchreel.analysis.triage.keeping`). Called by
`torchreel prune`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, inspect, or_, select, text

from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.deletion.blobs import sweep, sweep_in

_CHUNK = 100
"""Recordings that one transaction deletes: nobody waits long for its locks."""
_BYTES = ("blobs", "packs")
"""Tables whose rows are their column `data`, and little else."""


@dataclass(frozen=True)
class Deletion:
    """Deletes recordings of a store."""

    store: Store
    trial: Connection | None = None
    """The transaction of a trial run, which is rolled back at the end; None for a real deletion."""

    def delete(self, numbers: Sequence[int]) -> int:
        """Delete recordings and all that belongs to them alone; return how many blobs went."""
        for start in range(0, len(numbers), _CHUNK):
            chunk = list(numbers[start : start + _CHUNK])
            with self._connection() as connection:
                _delete_computed(connection, chunk)
                table = schema.recordings
                connection.execute(delete(table).where(table.c.id.in_(chunk)))
        return sweep(self.store) if self.trial is None else sweep_in(self.trial)

    def used_bytes(self) -> int:
        """Return the bytes of all rows, without free space and without indexes for pushes."""
        if self.trial is not None:
            return _used_bytes(self.trial)
        with self.store.connect() as connection:
            return _used_bytes(connection)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if self.trial is not None:
            yield self.trial
            return
        with self.store.writer() as writer:
            yield writer.connection


@contextmanager
def trial(store: Store) -> Iterator[Deletion]:
    """Yield a deletion that is rolled back at the end; until then, other writers wait."""
    with store.writer() as writer:
        yield Deletion(store, writer.connection)
        writer.connection.rollback()


def delete_recordings(store: Store, numbers: Sequence[int]) -> int:
    """Delete recordings for good; return how many blobs went."""
    return Deletion(store).delete(numbers)


def used_bytes(store: Store) -> int:
    """Return the bytes of all rows (see `Deletion`)."""
    return Deletion(store).used_bytes()


def _delete_computed(connection: Connection, recordings: Sequence[int]) -> None:
    """Delete what was computed from the failures of these recordings, if nothing else uses it.

    These are the reductions of the failures, the cases that no other reduction names, the verdicts
    on these cases, and the verdicts for signatures that no other failure has.
    """
    if not inspect(connection).has_table("reductions"):  # a file has it from the first row on
        return
    at, cases, caught = schema.reductions.c, schema.cases.c, schema.by_catch.c
    failures = select(schema.failures.c.id).where(schema.failures.c.recording_id.in_(recordings))
    connection.execute(delete(schema.reductions).where(at.failure_id.in_(failures)))
    used = (select(column) for column in (at.start_case, at.best_case, caught.case_digest))
    is_unused = [cases.digest.not_in(each) for each in used]
    # One whose failure went first stayed for the reduction of another.
    owned = or_(cases.failure_id.in_(failures), cases.failure_id.is_(None))
    unused = select(cases.digest).where(owned, *is_unused)
    digests = list(connection.execute(unused).scalars())
    _delete_verdicts(connection, recordings)
    for start in range(0, len(digests), _CHUNK):
        chunk = digests[start : start + _CHUNK]
        for table in (schema.findings, schema.verdicts):
            connection.execute(delete(table).where(table.c.case_digest.in_(chunk)))
        connection.execute(delete(schema.cases).where(cases.digest.in_(chunk)))


def _delete_verdicts(connection: Connection, recordings: Sequence[int]) -> None:
    """Delete the verdicts with signatures that failures of these recordings alone have."""
    at = schema.failures.c
    going = select(at.signature_digest).where(at.recording_id.in_(recordings))
    staying = select(at.signature_digest).where(at.recording_id.not_in(recordings))
    signature = schema.verdicts.c.signature_digest
    gone = delete(schema.verdicts).where(signature.in_(going), signature.not_in(staying))
    connection.execute(gone)


def _used_bytes(connection: Connection) -> int:
    if connection.dialect.name != "sqlite":
        return sum(_bytes_of(connection, name) for name in schema.metadata.tables)
    pages, free, size = (
        connection.execute(text(f"PRAGMA {name}")).scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _bytes_of(connection: Connection, table: str) -> int:
    what = "data" if table in _BYTES else "t.*"
    found: Any = connection.execute(text(f"SELECT sum(pg_column_size({what})) FROM {table} AS t"))
    return int(found.scalar_one() or 0)
