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
_OTHER_WORDS = re.compile(rb"(?:[\xc3-\xdf][\x80-\xbf][ ]?){6,}|(?:[\xe1-\xec][\x80-\xbf]{2}){3,}")
"""Letters of two or three bytes in UTF-8, more of them than occur by chance."""
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
            for last, tail in pages.tails(number):
                yield from _texts(f"unused space of page {last}", tail)
        yield from _texts("behind the last page", data[pages.count * size :])
    for ending in _LOGS:
        log = path.with_name(path.name + ending)
        if log.exists() and log.stat().st_size:
            yield from _texts(log.name.removeprefix(path.name), log.read_bytes())


class _Pages:
    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size
        self._usable = size - data[20]
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

    def tails(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield the pages, and their unused ends, at which long values of a b-tree page end."""
        page, start = self.page(number), 100 if number == 1 else 0
        kind = page[start]
        if kind not in (2, 10, 13) or number in self._free:
            return
        cells = int.from_bytes(page[start + 3 : start + 5], "big")
        pointers = page[start + _TABLES[kind] :][: 2 * cells]
        for place in range(0, len(pointers) - 1, 2):
            at = int.from_bytes(pointers[place : place + 2], "big") + (4 if kind == 2 else 0)
            length, at = _varint(page, at)
            if kind == 13:  # the number of a row
                _, at = _varint(page, at)
            here = self._local(length, is_index=kind != 13)
            following = int.from_bytes(page[at + here : at + here + 4], "big")
            if here < length:
                yield from self._tail(following, length - here)

    def _local(self, length: int, *, is_index: bool) -> int:
        """Return how much of a value is in its cell (the file format of SQLite, section 1.6)."""
        least = (self._usable - 12) * 32 // 255 - 23
        most = (self._usable - 12) * 64 // 255 - 23 if is_index else self._usable - 35
        if length <= most:
            return length
        here = least + (length - least) % (self._usable - 4)
        return here if here <= most else least

    def _tail(self, number: int, left: int) -> Iterator[tuple[int, bytes]]:
        room, seen = self._usable - 4, set[int]()
        while 0 < number <= self.count and number not in seen:
            seen.add(number)
            page = self.page(number)
            if left <= room:
                yield number, page[4 + left :]
                return
            number, left = int.from_bytes(page[:4], "big"), left - room


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of SQLite's, and where it ends."""
    value = 0
    for step, byte in enumerate(data[at : at + 9]):
        if step == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    return value, len(data)


def _texts(place: str, data: bytes) -> Iterator[tuple[str, str]]:
    yield from ((place, text) for text in _readable(data))
    at = data.find(_MAGIC)
    while at >= 0:
        yield from ((f"{place}, unpacked", text) for text in _readable(_unpacked(data[at:])))
        at = data.find(_MAGIC, at + 1)


def _readable(data: bytes) -> Iterator[str]:
    """Yield the printable runs, in ASCII and in other alphabets."""
    for pattern in (_WORDS, _OTHER_WORDS):
        for found in pattern.finditer(data):
            yield found[0].decode("utf-8", "replace")


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
