"""How the bytes of a blob are kept: compressed, and never unpacked beyond their recorded size.

Blobs that are written together are kept together, in a *pack*: the graphs of one compile, and
torch's own prints of them, say the same things over and over, and what one of them has said costs
the next one nothing.  Used by `blobs` and `direct`; nothing of the database is known here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO

import zstandard

from torchreel.errors import DamagedStore, UnsupportedError

# Level 3 is zstd's own default: several times faster than the disk, for what a graph's text gains.
_LEVEL = 3
# A pack of 2 MB takes 10 ms more than at level 3, and a seventh less of the disk.
_PACK_LEVEL = 6
# Below this a zstd frame costs as much as it saves.
_RAW_BELOW = 64
# Refused on both sides, so that a store whose numbers lie can't make a reader allocate much.
MAX_BLOB_BYTES = 1 << 30
MOST_IN_PACK = 4 << 20
"""Bytes before compression: who wants one blob of a pack unpacks all of it, which takes 5 ms."""
MAX_PACK_BYTES = 4 * MOST_IN_PACK
PACKED = "pack"
"""The codec of a blob whose bytes are in a pack."""


@dataclass(frozen=True)
class Kept:
    """A row of `blobs`, with that of `packs` where there is one."""

    codec: str
    size: int
    data: bytes
    start: int | None = None
    pack_size: int | None = None
    pack_data: bytes | None = None


KEPT = """SELECT b.codec, b.size, b.data, b.start, p.size AS pack_size, p.data AS pack_data
FROM blobs AS b LEFT JOIN packs AS p ON p.id = b.pack WHERE b.digest = :digest"""
"""The query of a `Kept`."""
DROP_UNUSED = "DELETE FROM packs WHERE id NOT IN (SELECT pack FROM blobs WHERE pack IS NOT NULL)"
"""What to do after blobs were deleted: a pack goes with the last one that is in it."""


def pack(data: bytes) -> tuple[str, bytes]:
    """`data` as it is kept: the codec's name and the bytes.

    Raises UnsupportedError for more than a store takes.
    """
    if len(data) > MAX_BLOB_BYTES:
        raise UnsupportedError(
            f"A blob of {len(data)} bytes is larger than a store takes ({MAX_BLOB_BYTES} bytes)."
        )
    if len(data) < _RAW_BELOW:
        return "raw", data
    return "zstd", zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def pack_together(blobs: Iterable[bytes]) -> tuple[int, bytes]:
    """One pack of several blobs, one after another: its size when unpacked, and the bytes."""
    data = b"".join(blobs)
    return len(data), zstandard.ZstdCompressor(level=_PACK_LEVEL).compress(data)


def unpack(digest: str, kept: Kept, pack: bytes | None = None) -> bytes:
    """Undo `pack`, reading never more than the recorded size (a bomb is a damaged store).

    `pack` is the unpacked pack, where it is at hand.
    """
    if kept.codec == PACKED:
        data = _cut_out(digest, kept, unpack_pack(digest, kept) if pack is None else pack)
    elif kept.codec == "raw":
        data = kept.data
    elif kept.codec != "zstd":
        raise DamagedStore(f"Blob {digest:.12} is packed with {kept.codec!r}, which is not known.")
    elif not 0 <= kept.size <= MAX_BLOB_BYTES:
        raise DamagedStore(
            f"Blob {digest:.12} claims to be {kept.size} bytes long, which no blob is."
        )
    else:
        data = _decompress(digest, kept.size, kept.data)
    if len(data) != kept.size:
        raise DamagedStore(
            f"Blob {digest:.12} should be {kept.size} bytes long and unpacks to "
            f"{'more' if len(data) > kept.size else len(data)}."
        )
    return data


def unpack_pack(digest: str, kept: Kept) -> bytes:
    """All bytes of the pack that a blob is in."""
    if kept.pack_data is None or kept.pack_size is None:
        raise DamagedStore(f"Blob {digest:.12} is in a pack that the store lacks.")
    if not 0 <= kept.pack_size <= MAX_PACK_BYTES:
        raise DamagedStore(
            f"The pack of blob {digest:.12} claims to be {kept.pack_size} bytes long, which no "
            "pack is."
        )
    data = _decompress(digest, kept.pack_size, kept.pack_data)
    if len(data) != kept.pack_size:
        raise DamagedStore(f"The pack of blob {digest:.12} is not as long as it says.")
    return data


def _cut_out(digest: str, kept: Kept, pack: bytes) -> bytes:
    if kept.start is None or kept.start < 0 or kept.size < 0:
        raise DamagedStore(f"Blob {digest:.12} has no place in its pack.")
    return pack[kept.start : kept.start + kept.size]


def _decompress(digest: str, size: int, packed: bytes) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(BytesIO(packed)) as reader:
            return reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise DamagedStore(f"Blob {digest:.12} does not unpack: {error}.") from error
