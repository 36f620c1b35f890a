"""The schema of a file: refused unless its tables are tables, with our columns.

A view in a table's place can compute without end, a trigger or a generated column does what a
stranger wrote, and none of them is ever made by torchreel.  Called by `database` and `direct`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchreel.errors import DamagedStore
from torchreel.patterns import lazy_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

_COLUMNS = """SELECT m.name, c.name, c.hidden
FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c WHERE m.type = 'table'"""
_PLAIN_INDEX = lazy_text(r'CREATE (UNIQUE )?INDEX \S+ ON \S+ ?\([\s\w",]*\)', re.IGNORECASE)
_COMPUTES = lazy_text(
    r"\b(CHECK|GENERATED|AS)\b|\bDEFAULT\b(?!\s*('[^']*'|[-+]?[\d.]+|NULL)\s*(NOT NULL\s*)?[,)])",
    re.IGNORECASE,
)
_MOST = 1000
"""Entries of a schema: ours has thirty."""
ENTRIES = f"SELECT type, name, sql FROM sqlite_master LIMIT {_MOST + 1}"
"""The query of a schema."""


def computed_part(entries: Sequence[Sequence[object]]) -> str:
    """Return a phrase on the first computing part of a schema (rows of `ENTRIES`); '' for none.

    Views, triggers and generated columns are such parts; too many entries are reported, too.
    """
    if len(entries) > _MOST:
        return f"has more than {_MOST} tables and indices"
    for kind, name, sql in entries:
        if kind not in ("table", "index"):
            return f"has a {kind!s:.20} {name!r:.40}, and a store has only tables"
        if sql is not None and not _is_plain(str(kind), sql):
            return (
                f"has {'an' if kind == 'index' else 'a'} {kind} {name!r:.40} which computes values"
            )
    return ""


def refuse_computing(connection: Connection, target: str) -> None:
    """Raise DamagedStore for a schema in which anything is computed."""
    found = computed_part(connection.exec_driver_sql(ENTRIES).all())
    if found:
        raise _foreign(target, found)


def require_columns(connection: Connection, target: str) -> None:
    """Raise DamagedStore for a table that has not the columns it should have."""
    from torchreel.store import schema  # which the recorder has no need of

    found: dict[str, set[str]] = {}
    for table, column, hidden in connection.exec_driver_sql(_COLUMNS).all():
        if hidden:
            raise _foreign(target, f"has a column {table}.{column} which computes values")
        found.setdefault(table, set()).add(column)
    for name, table in schema.metadata.tables.items():
        missing = {column.name for column in table.c} - found.get(name, set())
        if name in found and missing:
            raise _foreign(target, f"has a table {name} without {sorted(missing)[0]}")


def _is_plain(kind: str, sql: object) -> bool:
    if not isinstance(sql, str):
        return False
    if kind == "index":
        return _PLAIN_INDEX.fullmatch(sql.strip()) is not None
    return sql.upper().startswith("CREATE TABLE") and _COMPUTES.search(sql) is None


def _foreign(target: str, what: str) -> DamagedStore:
    return DamagedStore(
        f"{target} {what}: torchreel did not write this. Copy it again from where it came from."
    )
