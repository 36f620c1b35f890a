"""Content-addressed, compressed blobs: everything large in a store, kept once.

A blob's name is the sha256 of its bytes, so that graphs, sources and payloads are shared between
compiles, recordings and runs. Called by `writer` (to put) and `database` (to get).
"""

from io import BytesIO

import zstandard
from sqlalchemy import Connection, insert, select

from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.store.jsontypes import digest_of
from torchreel.store.schema import blobs

# Level 3 is zstd's own default: several times faster than the disk, for what a graph's text gains.
_LEVEL = 3
# Below this a zstd frame costs as much as it saves.
_RAW_BELOW = 64
# Refused on both sides, so that a store whose numbers lie can't make a reader allocate much.
MAX_BLOB_BYTES = 1 << 30


def put(connection: Connection, data: bytes) -> str:
    """Store `data` unless it is there already, and return its digest."""
    digest = digest_of(data)
    if len(data) > MAX_BLOB_BYTES:
        raise UnsupportedError(
            f"A blob of {len(data)} bytes is larger than a store takes ({MAX_BLOB_BYTES} bytes)."
        )
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


def pack(data: bytes) -> tuple[str, bytes]:
    """`data` as it is kept: the codec's name and the bytes."""
    if len(data) < _RAW_BELOW:
        return "raw", data
    return "zstd", zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(digest: str, codec: str, size: int, packed: bytes) -> bytes:
    """Undo `pack`, reading never more than the recorded size (a bomb is a damaged store)."""
    if codec == "raw":
        data = packed
    elif codec != "zstd":
        raise DamagedStore(f"Blob {digest:.12} is packed with {codec!r}, which is not known.")
    elif not 0 <= size <= MAX_BLOB_BYTES:
        raise DamagedStore(f"Blob {digest:.12} claims to be {size} bytes long, which no blob is.")
    else:
        data = _decompress(digest, size, packed)
    if len(data) != size:
        raise DamagedStore(
            f"Blob {digest:.12} should be {size} bytes long and unpacks to "
            f"{'more' if len(data) > size else len(data)}."
        )
    return data


def _decompress(digest: str, size: int, packed: bytes) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(BytesIO(packed)) as reader:
            return reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise DamagedStore(f"Blob {digest:.12} does not unpack: {error}.") from error
