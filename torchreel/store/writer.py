"""Puts rows into a store: a batch, inside one transaction.

Used by replay, by the minifier and by a recorder whose store is on a server (one with a file has
`direct`), through `Store.writer()`, which begins the transaction and commits it. What the rows mean
is not known here.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Insert, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex

from torchreel.errors import UnsupportedError
from torchreel.store import configs as config_rows
from torchreel.store.blobs.packing import pack
from torchreel.store.configs import ConfigEntry
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.schema import (
    COMPUTED,
    blobs,
    config_entries,
    configs,
    indexes_of_pushes,
    metadata,
    origins,
)
from torchreel.store.servers.connections import no_sweep


class Writer:
    """Writes into the transaction of `connection`; rows appear to others when it commits."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._is_complete = self._is_pushed_to = connection.dialect.name != "sqlite"

    def blob(self, data: bytes) -> str:
        """Store `data` once, compressed, and return its digest."""
        digest = digest_of(data)
        # What is there already could be swept before a row names it.
        no_sweep(self.connection)
        present = select(1).where(blobs.c.digest == digest)
        if self.connection.execute(present).first() is None:
            codec, packed = pack(data)
            # Another transaction may put the same one meanwhile.
            self.put("blobs", digest=digest, codec=codec, size=len(data), data=packed)
        return digest

    def flush(self) -> None:
        """Do nothing: no blob waits here (see `direct`)."""

    def add(self, table_name: str, **columns: object) -> int:
        """Insert one row and return its new id (0 for a table whose key is not an id).

        JSON columns take a JSON value, or a `str` that is JSON text already.
        """
        table = self._table(table_name)
        result = self.connection.execute(insert(table).values(columns))
        key = result.inserted_primary_key
        return int(key[0]) if key is not None and "id" in table.c else 0

    def add_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert rows in one go; a column that a row leaves out is null there."""
        columns = {column for row in rows for column in row}
        if rows:
            full = [{column: row.get(column) for column in columns} for row in rows]
            self.connection.execute(insert(self._table(table_name)), full)

    def put(self, table_name: str, **columns: object) -> bool:
        """Insert one row unless its key (or a unique column of it) is taken; True if it was not."""
        statement = self._insert_or_ignore(self._table(table_name)).values(columns)
        # else SQLAlchemy forgets the count where it asks for the new key as well, as of a server
        counted = statement.execution_options(preserve_rowcount=True)
        return self.connection.execute(counted).rowcount == 1

    def put_over(self, table_name: str, **columns: object) -> None:
        """Insert one row, in the place of the one with its key."""
        table = self._table(table_name)
        statement = self._insert(table).values(columns)
        others = {
            key: statement.excluded[key] for key in columns.keys() - table.primary_key.c.keys()
        }
        keys = list(table.primary_key)
        self.connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others))

    def put_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Insert rows, but those whose key is taken; return how many were inserted.

        A column that is left out is null.
        """
        if not rows:
            return 0
        statement = self._insert_or_ignore(self._table(table_name))
        counted = statement.execution_options(preserve_rowcount=True)
        return self.connection.execute(counted, rows).rowcount

    def update(self, table_name: str, id: int, **columns: object) -> None:
        """Change columns of the row with that id."""
        table = metadata.tables[table_name]
        self.connection.execute(update(table).where(table.c.id == id).values(columns))

    def delete(self, table_name: str, id: int) -> None:
        """Delete the row with that id, and the rows that belong to it (blobs stay)."""
        table = metadata.tables[table_name]
        self.connection.execute(delete(table).where(table.c.id == id))

    def config(self, entries: Sequence[ConfigEntry]) -> int:
        """Return the id of the config with exactly these entries, stored once however often it is
        used.
        """
        digest = config_rows.digest(entries)
        new = self.put("configs", digest=digest)
        found = select(configs.c.id).where(configs.c.digest == digest)
        config_id: int = self.connection.execute(found).scalar_one()
        if new:
            self.add_many(config_entries.name, config_rows.rows(config_id, entries))
        return config_id

    def clear_losses(self, recording_id: int) -> None:
        """Forget what a recording says it has lost: it says it anew."""
        rows = metadata.tables["lost"]
        self.connection.execute(delete(rows).where(rows.c.recording_id == recording_id))

    def _table(self, name: str) -> Table:
        """Return the table, which is made first where a file has it only from the first row on.

        The first row of a push makes the indexes too, without which many failures are slow to read.
        """
        table = metadata.tables[name]
        if table in COMPUTED and not self._is_complete:
            metadata.create_all(self.connection, tables=COMPUTED)
            self._is_complete = True
        if table is origins and not self._is_pushed_to:
            for index in indexes_of_pushes():
                self.connection.execute(CreateIndex(index, if_not_exists=True))
            self._is_pushed_to = True
        return table

    def _insert_or_ignore(self, table: Table) -> Insert:
        return self._insert(table).on_conflict_do_nothing()

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        match self.connection.dialect.name:
            case "sqlite":
                return sqlite.insert(table)
            case "postgresql":
                return postgresql.insert(table)
            case name:
                raise UnsupportedError(f"A store can be SQLite or PostgreSQL, not {name}.")
