"""Bytes that SQLite has not overwritten: free pages, gaps within pages, and logs beside the file.

A row that was deleted stays in the file until its place is needed. Lives here: finding such bytes,
and unpacking the zstd frames among them, as far as they are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import zstandard

from torchreel.store.blobs import dictionaries

_MAGIC = b"\x28\xb5\x2f\xfd"
_TABLES = {2: 12, 5: 12, 10: 8, 13: 8}
"""Kinds of pages of a b-tree, with the bytes of their headers."""
_MOST_UNPACKED = 64 << 20
_WORDS = re.compile(rb"[\x20-\x7e]{4,}")
_LOGS = ("-wal", "-journal")


def leftovers(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each printable run in space that is not in use."""
    data = path.read_bytes()
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    if size >= 512 and data.startswith(b"SQLite format 3\0"):
        pages = _Pages(data, size)
        for number in pages.free():
            yield from _texts(f"free page {number}", pages.with_overflow(number))
        for number in range(1, pages.count + 1):
            for gap in pages.gaps(number):
                yield from _texts(f"unused space of page {number}", gap)
    for ending in _LOGS:
        log = path.with_name(path.name + ending)
        if log.exists() and log.stat().st_size:
            yield from _texts(log.name.removeprefix(path.name), log.read_bytes())


class _Pages:
    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size
        self.count = len(data) // size
        self._free: set[int] = set()

    def page(self, number: int) -> bytes:
        return self._data[(number - 1) * self._size : number * self._size]

    def free(self) -> list[int]:
        """Return the numbers of the pages that no table uses."""
        trunk, seen = int.from_bytes(self._data[32:36], "big"), set[int]()
        while 0 < trunk <= self.count and trunk not in seen:
            seen.add(trunk)
            page = self.page(trunk)
            held = min(int.from_bytes(page[4:8], "big"), self._size // 4 - 2)
            leaves = [int.from_bytes(page[8 + 4 * i : 12 + 4 * i], "big") for i in range(held)]
            seen.update(number for number in leaves if 0 < number <= self.count)
            trunk = int.from_bytes(page[:4], "big")
        self._free = seen
        return sorted(seen)

    def with_overflow(self, number: int) -> bytes:
        """Return a free page, and those that a long value went on in, if it is one of these."""
        found, seen = [self.page(number)], {number}
        following = int.from_bytes(found[0][:4], "big")
        while following in self._free and following not in seen:
            seen.add(following)
            page = self.page(following)
            found.append(page[4:])
            following = int.from_bytes(page[:4], "big")
        return b"".join(found)

    def gaps(self, number: int) -> Iterator[bytes]:
        """Yield the unused parts of a page of a b-tree."""
        page = self.page(number)
        start = 100 if number == 1 else 0
        header = _TABLES.get(page[start]) if number not in self._free else None
        if header is None:
            return
        cells = int.from_bytes(page[start + 3 : start + 5], "big")
        content = int.from_bytes(page[start + 5 : start + 7], "big") or 65536
        yield page[start + header + 2 * cells : content]
        block, seen = int.from_bytes(page[start + 1 : start + 3], "big"), set[int]()
        while 0 < block < self._size - 3 and block not in seen:
            seen.add(block)
            length = int.from_bytes(page[block + 2 : block + 4], "big")
            yield page[block + 4 : block + length]
            block = int.from_bytes(page[block : block + 2], "big")


def _texts(place: str, data: bytes) -> Iterator[tuple[str, str]]:
    for found in _WORDS.finditer(data):
        yield place, found[0].decode("ascii")
    at = data.find(_MAGIC)
    while at >= 0:
        for found in _WORDS.finditer(_unpacked(data[at:])):
            yield f"{place}, unpacked", found[0].decode("ascii")
        at = data.find(_MAGIC, at + 1)


def _unpacked(data: bytes) -> bytes:
    """Return as much of a frame as can be unpacked, with whatever dictionary it was made."""
    best = b""
    for number in (None, *range(1, (dictionaries.NEWEST or 0) + 1)):
        unpacker = zstandard.ZstdDecompressor(dictionaries.get(number)).decompressobj()
        found = bytearray()
        try:
            for start in range(0, len(data), 256):
                found += unpacker.decompress(data[start : start + 256])
                if len(found) > _MOST_UNPACKED or unpacker.eof:
                    break
        except zstandard.ZstdError:
            pass
        best = max(best, bytes(found), key=len)
    return best
