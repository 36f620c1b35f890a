"""Blobs that pushers are asked to send again, because what is stored for them is wrong.

Whoever may append may write any bytes under any digest, and a server can't unpack them to see. A
reader detects it, but the wrong blob stands in the way of the right one: its digest is taken. So
the owner of a store reads all of its blobs now and then, deletes the wrong ones and notes their
digests. The next push of a store that has them sends them first.

The note is a row of `origins` that belongs to nothing: a role that may append reads such rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import delete, select, text

from torchreel.errors import DamagedStore
from torchreel.store import schema
from torchreel.store.blobs.packs import DROP_UNUSED
from torchreel.store.database import Store
from torchreel.store.sending.contents import SourceBlobs
from torchreel.store.sending.target import lacking, send_blobs
from torchreel.store.servers.connections import sweeping

_NO_ROW = 0
"""In the place of a row's id, which begins at 1."""
_AT = schema.origins.c


def drop_wrong(store: Store) -> list[str]:
    """Delete the blobs that are not what their digests say, and ask for them; return the digests.

    Reads every blob of the store.
    """
    wrong = list(_wrong(store))
    if wrong:
        with store.writer() as writer:
            sweeping(writer.connection)
            for digest in wrong:
                writer.connection.execute(
                    delete(schema.blobs).where(schema.blobs.c.digest == digest)
                )
                note = {"digest": digest, "kind": "wanted", "row_id": _NO_ROW}
                writer.put("origins", **note, recording_id=None, pushed_ns=time.time_ns())
            writer.connection.execute(text(DROP_UNUSED))
    return wrong


def _wrong(store: Store) -> Iterator[str]:
    table = schema.blobs
    # In the order in which they lie in packs: each is unpacked once.
    query = select(table.c.digest).order_by(table.c.pack, table.c.start, table.c.digest)
    for digest in [row.digest for row in store.rows(query)]:
        try:
            store.read_blob(digest)
        except DamagedStore:
            yield digest


def send_wanted(blobs: SourceBlobs, target: Store) -> int:
    """Send what the target asks for and the source has; return how many blobs that are.

    Raises UnreadableSource where what the source has is no better.
    """
    query = select(_AT.digest).where(_AT.row_id == _NO_ROW, _AT.recording_id.is_(None))
    asked = lacking(target, [row.digest for row in target.rows(query)])
    found = lacking(target, blobs.named_by(asked)) if asked else []
    if found:
        send_blobs(blobs, found, target)
    return len(found)
