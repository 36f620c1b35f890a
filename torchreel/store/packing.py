"""How the bytes of a blob are kept: compressed, and never unpacked beyond their recorded size.

Used by `blobs` and `direct`; nothing of the database is known here.
"""

from io import BytesIO

import zstandard

from torchreel.errors import DamagedStore, UnsupportedError

# Level 3 is zstd's own default: several times faster than the disk, for what a graph's text gains.
_LEVEL = 3
# Below this a zstd frame costs as much as it saves.
_RAW_BELOW = 64
# Refused on both sides, so that a store whose numbers lie can't make a reader allocate much.
MAX_BLOB_BYTES = 1 << 30


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
