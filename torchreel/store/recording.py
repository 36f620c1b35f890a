"""Opens a store to record into: a SQLite file directly, anything else through SQLAlchemy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.store.files import direct, sqlite_files
from torchreel.store.files.descriptors import standard_ones_stay_closed
from torchreel.store.reading.file_schema import computed_part
from torchreel.store.revision import REVISION

if TYPE_CHECKING:
    from torchreel.store.database import Store
    from torchreel.store.files.direct import DirectStore


def open_for_recording(target: str) -> DirectStore | Store:
    """Return the store to record into; a file that is missing is created, or migrated.

    Raises StoreError for a file that is no store.  What is no file of this version (a server, an
    older store) is opened by `Store`, which knows how.
    """
    with standard_ones_stay_closed():
        return _open_for_recording(target)


def _open_for_recording(target: str) -> DirectStore | Store:
    path = None if "://" in target else Path(target)
    if path is not None and not sqlite_files.has_content(path):
        sqlite_files.create(path, direct.write_schema)
    if path is not None:
        sqlite_files.check(path, write=True)
        store = direct.DirectStore(path)
        if store.revision == REVISION and not computed_part(store.schema()):
            return store
        store.close()
    from torchreel.store.database import Store

    return Store.open(target, write=True, create=path is not None)


def is_done(store: DirectStore | Store, recording_id: int | None) -> bool:
    """Return True if the store says that a recording has ended."""
    if isinstance(store, direct.DirectStore):
        store.check_descriptors()
        query = "SELECT status FROM recordings WHERE id = ?"
        found = store.connection.execute(query, (recording_id,)).fetchone()
    else:
        from sqlalchemy import select

        from torchreel.store.schema import recordings as table

        with store.connect() as connection:
            rows = connection.execute(select(table.c.status).where(table.c.id == recording_id))
            found = rows.first()
    return found is not None and found[0] == "done"
