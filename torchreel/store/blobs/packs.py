"""Packs: blobs that are kept together, in one zstd frame that grows with every transaction.

The graphs of one compile, and torch's own prints of them, say the same things over and over: what
one of them has said costs the next one nothing, even if a commit lies between them.  A row of
`packs` is a *part*: what one transaction added.  A part can be read as soon as it is committed, and
needs the parts before it; so a part stays as long as a blob in it or in a later one does.

Used by `direct` (to write) and `blobs` (to read); nothing of the database is known here.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import zstandard

from torchreel.errors import DamagedStore
from torchreel.store import limits
from torchreel.store.blobs import dictionaries

MOST_IN_PACK = 4 << 20
"""Bytes of a pack before compression: to read a blob, those before it are unpacked, in 5 ms."""
MAX_PACK_BYTES = 4 * MOST_IN_PACK
_PARAMETERS = zstandard.ZstdCompressionParameters(
    # looks back to the pack's beginning, with tables of 2 MB: a tenth less than level 6, as fast
    window_log=22, hash_log=18, chain_log=18, search_log=5, min_match=6,
    strategy=zstandard.STRATEGY_LAZY2,
)  # fmt: skip

PARTS = """SELECT id, size, data, dictionary FROM packs
WHERE id BETWEEN :first AND :last AND coalesce(first, id) = :first ORDER BY id"""
"""The query of the `Part`s of a pack, up to one of them, each after its id."""
DROP_UNUSED = """
WITH used(first, last) AS (
    SELECT coalesce(packs.first, packs.id), max(packs.id)
    FROM blobs JOIN packs ON packs.id = blobs.pack GROUP BY 1
)
DELETE FROM packs WHERE id NOT IN (
    SELECT packs.id
    FROM packs JOIN used ON used.first = coalesce(packs.first, packs.id) AND packs.id <= used.last
)"""
"""Run after blobs were deleted: deletes packs if neither they nor later parts hold a blob."""


class Part(NamedTuple):
    """A row of `packs`: the size of what it adds, and the next bytes of the frame."""

    size: int
    data: bytes
    dictionary: int | None


class OpenPack:
    """The pack that is being written: parts can be added to it until it is full."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        """End the pack: the next blobs begin a new one."""
        self.first: int | None = None
        self.last: int | None = None
        self.last_data = b""
        self.dictionary: int | None = None
        self._size = 0
        self._frame: zstandard.ZstdCompressionObj | None = None

    def add(self, blobs: Iterable[bytes]) -> Part:
        """Return the next part, with these blobs one after another; say `written` when it has a
        row.
        """
        data = b"".join(blobs)
        if self._size + len(data) > MOST_IN_PACK:
            self.end()
        if self._frame is None:
            self.dictionary = dictionaries.NEWEST
            self._frame = zstandard.ZstdCompressor(
                compression_params=_PARAMETERS, dict_data=_to_write_with(self.dictionary)
            ).compressobj()
        self._size += len(data)
        packed = self._frame.compress(data) + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return Part(len(data), packed, self.dictionary)

    def written(self, id: int, part: Part) -> None:
        """Note that the part that was added last is the row with that id."""
        self.first = id if self.first is None else self.first
        self.last, self.last_data = id, part.data


@cache
def _to_write_with(number: int | None) -> zstandard.ZstdCompressionDict | None:
    """Return a dictionary that is indexed once, not for each pack: that takes 3 ms."""
    found = dictionaries.get(number)
    if found is not None:
        found.precompute_compress(compression_params=_PARAMETERS)
    return found


def unpack_parts(digest: str, parts: Sequence[Part]) -> bytes:
    """Return all bytes of the parts of a pack, from its first one on.

    Raises DamagedStore for what is none; reads never more than the recorded size.
    """
    size, packed = sum(part.size for part in parts), b"".join(part.data for part in parts)
    most = min(MAX_PACK_BYTES, limits.unpacked(len(packed)))
    if size > most or any(part.size < 0 for part in parts):
        raise DamagedStore(
            f"The pack of blob {digest:.12} claims to be {size} bytes long, which no pack is."
        )
    known = dictionaries.get(parts[0].dictionary)
    data = decompress(digest, size, packed, known)
    if len(data) != size:
        raise DamagedStore(f"The pack of blob {digest:.12} is not as long as it says.")
    return data


def decompress(
    digest: str, size: int, packed: bytes, known: zstandard.ZstdCompressionDict | None = None
) -> bytes:
    """Return the content of a zstd frame, up to one byte more than `size`."""
    try:
        unpacker = zstandard.ZstdDecompressor(known, max_window_size=limits.MAX_WINDOW_BYTES)
        with unpacker.stream_reader(packed) as reader:
            return reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise DamagedStore(f"Blob {digest:.12} does not unpack: {error}.") from error
