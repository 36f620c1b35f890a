"""Content-addressed, compressed blobs: everything large in a store, kept once.

A blob's name is the sha256 of its bytes, so that graphs, sources and payloads are shared between
compiles, recordings and runs. Called by `writer` (to put) and `database` (to get).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, text

from torchreel.store.blobs.packing import LastPack, pack, read
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.schema import blobs


def put(connection: Connection, data: bytes) -> str:
    """Store `data` unless it is there already, and return its digest."""
    digest = digest_of(data)
    present = connection.execute(select(1).where(blobs.c.digest == digest)).first()
    if present is None:
        codec, packed = pack(data)
        row = {"digest": digest, "codec": codec, "size": len(data), "data": packed}
        connection.execute(insert(blobs), row)
    return digest


def get(connection: Connection, digest: str, last: LastPack | None = None) -> bytes:
    """Return the bytes whose digest is `digest`; raises DamagedStore when the store has no such
    bytes.
    """

    def fetch(query: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        return connection.execute(text(query), values).all()

    return read(fetch, digest, last or LastPack())
