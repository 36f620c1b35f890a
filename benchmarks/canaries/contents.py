"""All bytes of files, unpacked as often as they are packed, and the secrets in them.

Nothing of `torchreel` is used for it but what knows of a store's dictionaries
(`benchmarks.share.canaries`).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard
from ahocorasick_rs import BytesAhoCorasick

from benchmarks.share import canaries

_SQLITE, _GZIP, _ZIP, _ZSTD = b"SQLite format 3\0", b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{80,}={0,2}")
_LEAST = 10
"""Characters of a canary that are looked for in base64, whose ends depend on what stands beside."""


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file in a folder, and of what is packed in it."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = str(file.relative_to(folder))
            yield name, name.encode()
            data = file.read_bytes()
            stored = canaries.contents(file) if data.startswith(_SQLITE) else [data]
            for part in stored:
                yield from ((name, found) for found in _unpacked(part))


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and what they are when decoded or decompressed, in whatever depth."""
    yield data
    for part in (*_compressed(data), *_encoded(data)):
        yield from _unpacked(part)


def _compressed(data: bytes) -> Iterator[bytes]:
    if data.startswith(_GZIP):
        yield gzip.decompress(data)
    elif data.startswith(_ZSTD):
        yield zstandard.ZstdDecompressor().decompressobj().decompress(data)
    elif data.startswith(_ZIP):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def _encoded(data: bytes) -> Iterator[bytes]:
    """Yield what is in base64, inflated where it is deflated."""
    for match in _BASE64.finditer(data):
        try:
            found = base64.b64decode(match[0], validate=True)
        except binascii.Error:
            continue
        yield found
        for bits in (-15, 15):
            try:
                yield zlib.decompress(found, wbits=bits)
            except zlib.error:
                continue


def spelled(text: str) -> Iterator[bytes]:
    """Yield a text as it may be written: as it is, in hex, in base64 at whatever offset."""
    data = text.encode()
    yield from (data, data.hex().encode(), text.encode("utf-16-le"))
    for offset in range(3):
        whole = base64.b64encode(b"x" * offset + data)
        middle = whole[4 if offset else 0 : len(whole) - 4]
        if len(middle) >= _LEAST:
            yield middle


class Search:
    """Finds any of many texts in many bytes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._of = {form: text for text in texts for form in spelled(text)}
        self._forms = list(self._of)
        self._automaton = BytesAhoCorasick(self._forms)

    def found(self, parts: Iterable[tuple[str, bytes]]) -> dict[str, set[str]]:
        """Return the texts that are there, each with the names of the files that it is in."""
        found: dict[str, set[str]] = {}
        for name, data in parts:
            for number, _, _ in self._automaton.find_matches_as_indexes(data):
                found.setdefault(self._of[self._forms[number]], set()).add(name)
        return found
