"""Says of a new store that it is about to be recorded into, so that nobody deletes it as empty.

Lives here: the claim of a command that runs a program, as a lock of the whole file (`flock`), which
does not meet SQLite's locks of its bytes.  Not here: recording; whoever has written a row needs no
claim.  Called by `torchreel.recorder.launch`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from torchreel.store.database import Store
from torchreel.store.files import locks


class Claim:
    """A claim on a store; none where the file system does not lock whole files."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self._path = path
        self._handle = handle

    def delete_empty(self) -> None:
        """Delete the store if no recording is in it, and nobody else claims it."""
        from torchreel.store import queries

        if self._handle is None or not _lock(self._handle, alone=True):
            return
        with Store.open(self._path) as store:
            is_empty = not queries.recordings(store)
        if is_empty:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._path}{suffix}")


@contextlib.contextmanager
def claimed(target: str) -> Iterator[Claim]:
    """Claim a store; on a network, where such a lock may be SQLite's own, there is no claim."""
    path = Path(target)
    handle = None
    if "://" not in target and not locks.is_on_network(path.parent):
        with contextlib.suppress(OSError, ValueError):
            handle = os.open(path, os.O_RDONLY)
    try:
        yield Claim(path, handle if handle is not None and _lock(handle, alone=False) else None)
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int, *, alone: bool) -> bool:
    """Lock a file, alone or with others; False where that is impossible now."""
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
