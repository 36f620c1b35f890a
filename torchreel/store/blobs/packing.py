"""Compresses the bytes of blobs, and never unpacks them beyond their recorded size.

Alone, or with others in a pack (`packs`).  Used by `blobs` and `direct`; nothing of the database is
known here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import zstandard

from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.store import limits
from torchreel.store.blobs.packs import PARTS, Part, decompress, unpack_parts
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.limits import MAX_BLOB_BYTES

# Level 3 is zstd's own default: several times faster than the disk, for what a graph's text gains.
_LEVEL = 3
# Below this a zstd frame costs as much as it saves.
_RAW_BELOW = 64
PACKED = "pack"
"""The codec of a blob whose bytes are in a pack."""


class Kept(NamedTuple):
    """A row of `blobs`, with the first part of its pack and the bytes of its own part."""

    codec: str
    size: int
    data: bytes
    pack: int | None = None
    start: int | None = None
    first: int | None = None
    part: bytes | None = None


KEPT = """SELECT b.codec, b.size, b.data, b.pack, b.start, coalesce(p.first, p.id), p.data
FROM blobs AS b LEFT JOIN packs AS p ON p.id = b.pack WHERE b.digest = :digest"""
"""The query of a `Kept`."""
Fetch = Callable[[str, Mapping[str, object]], Sequence[Sequence[Any]]]
"""Executes a query with its values, and gives the rows."""


def pack(data: bytes) -> tuple[str, bytes]:
    """Return `data` as it is kept: the codec's name and the bytes.

    Raises UnsupportedError for more than a store takes.
    """
    if len(data) > MAX_BLOB_BYTES:
        raise UnsupportedError(
            f"A blob of {len(data)} bytes is larger than a store takes ({MAX_BLOB_BYTES} bytes)."
        )
    if len(data) < _RAW_BELOW:
        return "raw", data
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(data)
    # What a reader would take for a bomb is kept as it is.
    return ("zstd", packed) if len(data) <= limits.unpacked(len(packed)) else ("raw", data)


def unpack(digest: str, kept: Kept, part: bytes = b"") -> bytes:
    """Undo `pack`, reading never more than the recorded size (a bomb is a damaged store).

    `part` is the content of the part of a pack that the blob is in.
    """
    if kept.codec == PACKED:
        data = _cut_out(digest, kept, part)
    elif kept.codec == "raw":
        data = kept.data
    elif kept.codec != "zstd":
        raise DamagedStore(f"Blob {digest:.12} is packed with {kept.codec!r}, which is not known.")
    elif not 0 <= kept.size <= limits.unpacked(len(kept.data)):
        raise DamagedStore(
            f"Blob {digest:.12} claims to be {kept.size} bytes long, which no blob is that takes "
            f"{len(kept.data)} of a file."
        )
    else:
        data = decompress(digest, kept.size, kept.data)
    if len(data) != kept.size:
        raise DamagedStore(
            f"Blob {digest:.12} should be {kept.size} bytes long and unpacks to "
            f"{'more' if len(data) > kept.size else len(data)}."
        )
    return data


def _cut_out(digest: str, kept: Kept, part: bytes) -> bytes:
    if kept.start is None or kept.start < 0 or kept.size < 0:
        raise DamagedStore(f"Blob {digest:.12} has no place in its pack.")
    return part[kept.start : kept.start + kept.size]


class LastPack:
    """The pack that was unpacked last: blobs that are read together were written together."""

    def __init__(self) -> None:
        self._parts: dict[int | None, tuple[bytes, bytes]] = {}

    def part_of(self, digest: str, kept: Kept, fetch: Fetch) -> bytes:
        """Return the content of the part that a blob is in; `fetch` gets the `PARTS`, in order."""
        packed, data = self._parts.get(kept.pack, (None, b""))
        if packed is None or packed != kept.part:
            self._parts = self._unpacked(digest, kept, fetch)
            if kept.pack not in self._parts:  # an index that does not agree with its table
                raise DamagedStore(f"Blob {digest:.12} is in a pack that the store lacks.")
            data = self._parts[kept.pack][1]
        return data

    @staticmethod
    def _unpacked(digest: str, kept: Kept, fetch: Fetch) -> dict[int | None, tuple[bytes, bytes]]:
        rows = fetch(PARTS, {"first": kept.first, "last": kept.pack})
        if not rows or kept.part is None:
            raise DamagedStore(f"Blob {digest:.12} is in a pack that the store lacks.")
        parts = {row[0]: _typed(digest, row[1:], Part) for row in rows}
        whole = unpack_parts(digest, list(parts.values()))
        found, start = {}, 0
        for id, part in parts.items():
            found[id] = (part.data, whole[start : start + part.size])
            start += part.size
        return found


_DIGEST = re.compile(r"[0-9a-f]{64}")
_Typed = TypeVar("_Typed", Kept, Part)


def _typed(digest: str, row: Sequence[Any], kind: type[_Typed]) -> _Typed:
    """Return a row whose values are what its fields say: SQLite keeps text in a column of
    numbers.
    """
    # Imported late: a process that is recorded reads its own blobs only to delete them.
    from torchreel.store.reading.typed import convert

    try:
        return convert(tuple(row), kind)
    except ValueError as error:
        found = f"table {'blobs' if kind is Kept else 'packs'}: {error}"
        raise DamagedStore(f"Blob {digest:.12} is not kept as blobs are ({found}).") from error


def read(fetch: Fetch, digest: str, last: LastPack) -> bytes:
    """Return the bytes of a blob, checked against its digest; `fetch` executes the queries.

    Raises DamagedStore for a blob that is missing or damaged.
    """
    if not _DIGEST.fullmatch(digest):
        raise DamagedStore(f"The store refers to blob {digest!r:.40}, which is no digest.")
    rows = fetch(KEPT, {"digest": digest})
    if not rows:
        raise DamagedStore(f"The store refers to blob {digest:.12}, which is not in it.")
    kept = _typed(digest, rows[0], Kept)
    part = last.part_of(digest, kept, fetch) if kept.codec == PACKED else b""
    data = unpack(digest, kept, part)
    if digest_of(data) != digest:
        raise DamagedStore(
            f"Blob {digest:.12} is not what was stored: its {len(data)} bytes have another digest."
        )
    return data
