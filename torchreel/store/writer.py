"""The one way to put rows into a store: a batch, inside one transaction.

Used by the recorder's writer thread, by replay and by the minifier, through `Store.writer()`, which
begins the transaction and commits it. What the rows mean is not known here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Insert, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from torchreel.errors import UnsupportedError
from torchreel.store import blobs
from torchreel.store.jsontypes import Json, canonical_json, digest_of, json_text
from torchreel.store.schema import config_entries, configs, metadata


@dataclass(frozen=True)
class ConfigEntry:
    """One config value that is not the default: `module` 'torch._inductor.config', dotted `key`.

    `portable` is False for what may only be restored with `--trust` (a command, path, callable).
    """

    module: str
    key: str
    value: Json
    portable: bool = True


class Writer:
    """Writes into the transaction of `connection`; rows appear to others when it commits."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def blob(self, data: bytes) -> str:
        """Store `data` once, compressed, and return its digest."""
        return blobs.put(self.connection, data)

    def add(self, table_name: str, **columns: object) -> int:
        """Insert one row and return its new id (0 for a table whose key is not an id).

        JSON columns take a JSON value, or a `str` that is JSON text already.
        """
        table = metadata.tables[table_name]
        result = self.connection.execute(insert(table).values(columns))
        key = result.inserted_primary_key
        return int(key[0]) if key is not None and "id" in table.c else 0

    def add_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Insert rows in one go; a column that a row leaves out is null there."""
        columns = {column for row in rows for column in row}
        if rows:
            full = [{column: row.get(column) for column in columns} for row in rows]
            self.connection.execute(insert(metadata.tables[table_name]), full)

    def put(self, table_name: str, **columns: object) -> bool:
        """Insert one row unless its key (or a unique column of it) is taken; True if it was not."""
        statement = self._insert_or_ignore(metadata.tables[table_name]).values(columns)
        return self.connection.execute(statement).rowcount == 1

    def update(self, table_name: str, id: int, **columns: object) -> None:
        """Change columns of the row with that id."""
        table = metadata.tables[table_name]
        self.connection.execute(update(table).where(table.c.id == id).values(columns))

    def delete(self, table_name: str, id: int) -> None:
        """Delete the row with that id, and the rows that belong to it (blobs stay)."""
        table = metadata.tables[table_name]
        self.connection.execute(delete(table).where(table.c.id == id))

    def config(self, entries: Sequence[ConfigEntry]) -> int:
        """The id of the config with exactly these entries, stored once however often it is used."""
        ordered = sorted(entries, key=lambda e: (e.module, e.key))
        document: Json = [[e.module, e.key, e.value, e.portable] for e in ordered]
        digest = digest_of(canonical_json(document))
        new = self.put("configs", digest=digest)
        found = select(configs.c.id).where(configs.c.digest == digest)
        config_id: int = self.connection.execute(found).scalar_one()
        if new:
            self.add_many(config_entries.name, [_entry_row(config_id, e) for e in ordered])
        return config_id

    def _insert_or_ignore(self, table: Table) -> Insert:
        match self.connection.dialect.name:
            case "sqlite":
                return sqlite.insert(table).on_conflict_do_nothing()
            case "postgresql":
                return postgresql.insert(table).on_conflict_do_nothing()
            case name:
                raise UnsupportedError(f"A store can be SQLite or PostgreSQL, not {name}.")


def _entry_row(config_id: int, entry: ConfigEntry) -> dict[str, object]:
    return {
        "config_id": config_id,
        "module": entry.module,
        "key": entry.key,
        # as text: a bound str would be taken for JSON text, and a value may be a str
        "value": json_text(entry.value),
        "portable": entry.portable,
    }
