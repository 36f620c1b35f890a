"""Connections to a file that a stranger may have written: what SQLite is let do with it.

Lives here: settings, limits, and the count of steps that ends a query which would not end.  Not
here: how the file is opened (`sqlite_files`).  https://www.sqlite.org/security.html says why.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from torchreel.store import limits

_LOOK = 1_000_000
"""Steps between two looks at the count: some fifty milliseconds."""


class Guarded(sqlite3.Connection):
    """A connection whose transactions take a limited number of steps."""

    _left = limits.SQL_STEPS
    _path: Path | None = None

    def guard(self, path: Path, *, write: bool) -> None:
        """Set it up for the file at `path`."""
        self._path, size = path.absolute(), bytes_of(path)
        self._left = limits.steps(size)
        self.text_factory = _text
        self.execute("PRAGMA trusted_schema = OFF")
        self.execute("PRAGMA cell_size_check = ON")
        self.execute("PRAGMA mmap_size = 0")
        longest = limits.MAX_BLOB_BYTES if write else limits.value_bytes(size)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        self.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, limits.SQL_DEPTH)
        self.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, limits.SQL_DEPTH)
        self.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, limits.SQL_CASCADE)
        self.set_progress_handler(self._step, _LOOK)

    def begin(self) -> None:
        """Count from the beginning: another transaction begins, and the file may have grown."""
        self._left = limits.steps(bytes_of(self._path) if self._path else 0)

    def _step(self) -> int:
        self._left -= _LOOK
        return int(self._left < 0)


def _text(data: bytes) -> str:
    # What is no UTF-8 becomes lone surrogates, which `rows` finds: sqlite3 would only say that
    # some column can't be decoded, and all other rows would be lost with it.
    return data.decode("utf-8", "surrogateescape")


def bytes_of(path: Path) -> int:
    """Return the size of a file and its log, as far as they are there."""
    real, size = path.resolve(), 0
    for each in (real, real.with_name(f"{real.name}-wal")):
        with suppress(OSError):
            size += each.stat().st_size
    return size
