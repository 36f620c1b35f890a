"""The identity of what is pushed: the same from wherever, and however often, it is pushed.

Numbers of rows are a store's own.  A process writes one recording at a time, so that its run, its
id and the nanosecond at which it began name one recording among all machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Row, select

from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of
from torchreel.store.schema import origins

_CHUNK = 500
"""Digests that one query asks for: SQLite takes some thousand parameters."""


def identity(kind: str, *parts: Json) -> str:
    """Return the digest that stands for one thing of a kind among all machines."""
    return digest_of(canonical_json([kind, *parts]))


def of_recording(row: Row[tuple[object, ...]]) -> str:
    """Return the identity of a row of `recordings`."""
    return identity("recording", row.run, row.kind, row.pid, row.rank, row.started_ns)


def known(store: Store, digests: Sequence[str]) -> set[str]:
    """Return those of the identities that are in a store already."""
    found: set[str] = set()
    for start in range(0, len(digests), _CHUNK):
        chunk = digests[start : start + _CHUNK]
        query = select(origins.c.digest).where(origins.c.digest.in_(chunk))
        found.update(row.digest for row in store.rows(query))
    return found
