"""Deletes the blobs that nothing names any more, after recordings were deleted.

A blob is named by a column, or inside of another blob (a page of events names its payloads).  So
that no list of such places can ever be incomplete, whatever looks like a digest counts as one.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, Text, delete, inspect, select, text

from torchreel.errors import DamagedStore
from torchreel.store import schema
from torchreel.store.blobs import blobs
from torchreel.store.blobs.packing import LastPack
from torchreel.store.blobs.packs import DROP_UNUSED
from torchreel.store.database import Store
from torchreel.store.servers.connections import changed_since, snapshot, sweeping

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_CHUNK = 500


def sweep(store: Store) -> int:
    """Delete the blobs that neither a row nor a blob in use names; return how many there were."""
    if store.is_on_server:
        return _sweep_server(store)
    with store.writer() as writer:
        return sweep_in(writer.connection)


def sweep_in(connection: Connection) -> int:
    """Delete the blobs that nothing in use names, as `sweep` does, in the caller's transaction.

    Nobody else may write during this transaction, unless the caller rolls it back.
    """
    known = _digests(connection)
    return _delete(connection, known - _reached(connection, _named_by_rows(connection), known))


def _sweep_server(store: Store) -> int:
    """Delete the unused blobs of a server in two steps, so that pushes wait for the short one only.

    The first step takes long: it looks at the whole store, without a lock. The second step locks
    pushes out, and looks only at what was written since the first step began.
    """
    with store.connect() as connection:
        since = snapshot(connection)
        known = _digests(connection)
        unused = known - _reached(connection, _named_by_rows(connection), known)
    with store.writer() as writer:
        sweeping(writer.connection)
        new = _digests(writer.connection, since) - known
        named = {*_named_by_rows(writer.connection, since)}
        return _delete(
            writer.connection, unused - _reached(writer.connection, named | new, unused | new)
        )


def _digests(connection: Connection, since: str | None = None) -> set[str]:
    """Return the digests of all blobs, or of those that were written since."""
    query = changed_since(select(schema.blobs.c.digest), since)
    return set(connection.execute(query).scalars())


def _delete(connection: Connection, digests: set[str]) -> int:
    unused = sorted(digests)
    for start in range(0, len(unused), _CHUNK):
        chunk = unused[start : start + _CHUNK]
        connection.execute(delete(schema.blobs).where(schema.blobs.c.digest.in_(chunk)))
    connection.execute(text(DROP_UNUSED))
    raw = connection.connection.driver_connection
    if unused and isinstance(raw, sqlite3.Connection):
        # Only a file that was made for it gives its free pages back.
        raw.execute("PRAGMA incremental_vacuum").fetchall()
    return len(unused)


def _reached(connection: Connection, named: Iterable[str], among: set[str]) -> set[str]:
    """Return the blobs in `among` that are named, or that a blob which is named leads to."""
    found: set[str] = set()
    last = LastPack()
    waiting = {*named} & among
    while waiting:
        digest = waiting.pop()
        found.add(digest)
        waiting |= (_named_by_blob(connection, digest, last) & among) - found
    return found


def _named_by_rows(connection: Connection, since: str | None = None) -> Iterator[str]:
    """Yield what looks like a digest in all rows but those of blobs, or in those written since."""
    for name in inspect(connection).get_table_names():
        table = schema.metadata.tables.get(name, schema.blobs)
        columns = [column for column in table.c if isinstance(schema.stored_as(column.type), Text)]
        if table is schema.blobs or not columns:
            continue
        query = changed_since(select(*(column.cast(Text) for column in columns)), since)
        for row in connection.execute(query):
            for value in row:
                yield from _DIGEST.findall(value or "")


def _named_by_blob(connection: Connection, digest: str, last: LastPack) -> set[str]:
    try:
        found = blobs.get(connection, digest, last).decode("latin-1")
    except DamagedStore:
        return set()
    return set(_DIGEST.findall(found))
