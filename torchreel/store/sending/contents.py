"""The blobs that rows name, and those that they name in turn; each is verified as it is read.

Whatever looks like a digest and is one counts, as in `torchreel.store.deletion.blobs`: no list of
columns could ever miss one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlalchemy import select

from torchreel.errors import UnreadableSource
from torchreel.store import limits
from torchreel.store.copying import reading
from torchreel.store.database import Store
from torchreel.store.schema import blobs

_CHUNK = 500
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


class SourceBlobs:
    """The blobs of a store that is pushed."""

    def __init__(self, source: Store) -> None:
        self._source = source
        self._sizes: dict[str, int] = {}
        self._asked: set[str] = set()

    def named_by(self, texts: Iterable[str]) -> list[str]:
        """Return the digests of all that the texts lead to, in the order in which they are met.

        Raises UnreadableSource for a blob that is not what its digest says, or too large to send.
        """
        found: dict[str, None] = {}
        waiting = self._in(b"\n".join(text.encode() for text in texts))[::-1]
        while waiting:
            digest = waiting.pop()
            if digest not in found:
                found[digest] = None
                waiting += self._in(self.read(digest))
        return list(found)

    def read(self, digest: str) -> bytes:
        """Return the bytes of a blob, verified.  Raises UnreadableSource as `named_by` does."""
        if self._sizes[digest] > limits.PUSHED_BLOB:
            raise UnreadableSource(
                f"{self._source.target} has a blob {digest:.12} of {self._sizes[digest]} bytes; "
                f"one that is sent has {limits.PUSHED_BLOB} at most."
            )
        with reading():
            return self._source.read_blob(digest)

    def _in(self, data: bytes) -> list[str]:
        found = [match.decode() for match in _DIGEST.findall(data)]
        unknown = sorted({*found} - self._asked)
        for start in range(0, len(unknown), _CHUNK):
            chunk = unknown[start : start + _CHUNK]
            query = select(blobs.c.digest, blobs.c.size).where(blobs.c.digest.in_(chunk))
            with reading():
                rows = self._source.rows(query)
            self._sizes |= {row.digest: row.size for row in rows}
        self._asked.update(unknown)
        return [digest for digest in found if digest in self._sizes]
