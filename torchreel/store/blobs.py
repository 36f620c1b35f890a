"""Content-addressed, compressed blobs: everything large in a store, kept once.

A blob's name is the sha256 of its bytes, so that graphs, sources and payloads are shared between
compiles, recordings and runs. Called by `writer` (to put) and `database` (to get).
"""

from sqlalchemy import Connection, insert, select

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import digest_of
from torchreel.store.packing import pack, unpack
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


def get(connection: Connection, digest: str) -> bytes:
    """The bytes whose digest is `digest`; raises DamagedStore when the store has no such bytes."""
    columns = select(blobs.c.codec, blobs.c.size, blobs.c.data).where(blobs.c.digest == digest)
    row = connection.execute(columns).first()
    if row is None:
        raise DamagedStore(f"The store refers to blob {digest:.12}, which is not in it.")
    data = unpack(digest, row.codec, row.size, row.data)
    if digest_of(data) != digest:
        raise DamagedStore(
            f"Blob {digest:.12} is not what was stored: its {len(data)} bytes have another digest."
        )
    return data
