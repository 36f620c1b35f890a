"""Roles of a store on a server: who may append, who may read, who may delete.

As SQL, to be executed by the owner of the tables, or read and executed by an administrator. Each
role is one that cannot log in, made if it is not there: users are given it with `GRANT role TO
user`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Table, text

from torchreel.errors import UsageError
from torchreel.store.schema import blobs, configs, kinds, metadata, origins, replays, verdicts

APPEND, READ, DELETE = "torchreel_append", "torchreel_read", "torchreel_delete"
ROLES = {
    APPEND: "may push recordings, and read nothing of them but numbers and digests",
    READ: "may read",
    DELETE: "may read, and delete what is too much or too old",
}
"""The roles, and the rights of each."""

_VERSION = "alembic_version"
_NEVER_PUSHED = (replays, verdicts)
"""Tables of what is computed on a store: a verdict is believed by each reduction."""
_MAKE = """DO $$ BEGIN CREATE ROLE {0} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"""


def statements(schema: str = "public") -> Iterator[str]:
    """Yield the SQL that makes the roles, and gives them their rights in a schema.

    It takes nothing away but from these roles, and can be executed again.
    """
    for role in ROLES:
        yield _MAKE.format(role)
    yield from _rights(schema)


def _rights(schema: str) -> Iterator[str]:
    """Yield the SQL that gives roles which are there their rights in a schema."""
    here = _quote(schema)
    for role in ROLES:
        yield f"GRANT USAGE ON SCHEMA {here} TO {role}"
        yield f"GRANT SELECT ON {here}.{_VERSION} TO {role}"
    for table in metadata.sorted_tables:
        name = f"{here}.{_quote(table.name)}"
        yield f"REVOKE ALL ON {name} FROM {', '.join(ROLES)}"
        yield f"GRANT SELECT ON {name} TO {READ}, {DELETE}"
        yield f"GRANT DELETE ON {name} TO {DELETE}"
        if table not in _NEVER_PUSHED:
            yield from _of_pusher(table, here)


def _of_pusher(table: Table, schema: str) -> Iterator[str]:
    """Yield the SQL that lets a pusher insert rows, with ids that the server gives them."""
    name = f"{schema}.{_quote(table.name)}"
    if "id" in table.c:
        columns = ", ".join(_quote(column.name) for column in table.c if column.name != "id")
        yield f"GRANT INSERT ({columns}) ON {name} TO {APPEND}"
        yield f"GRANT USAGE ON SEQUENCE {schema}.{_quote(f'{table.name}_id_seq')} TO {APPEND}"
    else:
        yield f"GRANT INSERT ON {name} TO {APPEND}"
    columns = ", ".join(map(_quote, _read_by_pusher(table)))
    if columns:
        yield f"GRANT SELECT ({columns}) ON {name} TO {APPEND}"


def _read_by_pusher(table: Table) -> list[str]:
    """Return the columns that a push reads: numbers of rows, and digests of what is there."""
    found = [column.name for column in table.c if column.name == "id" or column.foreign_keys]
    if table in (blobs, configs, kinds, origins):
        found.append("digest")
    return [*found, "row_id"] if table is origins else found


def _quote(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def grant(connection: Connection) -> None:
    """Make the roles in the database of a connection.  Raises StoreError where we may not."""
    for statement in statements(_schema_of(connection)):
        connection.execute(text(statement))


def grant_again(connection: Connection) -> None:
    """Give roles that have rights in a store those of its newest tables and columns.

    A pusher has its rights by column: after a migration it may not insert into a new one.
    """
    known = text(
        "SELECT has_table_privilege(oid, 'recordings', 'SELECT') FROM pg_roles "
        "WHERE rolname = :role"
    )
    if connection.execute(known, {"role": READ}).scalar():
        for statement in _rights(_schema_of(connection)):
            connection.execute(text(statement))


def _schema_of(connection: Connection) -> str:
    schema = connection.execute(text("SELECT current_schema()")).scalar_one()
    if not isinstance(schema, str):
        raise UsageError("The database has no schema that is searched for tables.")
    return schema
