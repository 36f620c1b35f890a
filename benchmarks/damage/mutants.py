"""Ways to damage a store, or to make an absurd one: by bytes, columns, schema, blobs, documents.

Lives here: what is changed, in a copy of a recording, with nothing but sqlite3.  Not here: what
commands make of it (`outcomes`).  Every mutant follows from its number and the recordings alone.
Called by `benchmarks.damaged` and by the tests.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from torchreel.store.database import Store

Damage = Callable[[sqlite3.Connection, random.Random, Path], str]
"""Changes an open copy; returns in words what it did."""


@dataclass(frozen=True)
class Mutant:
    """One damaged copy of a recording."""

    number: int
    base: str
    family: str
    what: str


FAMILIES: Mapping[str, int] = {"bytes": 3, "columns": 7, "schema": 2, "blobs": 2, "documents": 6}
"""The families of mutants, and how many of twenty are of each."""
_ORDER = [family for family, share in FAMILIES.items() for _ in range(share)]


def family_of(number: int) -> str:
    """The family of a mutant; neighbours are of different ones."""
    return _ORDER[number * 7 % len(_ORDER)]


def make(number: int, recordings: Mapping[str, Path], target: Path) -> Mutant:
    """Write the mutant of that number to `target`."""
    dice = random.Random(number)
    base = sorted(recordings)[dice.randrange(len(recordings))]
    shutil.copy(recordings[base], target)
    family = family_of(number)
    if family == "bytes":
        return Mutant(number, base, family, _bytes(target, dice))
    damages: Mapping[str, Damage] = {
        "columns": _column, "schema": _schema, "blobs": _blob, "documents": _document,
    }  # fmt: skip
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        what = damages[family](connection, dice, recordings[base])
        with contextlib.suppress(sqlite3.DatabaseError):  # a schema that is none any more
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Mutant(number, base, family, what)


# -- bytes ----------------------------------------------------------------------------------------


def _bytes(path: Path, dice: random.Random) -> str:
    data = bytearray(path.read_bytes())
    kind = dice.choice(("flip", "flip", "flips", "flips", "cut", "page", "header", "swap", "zeros"))
    at = dice.randrange(len(data))
    pages = len(data) // 512
    match kind:
        case "flip":
            data[at] ^= 1 << dice.randrange(8)
        case "flips":
            for _ in range(dice.choice((8, 64, 512))):
                data[dice.randrange(100, len(data))] = dice.randrange(256)
        case "cut":
            del data[at:]
        case "page":
            page = dice.randrange(1, pages) * 512
            data[page : page + 512] = dice.randbytes(512)
        case "header":
            data[dice.randrange(100)] = dice.randrange(256)
        case "swap":
            one, other = (dice.randrange(1, pages) * 512 for _ in range(2))
            kept = data[one : one + 512]
            data[one : one + 512] = data[other : other + 512]
            data[other : other + 512] = kept
        case "zeros":
            end = min(len(data), at + dice.choice((16, 512, 5000)))
            data[at:end] = bytes(end - at)
    path.write_bytes(data)
    return f"{kind} at {at}"


# -- columns --------------------------------------------------------------------------------------

_VALUES: Mapping[str, str] = {
    "null": "NULL", "a number": "12345", "minus one": "-1", "minus 2^63": "-9223372036854775808",
    "2^63 - 1": "9223372036854775807", "2^33": "8589934592", "a float": "1.5e300",
    "infinity": "9e999", "text": "'absurd'", "empty": "''", "bytes": "x'00ff80fe'",
    "invalid UTF-8": "CAST(x'61ff80fe' AS TEXT)", "a NUL": "CAST(x'610062' AS TEXT)",
    "huge text": "replace(hex(zeroblob(8000000)), '00', 'ab')", "huge bytes": "zeroblob(30000000)",
    "deep JSON": "replace(hex(zeroblob(10000)), '00', '[')",
    "a digit string": "'" + "9" * 5000 + "'",
    "JSON null": "'null'", "a JSON list": "'[[1],{}]'", "nothing's digest": f"'{'0' * 64}'",
    "the next row": "rowid + 1", "itself": "rowid",
}  # fmt: skip


def _column(connection: sqlite3.Connection, dice: random.Random, base: Path) -> str:
    tables = [name for name in _tables(connection) if _count(connection, name)]
    table = dice.choice(tables)
    column = dice.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
    name, value = dice.choice(list(_VALUES.items()))
    if name == "null":
        _allow_nulls(connection)
    where = dice.choice(("", _one_row(connection, table, dice)))
    try:
        connection.execute(f"UPDATE OR REPLACE {table} SET {column} = {value} {where}")
    except sqlite3.Error:  # no rowid, or one that has to be a number: any other value will do
        name = "-7"
        connection.execute(f"UPDATE OR REPLACE {table} SET {column} = -7 {where}")
    return f"{table}.{column} is {name} {'in one row' if where else 'in every row'}"


def _tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return [name for (name,) in connection.execute(query)]


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _one_row(connection: sqlite3.Connection, table: str, dice: random.Random) -> str:
    """The condition of one row, by its key."""
    keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
    rows = connection.execute(f"SELECT {', '.join(f'quote({key})' for key in keys)} FROM {table}")
    row = dice.choice(rows.fetchall())
    terms = (f"{key} = {value}" for key, value in zip(keys, row, strict=True))
    return f"WHERE {' AND '.join(terms)}"


def _allow_nulls(connection: sqlite3.Connection) -> None:
    _rewrite(connection, "sql = replace(sql, ' NOT NULL', '')")


def _rewrite(connection: sqlite3.Connection, change: str, where: str = "1") -> None:
    """Change the schema's text, as nobody may, and make SQLite read it again."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(f"UPDATE sqlite_master SET {change} WHERE {where}")
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute(f"PRAGMA schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = RESET")


# -- schema ---------------------------------------------------------------------------------------

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def _schema(connection: sqlite3.Connection, dice: random.Random, base: Path) -> str:
    table = dice.choice(_tables(connection))
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column = dice.choice(columns)
    listed = ", ".join(columns)
    nothing = ", ".join(f"i AS {name}" for name in columns)
    ways: Mapping[str, tuple[str, ...]] = {
        "dropped": (f"DROP TABLE {table}",),
        "renamed": (f"ALTER TABLE {table} RENAME TO other",),
        "column renamed": (f"ALTER TABLE {table} RENAME COLUMN {column} TO other",),
        "a column more": (f"ALTER TABLE {table} ADD COLUMN other TEXT DEFAULT 'x'",),
        "emptied": (f"DELETE FROM {table}",),
        "a view": (
            f"ALTER TABLE {table} RENAME TO other",
            f"CREATE VIEW {table} AS SELECT {listed} FROM other",
        ),
        "an endless view": (
            f"DROP TABLE {table}", f"CREATE VIEW {table} AS {_ENDLESS} SELECT {nothing} FROM n",
        ),
        "a view of itself": (
            f"DROP TABLE {table}", f"CREATE VIEW {table} AS SELECT * FROM {table}",
        ),
        "a trigger": (
            f"CREATE TRIGGER evil BEFORE INSERT ON {table} BEGIN "
            "SELECT hex(zeroblob(200000000)); DELETE FROM recordings; END",
            "CREATE TRIGGER worse AFTER UPDATE ON recordings BEGIN SELECT RAISE(FAIL, 'no'); END",
        ),
        "a virtual table": (
            f"ALTER TABLE {table} RENAME TO other",
            f"CREATE VIRTUAL TABLE {table} USING fts5({listed.replace('rank', 'rang')})",
        ),
        "a generated column": (
            f"ALTER TABLE {table} RENAME TO other",
            f"CREATE TABLE {table} (" + ", ".join(name for name in columns if name != column)
            + f"{',' if len(columns) > 1 else ''} {column} "
            + "AS (hex(zeroblob(100000000))) VIRTUAL)",
            *([f"INSERT INTO {table} SELECT " + ", ".join(n for n in columns if n != column)
               + " FROM other"] if len(columns) > 1 else []),
        ),
        "an absurd index": (
            f"CREATE INDEX absurd ON {table} ({', '.join([f'hex({column})'] * 60)})",
        ),
        "revision": (f"UPDATE alembic_version SET version_num = {dice.choice(_REVISIONS)}",),
    }  # fmt: skip
    way = dice.choice((*ways, "revision", "nonsense SQL", "without types"))
    if way == "nonsense SQL":
        _rewrite(connection, "sql = 'CREATE TABLE nonsense('", f"name = '{table}'")
    elif way == "without types":
        _rewrite(connection, "sql = replace(replace(sql, 'INTEGER', ''), 'BIGINT', '')")
    else:
        for statement in ways[way]:
            connection.execute(statement)
    return f"{table} is {way}"


_REVISIONS = (
    "'0003'", "'0001'", "'0000'", "'9999'", "'x'", "NULL || ''", "x'ff'", "'-1'", "'6'", "''",
    "CAST(x'ff' AS TEXT)", "0006", "1e300", "'0005'",
)  # fmt: skip


# -- blobs ----------------------------------------------------------------------------------------


def _blob(connection: sqlite3.Connection, dice: random.Random, base: Path) -> str:
    digest = dice.choice(_digests(connection))
    last = "(SELECT max(id) FROM packs)"
    ways: Mapping[str, str | Callable[[], None]] = {
        "a codec of no kind": "UPDATE blobs SET codec = 'gzip'",
        "raw, and is not": "UPDATE blobs SET codec = 'raw'",
        "packed, and is not": "UPDATE blobs SET codec = 'pack', pack = NULL",
        "in a pack that is missing": "UPDATE blobs SET pack = 999, codec = 'pack', start = 0",
        "sized 2^40": "UPDATE blobs SET size = 1099511627776",
        "sized below 0": "UPDATE blobs SET size = -1",
        "of a pack sized 2^40": "UPDATE packs SET size = 1099511627776",
        "of a pack sized 2^62 twice": "UPDATE packs SET size = 4611686018427387904",
        "begun before its pack": "UPDATE blobs SET start = -5",
        "begun behind its pack": "UPDATE blobs SET start = 1 << 40",
        "in a pack that begins with itself": "UPDATE packs SET first = id",
        "in a pack that begins behind": f"UPDATE packs SET first = {last} + 1",
        "in a pack that begins at the last": f"UPDATE packs SET first = {last}",
        "in packs that begin with each other": f"UPDATE packs SET first = {last} - id + 1",
        "in a pack with a dictionary of text": "UPDATE packs SET dictionary = 'two'",
        "in a pack with dictionary 99": "UPDATE packs SET dictionary = 99",
        "in a pack of nothing": "UPDATE packs SET data = x''",
        "in a pack of text": "UPDATE packs SET data = 'absurd'",
        "missing": f"DELETE FROM blobs WHERE digest = '{digest}'",
        "a bomb": lambda: _drop_bomb(connection, digest, b"\0\0\0\0", 1 << 20),
        "a bomb that says its size": lambda: _drop_bomb(connection, digest, b"\0\0\0\0"),
        "a bomb of JSON": lambda: _drop_bomb(connection, digest, b"[0],"),
        "a bomb in a pack": lambda: _bomb_in_pack(connection, digest),
        "a frame with a huge window": lambda: _replace(connection, digest, b"", _wide()),
        "cut": lambda: _replace(connection, digest, b"", _cut_frame(), 9000),
        "empty": lambda: _replace(connection, digest, b""),
        "random": lambda: _replace(connection, digest, dice.randbytes(3000)),
        "invalid UTF-8": lambda: _replace(connection, digest, b'{"nodes":["\xff\xfe"]}'),
    }  # fmt: skip
    way = dice.choice(list(ways))
    action = ways[way]
    if isinstance(action, str):
        connection.execute(action)
    else:
        action()
    return f"blob {digest:.8} is {way}"


def _digests(connection: sqlite3.Connection) -> list[str]:
    """The blobs that rows refer to."""
    found: dict[str, None] = {}
    for table, column in _references(connection):
        for (value,) in connection.execute(f"SELECT DISTINCT {column} FROM {table}"):
            found[value] = None
    known = {digest for (digest,) in connection.execute("SELECT digest FROM blobs")}
    return [digest for digest in found if digest in known]


def _references(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    names = ("digest", "text_digest", "frame_source", "traceback", "tensors", "document", "payload")
    return [
        (table, row[1])
        for table in _tables(connection)
        if table not in ("blobs", "cases", "configs")
        for row in connection.execute(f"PRAGMA table_info({table})")
        if row[1] in names
    ] + [("cases", "document") for table in _tables(connection) if table == "cases"]


def _replace(
    connection: sqlite3.Connection,
    digest: str,
    data: bytes,
    packed: bytes = b"",
    size: int | None = None,
) -> None:
    """Put other bytes in a blob's place, under their own digest, and let all rows refer to them."""
    new = hashlib.sha256(data or packed).hexdigest()
    row = (new, "zstd" if packed else "raw", len(data) if size is None else size, packed or data)
    connection.execute(
        "INSERT OR REPLACE INTO blobs (digest, codec, size, data) VALUES (?, ?, ?, ?)", row
    )
    for table, column in _references(connection):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, digest))


_BOMB_BYTES = 944 << 20


@functools.cache
def bomb(unit: bytes) -> bytes:
    """86 kB that unpack to 944 MB, begun as a JSON list."""
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    chunk = unit * (1 << 18)
    parts = [packer.compress(b"[" + chunk[:-1])]
    parts += (packer.compress(chunk) for _ in range((_BOMB_BYTES >> 20) - 1))
    return b"".join(parts) + packer.flush()


def _drop_bomb(
    connection: sqlite3.Connection, digest: str, unit: bytes, size: int = _BOMB_BYTES
) -> None:
    _replace(connection, digest, b"", bomb(unit), size)


def _bomb_in_pack(connection: sqlite3.Connection, digest: str) -> None:
    row = (16 << 20, bomb(b"\0\0\0\0"))
    connection.execute("INSERT INTO packs (size, data) VALUES (?, ?)", row)
    (pack,) = connection.execute("SELECT max(id) FROM packs").fetchone()
    change = "UPDATE blobs SET codec = 'pack', pack = ?, start = 0, data = x'' WHERE digest = ?"
    connection.execute(change, (pack, digest))


def _cut_frame() -> bytes:
    return zstandard.compress(b"x" * 9000)[:-4]


@functools.cache
def _wide() -> bytes:
    """A frame that wants a window of 2 GB."""
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=False, hash_log=6)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(b"a" * 1000) + packer.flush()


# -- documents ------------------------------------------------------------------------------------


def _document(connection: sqlite3.Connection, dice: random.Random, base: Path) -> str:
    """Change a JSON document, in a blob or in a column, at a random path."""
    if dice.random() < 0.15:
        return _json_column(connection, dice)
    kinds: dict[str, list[str]] = {}
    for table, column in _references(connection):
        rows = connection.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
        kinds[f"{table}.{column}"] = [row[0] for row in rows if row[0] is not None]
    for _ in range(50):
        kind = dice.choice([name for name, found in kinds.items() if found])
        digest = dice.choice(kinds[kind])
        data = _content(base, digest)
        changed = _changed(data, dice)
        if changed is not None:
            _replace(connection, digest, changed[0])
            return f"{kind} has {changed[1]}"
    raise LookupError(f"{base} has no documents")


def _json_column(connection: sqlite3.Connection, dice: random.Random) -> str:
    places = [
        (table, row[1])
        for table in _tables(connection)
        for row in connection.execute(f"PRAGMA table_info({table})")
        if row[1] in ("argv", "data", "kinds", "chain", "signature", "value", "observed",
                      "compared") and table != "blobs" and _count(connection, table)
    ]  # fmt: skip
    table, column = dice.choice(places)
    (text,) = dice.choice(connection.execute(f"SELECT {column} FROM {table}").fetchall())
    changed = _changed(str(text).encode(), dice) or (b"[]", "an empty list")
    connection.execute(
        f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (changed[0].decode(), text)
    )
    return f"{table}.{column} has {changed[1]}"


@functools.lru_cache(maxsize=64)
def _content(base: Path, digest: str) -> bytes:
    with Store.open(base) as store:
        return store.read_blob(digest)


def _changed(data: bytes, dice: random.Random) -> tuple[bytes, str] | None:
    """The document with one value replaced; None for what is no JSON, or nothing but one value.

    A blob of pages has one document on each line: only one line is read.
    """
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    text = lines[at].removesuffix(b",")
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, (dict, list)) or not document:
        return None
    path = _path(document, dice)
    name, value = dice.choice(list(_ABSURD.items()))
    spelled = json.dumps(_with(document, path, "\0here"), separators=(",", ":"))
    lines[at] = lines[at].replace(text, spelled.replace('"\\u0000here"', value).encode(), 1)
    return b"\n".join(lines), f"{name} at {'.'.join(map(str, path))[:80]}"


_ABSURD: Mapping[str, str] = {
    "null": "null", "true": "true", "-1": "-1", "2^63": str(2**63), "2^64": str(2**64),
    "5,000 digits": "9" * 5000, "a float": "0.5", "1e999": "1e999", "NaN": "NaN",
    "text": '"absurd"', "no text": '""', "a NUL": '"\\u0000"', "a surrogate": '"\\ud800"',
    "long text": '"' + "ab" * 1_000_000 + '"', "a list": "[]", "an object": "{}",
    "a list of lists": "[[],[[]]]", "an object of no kind": '{"k":"absurd","n":"absurd"}',
    "10,000 levels": "[" * 10_000 + "]" * 10_000,
    "10,000 objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "300 levels": "[" * 300 + "]" * 300, "a million items": "[" + "0," * 1_000_000 + "0]",
    "a number for text": "7", "an int in text": '"12345678901234567890"',
}  # fmt: skip


def _path(document: Any, dice: random.Random) -> list[str | int]:
    """A random place: not always a leaf, and often near the top."""
    path: list[str | int] = []
    while isinstance(document, (dict, list)) and document and (not path or dice.random() < 0.8):
        key = dice.choice(list(document) if isinstance(document, dict) else range(len(document)))
        path.append(key)
        document = document[key]
    return path


def _with(document: Any, path: Sequence[str | int], value: object) -> Any:
    if not path:
        return value
    key, *rest = path
    if isinstance(document, dict):
        return {**document, key: _with(document[key], rest, value)}
    made = list(document)
    made[int(key)] = _with(made[int(key)], rest, value)
    return made
