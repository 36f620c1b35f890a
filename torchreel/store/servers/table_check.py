"""The tables of a server's store: refused unless they are tables, with our columns.

A view in a table's place runs what somebody else wrote, with the rights of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from torchreel.errors import DamagedStore, LockedStore
from torchreel.store import schema

_COLUMNS = text("""
SELECT c.relname, c.relkind, a.attname, a.attgenerated
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
WHERE c.oid IN (SELECT to_regclass(name) FROM unnest(CAST(:names AS text[])) AS name)
AND a.attnum > 0 AND NOT a.attisdropped
""")
_TABLES = ("r", "p")
"""The kinds of pg_class that only store: ordinary and partitioned tables."""


def require_tables(connection: Connection, target: str) -> None:
    """Raise DamagedStore for what has not the tables and columns of a store."""
    names = [f'"{name}"' for name in schema.metadata.tables]
    found: dict[str, set[str]] = {}
    for table, kind, column, generated in connection.execute(_COLUMNS, {"names": names}):
        if _text(kind) not in _TABLES or _text(generated):
            raise DamagedStore(f"{target} has {table!r:.40}, which computes: a store only stores.")
        found.setdefault(table, set()).add(column)
    for name, table in schema.metadata.tables.items():
        missing = {column.name for column in table.c} - found.get(name, set())
        if missing:
            raise DamagedStore(f"{target} has no {name}.{sorted(missing)[0]}: it is no store.")


def require_rights(connection: Connection, target: str, rights: Sequence[str]) -> None:
    """Raise LockedStore where the user of a connection lacks one of the rights in the tables."""
    for right in rights:
        # Who may append may insert into all columns but the id.
        of = "table" if right == "DELETE" else "any_column"
        query = text(f"SELECT has_{of}_privilege('recordings', :right)")
        if not connection.execute(query, {"right": right}).scalar():
            raise LockedStore(f"{target} gives this user no right to {right}: ask its owner.")


def _text(value: object) -> str:
    """Return a value of PostgreSQL's type "char", which the driver gives as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
