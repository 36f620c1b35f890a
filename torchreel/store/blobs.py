"""Content-addressed, compressed blobs: everything large in a store, kept once.

A blob's name is the sha256 of its bytes, so that graphs, sources and payloads are shared between
compiles, recordings and runs. Called by `writer` (to put) and `database` (to get).
"""

from sqlalchemy import Connection, insert, select, text

from torchreel.errors import DamagedStore
from torchreel.store.jsontypes import digest_of
from torchreel.store.packing import KEPT, PACKED, Kept, pack, unpack, unpack_pack
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


class LastPack:
    """The pack that was unpacked last: blobs that are read together were written together."""

    def __init__(self) -> None:
        self._last: tuple[bytes, bytes] = (b"", b"")

    def of(self, digest: str, kept: Kept) -> bytes:
        """The pack that a blob is in, unpacked."""
        packed, data = self._last
        if kept.pack_data != packed or not packed:
            data = unpack_pack(digest, kept)
            self._last = (kept.pack_data or b"", data)
        return data


def get(connection: Connection, digest: str, last: LastPack | None = None) -> bytes:
    """The bytes whose digest is `digest`; raises DamagedStore when the store has no such bytes."""
    row = connection.execute(text(KEPT), {"digest": digest}).first()
    if row is None:
        raise DamagedStore(f"The store refers to blob {digest:.12}, which is not in it.")
    kept = Kept(*row)
    pack = last.of(digest, kept) if last is not None and kept.codec == PACKED else None
    data = unpack(digest, kept, pack)
    if digest_of(data) != digest:
        raise DamagedStore(
            f"Blob {digest:.12} is not what was stored: its {len(data)} bytes have another digest."
        )
    return data
