"""Blobs: kept once, verified when read, and never larger than they say."""

import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.store import Store
from torchreel.store.blobs import packing
from torchreel.store.documents.jsontypes import digest_of

LARGE = b"a graph's text, over and over. " * 1000


@given(st.binary() | st.binary(max_size=9).map(lambda part: part * 1000))
def test_unpacking_undoes_packing(data: bytes) -> None:
    codec, packed = packing.pack(data)
    assert packing.unpack("digest", packing.Kept(codec, len(data), packed)) == data


@pytest.mark.parametrize("data", [b"", b"x", LARGE, os.urandom(1000)])
def test_reading_gives_back_what_was_written(store: Store, data: bytes) -> None:
    with store.writer() as w:
        digest = w.blob(data)
    assert digest == digest_of(data)
    assert store.read_blob(digest) == data


def test_the_same_bytes_are_kept_once_and_compressed(store: Store) -> None:
    with store.writer() as w:
        assert w.blob(LARGE) == w.blob(bytearray(LARGE)[:])
    with store.connect() as connection:
        ((count, kept),) = connection.execute(text("SELECT count(*), sum(length(data)) FROM blobs"))
    assert count == 1
    assert kept < len(LARGE) / 20


def test_a_missing_blob(store: Store) -> None:
    with pytest.raises(DamagedStore, match="not in it"):
        store.read_blob("0" * 64)


BOMB = zstandard.ZstdCompressor().compress(bytes(50_000_000))
# a frame that doesn't say how long its content is
SILENT_BOMB = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50_000_000))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"data": packing.pack(LARGE[:-1] + b"!")[1]}, "another digest"),
        ({"data": packing.pack(LARGE)[1][:-5]}, r"unpacks to|does not unpack"),
        ({"data": b"no zstd frame at all"}, "does not unpack"),
        ({"data": b""}, "unpacks to 0"),
        ({"data": BOMB}, "unpacks to more"),
        ({"data": SILENT_BOMB}, "unpacks to more"),
        ({"size": len(LARGE) + 1}, "should be"),
        ({"size": 10}, "unpacks to more"),
        ({"size": 2**40}, "which no blob is"),
        ({"size": -1}, "which no blob is"),
        ({"codec": "pickle"}, "not known"),
        ({"codec": "raw"}, "should be"),
    ],
)
def test_a_blob_that_is_not_what_was_stored(
    store: Store, change: dict[str, object], complaint: str
) -> None:
    with store.writer() as w:
        digest = w.blob(LARGE)
        (column,) = change
        w.connection.execute(text(f"UPDATE blobs SET {column} = :{column}"), change)
    with pytest.raises(DamagedStore, match=complaint):
        store.read_blob(digest)


def test_a_blob_too_large_for_any_reader_is_not_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_BLOB_BYTES", 100)
    with pytest.raises(UnsupportedError, match="larger"), store.writer() as w:
        w.blob(LARGE)
