"""Looks for canaries in every byte of a file, as many ways as they may be written.

Nothing of `torchreel.sharing` is used for it: a store is unpacked here by its own code.
"""

from __future__ import annotations

import base64
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import zstandard

from torchreel.store.blobs import dictionaries

Canary = str | int | float
_LOGS = ("", "-wal", "-shm", "-journal")


def contents(path: Path) -> list[bytes]:
    """Return the bytes of a store and its logs, and each blob and pack of it unpacked."""
    files = [path.with_name(path.name + ending) for ending in _LOGS]
    found = [file.read_bytes() for file in files if file.exists()]
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in database.execute(f"SELECT * FROM {table}"):
                found += [cell.encode("utf-8", "replace") for cell in row if isinstance(cell, str)]
        for codec, data in database.execute("SELECT codec, data FROM blobs WHERE pack IS NULL"):
            found += [data, _unpacked(data, None)] if codec == "zstd" else [data]
        parts: dict[int, tuple[int | None, bytes]] = {}
        query = "SELECT id, first, dictionary, data FROM packs ORDER BY id"
        for number, first, dictionary, data in database.execute(query):
            begins = number if first is None else first
            known, before = parts.get(begins, (dictionary, b""))
            parts[begins] = known, before + data
        found += [_unpacked(data, known) for known, data in parts.values()]
    return found


def _unpacked(data: bytes, dictionary: int | None) -> bytes:
    unpacker = zstandard.ZstdDecompressor(dictionaries.get(dictionary)).decompressobj()
    return unpacker.decompress(data)


def found_in(data: list[bytes], canaries: Mapping[str, Canary]) -> list[str]:
    """Return the canaries that are anywhere in the data, in whatever spelling."""
    whole = b"\n".join(data)
    lower = whole.lower()
    return [
        key
        for key, canary in canaries.items()
        if any(form in whole or form in lower for form in _forms(canary))
    ]


def _forms(canary: Canary) -> list[bytes]:
    if isinstance(canary, str):
        plain = canary.encode()
        forms = [plain, plain.lower(), plain.upper(), canary.encode("utf-16-le")]
    elif isinstance(canary, float):
        single = struct.unpack("<f", struct.pack("<f", canary))[0]
        forms = [repr(canary).encode(), struct.pack("<d", canary), struct.pack(">d", canary)]
        forms += [_mantissa(canary), _mantissa(single), repr(single)[:12].encode()]
    else:
        forms = [str(canary).encode(), struct.pack("<q", canary), struct.pack(">q", canary)]
        forms.append(hex(canary)[2:].encode())
    return [*forms, *(form.hex().encode() for form in forms), *_in_base64(forms[0])]


def _mantissa(number: float) -> bytes:
    """Return a number as `float.hex` spells it, less its sign and exponent.

    With the point: the digits alone, of a float32 six at most, are in some digest by chance.
    """
    return number.hex().partition("0x")[2].partition("p")[0].rstrip("0").encode()


def _in_base64(plain: bytes) -> list[bytes]:
    """Return the middle of each of the three ways in which base64 may write a text in another."""
    found = []
    for before in range(3):
        text = base64.b64encode(b"\0" * before + plain)
        found.append(text[4 if before else 0 : len(text) - 4])
    return [*found, *(text.lower() for text in found)]
