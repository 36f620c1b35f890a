"""Stores as a hostile client could make them, by number: each has one recording that is malformed.

And statements that a client with the right to append could send by itself.  Each is to be refused;
what is only odd, and harmless, is not made here.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from sqlalchemy import Column, Engine, Table, Text, text
from sqlalchemy.exc import SQLAlchemyError

from tests.store.pushing import FAILED, fill
from torchreel.errors import StoreError
from torchreel.store import Store, schema
from torchreel.store.documents.jsontypes import json_text
from torchreel.store.revision import REVISION
from torchreel.store.schema import JsonText, SafeText, SignalName
from torchreel.store.sending.push import push_path
from torchreel.store.sending.rows import owner_of

BAD, GOOD = 1, 2
"""The recordings of each store: the malformed one, and one that is there already."""
_COMPILES = 3
"""Of each recording; so are its graphs, checkpoints and failures, in this order."""
_OF_A_RECORDING = tuple(
    table
    for table in (schema.recordings, *schema.OF_A_RECORDING, schema.failures)
    if table.name not in ("stack_pages", "frame_bundles", "output_codes")
)
"""The tables that have rows in these stores."""
Change = Callable[[sqlite3.Connection, Random], None]


def make_base(folder: Path) -> Path:
    """Make the store that all others are changed copies of; nothing is wrong with it."""
    return fill(folder / "base.db", range(2), size=200)


def make(base: Path, number: int) -> tuple[str, Path]:
    """Make the malformed store of a number; return what was done to it, and its path."""
    chance = Random(number)
    path = base.with_name(f"bad-{number}.db")
    shutil.copy(base, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("UPDATE recordings SET run = ? WHERE id = ?", (f"bad {number}", BAD))
    if chance.random() < 0.05:
        return _spoil_file(path, chance), path
    change = chance.choice(_CHANGES)
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        change(raw, chance)
    return change.__name__.strip("_").replace("_", " "), path


def _spoil_file(path: Path, chance: Random) -> str:
    data = path.read_bytes()
    match chance.randrange(4):
        case 0:
            path.write_bytes(data[: chance.randrange(100, len(data) // 2)])
            return "half a file"
        case 1:
            path.write_bytes(chance.randbytes(len(data)))
            return "no database"
        case 2:
            path.write_bytes(chance.randbytes(100) + data[100:])
            return "another header"
    path.write_bytes(data[:100] + chance.randbytes(4000) + data[4100:])
    return "another first page"


# -- rows -----------------------------------------------------------------------------------------


def _rows_of(table: Table) -> str:
    """Return the condition for the rows of the bad recording."""
    if table is schema.recordings:
        return f"id = {BAD}"
    column, owner = owner_of(table)
    number = BAD if owner is schema.recordings else _COMPILES
    return f"{column.name} {'=' if owner is schema.recordings else '<='} {number}"


def _columns(wanted: Callable[[Column[object]], bool]) -> list[tuple[Table, str]]:
    """Return the columns that say more than whose row it is, and may be the same in many rows."""
    return [
        (table, column.name)
        for table in _OF_A_RECORDING
        for column in table.c
        if not column.primary_key
        and (table, column.name) != (schema.events, "seq")
        and (table is schema.recordings or column is not owner_of(table)[0])
        and wanted(column)
    ]


def _is_text(column: Column[object]) -> bool:
    return isinstance(column.type, Text | SafeText | SignalName)


def _is_json(column: Column[object]) -> bool:
    return isinstance(column.type, JsonText)


def _is_number(column: Column[object]) -> bool:
    return not _is_text(column) and not _is_json(column)


def _set(raw: sqlite3.Connection, place: tuple[Table, str], sql: str, *values: object) -> None:
    table, name = place
    done = raw.execute(f"UPDATE {table.name} SET {name} = {sql} WHERE {_rows_of(table)}", values)
    assert done.rowcount > 0, place


def _no_number(raw: sqlite3.Connection, chance: Random) -> None:
    values = ("x", "", b"\0\1", 1.5, 1e300, "9" * 30 + "x", "0x10", "1;DROP TABLE recordings")
    _set(raw, chance.choice(_columns(_is_number)), "?", chance.choice(values))


def _no_text(raw: sqlite3.Connection, chance: Random) -> None:
    _set(raw, chance.choice(_columns(_is_text)), "?", chance.randbytes(chance.randrange(1, 40)))


def _no_utf8(raw: sqlite3.Connection, chance: Random) -> None:
    wrong = chance.choice((b"\xff", b"\xc0\xaf", b"a\xed\xa0\x80b", b"\xf8\x88\x80\x80", b"ok\xe2"))
    _set(raw, chance.choice(_columns(_is_text)), "CAST(? AS TEXT)", wrong)


def _no_json(raw: sqlite3.Connection, chance: Random) -> None:
    texts = ("", "[1", "{'a': 1}", "nul", "1e", "[1,]", '{"a"}', "[" * 200_000, '"\\x"', "[1] 2")
    value = chance.choice((*texts, chance.randbytes(9)))
    _set(raw, chance.choice(_columns(_is_json)), "?", value)


def _a_nul(raw: sqlite3.Connection, chance: Random) -> None:
    plain = _columns(lambda column: type(column.type) is Text)
    _set(raw, chance.choice(plain), "'a' || char(0) || 'b'")


def _an_enormous_text(raw: sqlite3.Connection, chance: Random) -> None:
    size = chance.randrange(8_400_000, 9_000_000)
    _set(raw, chance.choice(_columns(_is_text)), f"hex(zeroblob({size}))")


def _an_enormous_key(raw: sqlite3.Connection, chance: Random) -> None:
    table, name = chance.choice((("environment", "key"), ("lost", "place"), ("lost", "reason")))
    where = f"recording_id = {BAD}"
    raw.execute(f"UPDATE {table} SET {name} = hex(zeroblob(5000)) WHERE {where}")


def _no_signature(raw: sqlite3.Connection, chance: Random) -> None:
    known = FAILED.to_json()
    changed: list[object] = ["{}", "null", "[]", "7", '"exception"']
    changed += [
        json_text({key: value for key, value in known.items() if key != name})
        for name in ("failure_class", "stage")
    ]
    changed += [json_text({**known, "frames": 7}), json_text({**known, "stage": []})]
    _set(raw, (schema.failures, "signature"), "?", chance.choice(changed))


def _rows_of_another(raw: sqlite3.Connection, chance: Random) -> None:
    places = (
        ("failures", "compile_id"), ("failures", "checkpoint_id"), ("events", "compile_id"),
        ("event_pages", "compile_id"), ("checkpoints", "graph_id"),
    )  # fmt: skip
    table, name = chance.choice(places)
    other = chance.choice((_COMPILES + 1, _COMPILES + 2, 0, -1, 10**9, 2**63 - 1))
    _set(raw, (schema.metadata.tables[table], name), "?", other)


def _no_such_config(raw: sqlite3.Connection, chance: Random) -> None:
    _set(raw, (schema.compiles, "config_id"), "?", chance.choice((0, -1, 77, 2**40)))


# -- tables ---------------------------------------------------------------------------------------


def _unconstrained(raw: sqlite3.Connection, table: Table) -> None:
    """Make a table anew, with no key and no constraint."""
    raw.execute(f"CREATE TABLE copied AS SELECT * FROM {table.name}")
    raw.execute(f"DROP TABLE {table.name}")
    raw.execute(f"ALTER TABLE copied RENAME TO {table.name}")


def _a_null(raw: sqlite3.Connection, chance: Random) -> None:
    place = chance.choice(_columns(lambda column: not column.nullable))
    _unconstrained(raw, place[0])
    _set(raw, place, "NULL")


def _rows_with_one_key(raw: sqlite3.Connection, chance: Random) -> None:
    table = chance.choice([table for table in _OF_A_RECORDING if table.primary_key.columns])
    _unconstrained(raw, table)
    rows = f"SELECT * FROM {table.name} WHERE {_rows_of(table)}"
    raw.execute(f"INSERT INTO {table.name} {rows}")


def _another_schema(raw: sqlite3.Connection, chance: Random) -> None:
    table = chance.choice([t for t in _OF_A_RECORDING if t is not schema.events])
    column = chance.choice([c.name for c in table.c if not c.primary_key])
    statements = (
        (f"ALTER TABLE {table.name} RENAME COLUMN {column} TO other",),
        (f"ALTER TABLE {table.name} RENAME TO other",),
        (f"ALTER TABLE {table.name} RENAME TO o", f"CREATE VIEW {table.name} AS SELECT * FROM o"),
        (f"CREATE TRIGGER t AFTER INSERT ON {table.name} BEGIN DELETE FROM blobs; END",),
        (f"ALTER TABLE {table.name} ADD COLUMN more AS (1)",),
        (f"CREATE INDEX more ON {table.name} (abs(1))",),
    )
    for statement in chance.choice(statements):
        raw.execute(statement)


def _of_the_future(raw: sqlite3.Connection, chance: Random) -> None:
    later = str(int(REVISION) + chance.randrange(1, 50)).zfill(4)
    version = chance.choice((later, "9999", "x", "", "-1", b"\xff", "1" * 5000))
    raw.execute("UPDATE alembic_version SET version_num = ?", (version,))


# -- blobs ----------------------------------------------------------------------------------------


def _a_corrupt_blob(raw: sqlite3.Connection, chance: Random) -> None:
    """Change a blob of the recording, in its bytes or in what is said of them."""
    query = """SELECT b.digest, b.size, b.data FROM blobs AS b
        JOIN graphs AS g ON g.digest = b.digest WHERE g.compile_id <= ?"""
    digest, size, data = chance.choice(raw.execute(query, (_COMPILES,)).fetchall())
    at = chance.randrange(len(data) // 2, len(data) - 8)
    changes: Sequence[tuple[str, object]] = (
        ("data", data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]),
        ("data", data[:at]), ("data", b""), ("data", chance.randbytes(len(data))),
        ("data", "text"), ("data", 7),
        ("size", size + 1), ("size", size - 1), ("size", -1), ("size", 1 << 62), ("size", "x"),
        ("codec", "lzma"), ("codec", "raw"), ("codec", b"zstd"), ("codec", "pack"), ("codec", ""),
    )  # fmt: skip
    name, value = chance.choice(changes)
    raw.execute(f"UPDATE blobs SET {name} = ? WHERE digest = ?", (value, digest))


def _a_blob_of_another_digest(raw: sqlite3.Connection, chance: Random) -> None:
    digest = chance.randbytes(32).hex()
    data = chance.randbytes(chance.randrange(1, 300))
    pack = chance.choice((None, None, 1, 999))
    codec = "raw" if pack is None else "pack"
    row = (digest, codec, len(data), data, pack, None if pack is None else 0)
    raw.execute(
        "INSERT INTO blobs (digest, codec, size, data, pack, start) VALUES (?, ?, ?, ?, ?, ?)", row
    )
    _set(raw, (schema.graphs, "digest"), "?", digest)


def _a_bomb(raw: sqlite3.Connection, chance: Random) -> None:
    digest = chance.randbytes(32).hex()
    size = chance.choice((1 << 29, 1 << 40, (1 << 63) - 1, -5))
    row = (digest, chance.choice(("zstd", "raw")), size, b"\x28\xb5\x2f\xfd" + chance.randbytes(40))
    raw.execute("INSERT INTO blobs (digest, codec, size, data) VALUES (?, ?, ?, ?)", row)
    _set(raw, (schema.checkpoints, "digest"), "?", digest)


_CHANGES: tuple[Change, ...] = (
    *(_no_number, _no_text, _no_utf8, _no_json, _a_nul, _an_enormous_key, _no_signature) * 3,
    *(_rows_of_another, _no_such_config, _a_null, _rows_with_one_key, _another_schema) * 3,
    *(_of_the_future, _a_corrupt_blob, _a_blob_of_another_digest, _a_bomb) * 3,
    _an_enormous_text,
)


def pushed(path: Path, target: Store) -> str:
    """Push a store that is malformed; return why it was refused, '' where it was not."""
    try:
        report = push_path(str(path), target)
    except StoreError as error:
        return str(error)
    return "" if report.sent or report.added else " ".join(report.refused)


# -- statements -----------------------------------------------------------------------------------

_DENIED = (
    "UPDATE {table} SET {column} = {column}", "DELETE FROM {table}", "TRUNCATE {table}",
    "DROP TABLE {table}", "ALTER TABLE {table} ADD COLUMN more int", "LOCK TABLE {table}",
    "CREATE TABLE more{number} (x int)", "SELECT * FROM {table}", "COPY {table} TO STDOUT",
    "CREATE INDEX ON {table} (({column}))", "CREATE VIEW v{number} AS SELECT 1",
    "CREATE TRIGGER t BEFORE INSERT ON {table} EXECUTE FUNCTION f()", "SELECT pg_reload_conf()",
    "COPY {table} FROM PROGRAM 'true'", "COPY {table} TO '/tmp/{number}'", "SET ROLE postgres",
    "SELECT pg_read_file('/etc/passwd')", "SELECT lo_import('/etc/passwd')", "CHECKPOINT",
    "CREATE EXTENSION dblink", "ALTER SYSTEM SET fsync = off",
    "CREATE FUNCTION f{number}() RETURNS int LANGUAGE sql AS 'SELECT 1'", "LOAD 'plpgsql'",
    "SET SESSION AUTHORIZATION postgres", "CREATE ROLE r",
    "INSERT INTO alembic_version VALUES ('9999')", "UPDATE alembic_version SET version_num = '1'",
    "SELECT setval('recordings_id_seq', 1)", "ALTER ROLE torchreel_append SUPERUSER",
)  # fmt: skip
"""Statements for which the role has no right."""
_WRONG = (
    "NULL", "'x'::text::bytea::text::int", "convert_from('\\xff', 'UTF8')", "chr(0)", "1e300::int",
    "(SELECT 1 UNION SELECT 2)", "1/0", "'{{'::json::text",
    "repeat('x', 1100000000)", "'\\xf'::bytea", "'a', 'more'",
)  # fmt: skip
"""Values that no column takes, in the place of one."""


def statement(number: int) -> str:
    """Return a statement of that number, for a client that may append and nothing else."""
    chance = Random(number)
    table = chance.choice(_OF_A_RECORDING)
    names = [column.name for column in table.c if not column.nullable and column.name != "id"]
    column = chance.choice(names)
    if chance.random() < 0.5:
        form = chance.choice(_DENIED)
        return form.format(table=table.name, column=column, number=number)
    if chance.random() < 0.3:
        return _dangling(chance)
    values = {name: _value(table.c[name], chance) for name in names}
    values[column] = chance.choice(_WRONG)
    return f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _value(column: Column[object], chance: Random) -> str:
    return str(chance.randrange(100)) if _is_number(column) else f"'{chance.randrange(100)}'"


def _dangling(chance: Random) -> str:
    """Return a row that belongs to nothing that is there, or takes the number of another."""
    owned = [table for table in _OF_A_RECORDING if table is not schema.recordings]
    table = chance.choice(owned)
    values = {column.name: _value(column, chance) for column in table.c if not column.nullable}
    values[owner_of(table)[0].name] = str(chance.randrange(10**6, 10**9))
    if "id" in values:
        values["id"] = chance.choice(("DEFAULT", "1"))
    return f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def is_refused(engine: Engine, statement: str) -> bool:
    """Execute a statement; return True if the server refused it."""
    try:
        with engine.begin() as connection:
            connection.execute(text(statement.replace(":", "\\:")))
    except SQLAlchemyError:
        return True
    return False
