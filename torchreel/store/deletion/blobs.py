"""Deletes the blobs that nothing names any more, after recordings were deleted.

A blob is named by a column, or inside of another blob (a page of events names its payloads).  So
that no list of such places can ever be incomplete, whatever looks like a digest counts as one.
"""

import re
import sqlite3
from collections.abc import Iterator

from sqlalchemy import Connection, Text, delete, inspect, select, text
from sqlalchemy.types import TypeDecorator

from torchreel.errors import DamagedStore
from torchreel.store import schema
from torchreel.store.blobs import blobs
from torchreel.store.blobs.packing import LastPack
from torchreel.store.blobs.packs import DROP_UNUSED
from torchreel.store.database import Store
from torchreel.store.servers.connections import sweeping

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_CHUNK = 500


def sweep(store: Store) -> int:
    """Delete the blobs that neither a row nor a blob in use names; return how many there were."""
    with store.writer() as writer:
        return sweep_in(writer.connection)


def sweep_in(connection: Connection) -> int:
    """Delete the blobs that nothing in use names, in a transaction for writing; see `sweep`."""
    sweeping(connection)
    known = set(connection.execute(select(schema.blobs.c.digest)).scalars())
    unused = sorted(known - _used(connection, known))
    for start in range(0, len(unused), _CHUNK):
        chunk = unused[start : start + _CHUNK]
        connection.execute(delete(schema.blobs).where(schema.blobs.c.digest.in_(chunk)))
    connection.execute(text(DROP_UNUSED))
    raw = connection.connection.driver_connection
    if unused and isinstance(raw, sqlite3.Connection):
        # Only a file that was made for it gives its free pages back.
        raw.execute("PRAGMA incremental_vacuum").fetchall()
    return len(unused)


def _used(connection: Connection, known: set[str]) -> set[str]:
    found: set[str] = set()
    last = LastPack()
    waiting = set(_named_by_rows(connection)) & known
    while waiting:
        digest = waiting.pop()
        found.add(digest)
        waiting |= (_named_by_blob(connection, digest, last) & known) - found
    return found


def _named_by_rows(connection: Connection) -> Iterator[str]:
    for name in inspect(connection).get_table_names():
        table = schema.metadata.tables.get(name, schema.blobs)
        columns = [column for column in table.c if isinstance(_plain(column.type), Text)]
        if table is schema.blobs or not columns:
            continue
        for row in connection.execute(select(*(column.cast(Text) for column in columns))):
            for value in row:
                yield from _DIGEST.findall(value or "")


def _plain(kind: object) -> object:
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind


def _named_by_blob(connection: Connection, digest: str, last: LastPack) -> set[str]:
    try:
        found = blobs.get(connection, digest, last).decode("latin-1")
    except DamagedStore:
        return set()
    return set(_DIGEST.findall(found))
