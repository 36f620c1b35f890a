"""Content-addressed, compressed blobs: everything large in a store, kept once.

A blob's name is the sha256 of its bytes, so that graphs, sources and payloads are shared between
compiles, recordings and runs. Read by `database`, written by `writer` and
`files.direct`.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, text

from torchreel.store.blobs.packing import KEPT, Fetch, LastPack, read
from torchreel.store.blobs.packs import PARTS


def get(connection: Connection, digest: str, last: LastPack | None = None) -> bytes:
    """Return the bytes whose digest is `digest`; raises DamagedStore when the store has no such
    bytes.
    """

    def fetch(query: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        return connection.execute(text(query), values).all()

    return read(fetch, digest, last or LastPack())


_FEW = 32
"""Blobs that are read at a time: each comes with the part of a pack that it is in."""


def get_many(connection: Connection, digests: Iterable[str], last: LastPack) -> Iterator[bytes]:
    """Yield the bytes of blobs, as `get` returns them, with two statements for a few of them."""
    waiting = iter(digests)
    while few := list(itertools.islice(waiting, _FEW)):
        fetch = _fetched(connection, few)
        for digest in few:
            yield read(fetch, digest, last)


def _fetched(connection: Connection, digests: Sequence[str]) -> Fetch:
    """Return a function that executes queries, with the rows of some small blobs fetched before.

    Two queries fetch all of these rows at once. A blob is small if its row, or the only part of its
    pack, has at most `_SMALL` bytes. The function sends any other query to the database.
    """
    blobs_ = _by_first(connection, _SMALL_BLOBS, digests)
    packs = _by_first(connection, _SMALL_PACKS, [row[4] for row in blobs_.values()])

    def fetch(query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        if query == KEPT and (row := blobs_.get(values["digest"])) is not None:
            _, codec, size, data, pack_id, start = row
            if pack_id is None:
                return [(codec, size, data, None, start, None, None)]
            if pack_id in packs:
                return [(codec, size, data, pack_id, start, pack_id, packs[pack_id][2])]
        if query == PARTS and values["first"] == values["last"] and values["last"] in packs:
            return [packs[values["last"]]]
        return connection.execute(text(query), values).all()

    return fetch


_SMALL = 1 << 20
"""The most bytes in a row that is fetched together with others."""
_SMALL_BLOBS = f"""SELECT digest, codec, size, data, pack, start FROM blobs
WHERE digest IN :keys AND length(data) <= {_SMALL}"""
_SMALL_PACKS = f"""SELECT id, size, data, dictionary FROM packs
WHERE id IN :keys AND first IS NULL AND length(data) <= {_SMALL}"""


def _by_first(connection: Connection, query: str, keys: Iterable[Any]) -> dict[Any, Sequence[Any]]:
    """Return the rows of a query for some keys, by the first column."""
    wanted = [key for key in dict.fromkeys(keys) if isinstance(key, int | str)]
    if not wanted:
        return {}
    statement = text(query).bindparams(bindparam("keys", expanding=True))
    return {row[0]: tuple(row) for row in connection.execute(statement, {"keys": wanted})}
