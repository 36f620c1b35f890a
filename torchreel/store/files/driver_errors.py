"""Turns what the database driver raises into the errors of torchreel, in one place.

Attached to the engine of a store, so that every statement is covered and nobody else needs to
know the driver's exceptions.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from torchreel.errors import DamagedStore, LockedStore, NotAStore, StoreError
from torchreel.store.servers import driver_errors as of_servers

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

# The primary result codes of SQLite (https://www.sqlite.org/rescode.html), which extended ones
# carry in their low byte.
_MEANING: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (
        LockedStore,
        "is locked by another process: wait for it to end, or stop it.",
    ),
    sqlite3.SQLITE_LOCKED: (
        LockedStore,
        "is locked by another connection of this process: close that first.",
    ),
    sqlite3.SQLITE_READONLY: (
        LockedStore,
        "can't be written to: the file or its directory is read-only.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        LockedStore,
        "can't be opened: the file or its directory gives no permission.",
    ),
    sqlite3.SQLITE_PERM: (LockedStore, "can't be opened: permission denied."),
    sqlite3.SQLITE_CORRUPT: (
        DamagedStore,
        "is damaged: SQLite finds its pages inconsistent. Work on a copy of it.",
    ),
    sqlite3.SQLITE_INTERRUPT: (
        DamagedStore,
        "is damaged: a query takes longer than any does in a file of its size. Work on a copy.",
    ),
    sqlite3.SQLITE_TOOBIG: (
        DamagedStore,
        "is damaged: a value in it is longer than any of a file of its size. Work on a copy of it.",
    ),
    sqlite3.SQLITE_FORMAT: (DamagedStore, "is damaged: SQLite can't read it. Work on a copy."),
    sqlite3.SQLITE_NOTADB: (NotAStore, "is not a database, so it is no torchreel store."),
    sqlite3.SQLITE_FULL: (StoreError, "can't grow: the disk is full."),
    sqlite3.SQLITE_IOERR: (StoreError, "can't be read or written: the disk reports an error."),
}


_OF_STATEMENTS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)


def attach(engine: Engine, target: str) -> None:
    """Make every database error on `engine` that has a meaning here a StoreError about `target`."""
    from sqlalchemy import event

    @event.listens_for(engine, "handle_error")
    def _translate(context: ExceptionContext) -> None:
        if context.is_pre_ping:
            return  # SQLAlchemy makes another connection
        found = store_error(context.original_exception, target)
        if found is not None:
            raise found from context.original_exception


def store_error(error: BaseException, target: str) -> StoreError | None:
    """Return the StoreError that a driver's `error` stands for; None for an error of our own
    making.
    """
    if isinstance(error, UnicodeDecodeError):  # of SQLite's message, which has a name in it
        return DamagedStore(f"{target} is damaged: its tables have names that are not UTF-8.")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return of_servers.store_error(error, target)
    kind, sentence = _MEANING.get(code & 0xFF, (None, ""))
    if kind is not None:
        return kind(f"{target} {sentence}")
    # Our statements are right in a store that is: a table or a column that should be there is not.
    if code & 0xFF in _OF_STATEMENTS:
        return DamagedStore(f"{target} is damaged: the database says '{error}'.")
    return None
