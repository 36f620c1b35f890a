"""Stores that are no damaged copies but absurd: pipes, wrong logs, cycles, SQL where rows belong.

Lives here: what `mutants` does not make, because it is more than a change of one file's content.
Not here: what commands make of it (`outcomes`).  Every one follows from its number and the
recordings alone.  Called by `benchmarks.damaged`.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from benchmarks.damage.mutants import Mutant

Place = Callable[[Path], None]
"""Puts the store where a command expects it."""
IN_ONE_FILE = ("cycles", "integers", "nesting", "SQL", "dates", "texts")
"""The families of which a mutant is one file, that can be copied."""
Way = Callable[[Path, random.Random, Mapping[str, Path]], None]
"""Makes of the copy at a path, which is a recording as it was, what is wanted."""


def make(number: int, recordings: Mapping[str, Path]) -> tuple[Mutant, Place]:
    """Return the mutant of that number, and what makes it at a path."""
    base = sorted(recordings)[random.Random(number).randrange(len(recordings))]
    family, name, way = _WAYS[number % len(_WAYS)]

    def place(path: Path) -> None:
        shutil.copy(recordings[base], path)
        way(path, random.Random(number), recordings)

    return Mutant(number, base, family, name), place


# -- kinds of files -------------------------------------------------------------------------------


def _instead(kind: str) -> Way:
    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "socket":
            with closing(socket.socket(socket.AF_UNIX)) as made, contextlib.chdir(path.parent):
                made.bind(path.name)
        else:
            path.symlink_to(kind)

    return way


def _shrinks(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
    size, after = dice.randrange(path.stat().st_size), dice.choice((0.0, 0.01, 0.03, 0.1, 0.3))
    subprocess.Popen(["sh", "-c", f"sleep {after}; truncate -s {size} '{path}'"])


def _sparse(size: int) -> Way:
    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        os.truncate(path, size)
        pages = min(size // 512, 2**32 - 2)
        _header((28, 4, pages))(path, dice, recordings)

    return way


def _header(*fields: tuple[int, int, int]) -> Way:
    """Change fields of the header, each by offset, length and value."""

    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        with path.open("r+b") as file:
            for offset, length, value in fields:
                file.seek(offset)
                file.write(value.to_bytes(length))

    return way


# -- files beside it ------------------------------------------------------------------------------


def _beside(suffix: str, content: str) -> Way:
    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        other = path.with_name(path.name + suffix)
        if content == "directory":
            other.mkdir()
        elif content == "pipe":
            os.mkfifo(other)
        elif content.startswith("/"):
            other.symlink_to(content)
        elif content == "random":
            other.write_bytes(dice.randbytes(40_000))
        elif content == "zeros":
            other.write_bytes(bytes(50 << 20))
        else:
            log = bytearray(_log_of(recordings[dice.choice(sorted(recordings))], path))
            if content == "changed":
                for _ in range(20):
                    log[dice.randrange(len(log))] ^= 1 << dice.randrange(8)
            elif content == "cut":
                del log[dice.randrange(len(log)) :]
            elif content == "pages of 2^31":
                log[8:12] = (1 << 31).to_bytes(4)
            other.write_bytes(log)

    return way


def _log_of(recording: Path, path: Path) -> bytes:
    """The log of another store to which something was written."""
    copy = path.with_name("other-store.db")
    shutil.copy(recording, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE recordings SET started_ns = started_ns + 1")
        connection.execute("CREATE TABLE more AS SELECT * FROM blobs")
        found = copy.with_name(f"{copy.name}-wal").read_bytes()
    for old in path.parent.glob("other-store.db*"):
        old.unlink()
    return found


# -- rows -----------------------------------------------------------------------------------------


def _sql(*statements: str) -> Way:
    """Execute statements; `{table}` and `{columns}` are of a table with rows."""

    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            table, columns = dice.choice(_tables(connection))
            for statement in statements:
                text = statement.format(table=table, columns=", ".join(columns), first=columns[0])
                with contextlib.suppress(sqlite3.Error):
                    connection.execute(text)
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return way


def _tables(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    names = [name for (name,) in connection.execute(query)]
    return [
        (name, [row[1] for row in connection.execute(f"PRAGMA table_info({name})")])
        for name in names
        if connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    ]


def _every(value: str, *endings: str) -> Way:
    """Set every column whose name ends so, in every table and row."""

    def way(path: Path, dice: random.Random, recordings: Mapping[str, Path]) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            places = [
                (table, column)
                for table, columns in _tables(connection)
                for column in columns
                if column.endswith(endings) and column != "id"
            ]
            for table, column in dice.sample(places, dice.randrange(1, len(places) + 1)):
                with contextlib.suppress(sqlite3.Error):
                    text = value.format(column=column, table=table)
                    connection.execute(f"UPDATE OR REPLACE {table} SET {column} = {text}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return way


_LINKS = ("_id", "_of", "cause", "parent", "first", "stack", "pack", "case")
_TIMES = ("_ns", "seconds")
_TEXTS = (
    "name", "message", "file", "reason", "kind", "status", "backend", "stage", "partition",
    "value", "key", "compile_id", "data", "digest", "argv", "type",
)  # fmt: skip
_LONG = "replace(hex(zeroblob(50000000)), '00', 'ab')"
_NESTED = (
    "replace(hex(zeroblob({count})), '00', '{open}') || "
    "replace(hex(zeroblob({count})), '00', '{close}')"
)

# ruff: noqa: E501
_WAYS: tuple[tuple[str, str, Way], ...] = (
    *(("files", kind, _instead(kind)) for kind in (
        "pipe", "directory", "socket", "run.db", "/dev/zero", "/dev/null", "/dev/full", "/dev/tty",
        "/dev/random", "/proc/self/mem", "/proc/self/environ", "/nowhere/at/all",
    )),
    *(("shrinks", f"shrinks while it is read, {number}", _shrinks) for number in range(6)),
    ("pages", "2^32 - 1 pages", _header((28, 4, 2**32 - 1))),
    ("pages", "a sparse file of 1 TB", _sparse(1 << 40)),
    ("pages", "a sparse file of 4 GB", _sparse(4 << 30)),
    ("pages", "pages of 0 bytes", _header((16, 2, 0))),
    ("pages", "pages of 65536 bytes", _header((16, 2, 1))),
    ("pages", "255 bytes reserved", _header((20, 1, 255))),
    ("pages", "UTF-16", _header((56, 4, 2))),
    ("pages", "an encoding of no kind", _header((56, 4, 9))),
    ("pages", "a free list that begins with itself", _header((32, 4, 1), (36, 4, 2**31))),
    ("pages", "a format of 99", _header((44, 4, 99))),
    ("pages", "not written ahead", _header((18, 1, 1), (19, 1, 1))),
    ("pages", "written as nobody can", _header((18, 1, 9), (19, 1, 9))),
    *(("logs", f"{suffix} is {content}", _beside(suffix, content)) for suffix, content in (
        ("-wal", "another store's"), ("-wal", "changed"), ("-wal", "cut"), ("-wal", "random"),
        ("-wal", "zeros"), ("-wal", "pages of 2^31"), ("-wal", "directory"), ("-wal", "pipe"),
        ("-wal", "/dev/zero"), ("-wal", "/nowhere/at/all"), ("-shm", "random"),
        ("-shm", "directory"), ("-shm", "pipe"), ("-journal", "random"), ("-journal", "directory"),
        ("-journal", "pipe"),
    )),
    *(("cycles", f"rows that are {name}", _every(value, *_LINKS)) for name, value in (
        ("their own parents", "rowid"), ("the parents of the next", "rowid % 3 + 1"),
        ("the last", "(SELECT max(rowid) FROM {table})"),
    )),
    *(("integers", name, _every(value, "", )) for name, value in (
        ("40 digits", "'" + "9" * 40 + "'"), ("1e400", "9e999"), ("2^63", "9223372036854775808"),
    )),
    *(("nesting", f"{count} levels of {name}", _every(
        _NESTED.format(count=count, open=left, close=right), "data", "value", "argv", "signature",
        "kinds", "chain", "observed")) for name, left, right in (
        ("lists", "[", "]"), ("objects", '{{"a":', "}}")) for count in (127, 2_000, 100_000)),
    *(("SQL", name, _sql(*statements)) for name, statements in (
        ("without rowid", ("ALTER TABLE {table} RENAME TO other", "CREATE TABLE {table} ({columns}, "
            "PRIMARY KEY ({first})) WITHOUT ROWID", "INSERT INTO {table} SELECT * FROM other",
            "DROP TABLE other")),
        ("strict", ("ALTER TABLE {table} RENAME TO other",
            "CREATE TABLE {table} (x ANY) STRICT")),
        ("an index of an expression", ("CREATE INDEX i ON {table} (hex({first}))",)),
        ("a partial index", ("CREATE INDEX i ON {table} ({first}) WHERE {first} > 5",)),
        ("a check", ("ALTER TABLE {table} ADD COLUMN more CHECK (more > 1)",)),
        ("a default that computes", ("ALTER TABLE {table} ADD COLUMN more DEFAULT (1 + 1)",)),
        ("a generated column more", ("ALTER TABLE {table} ADD COLUMN more AS (hex(zeroblob(99999999)))",)),
        ("dbstat", ("ALTER TABLE {table} RENAME TO other", "CREATE VIRTUAL TABLE {table} USING dbstat")),
        ("rtree", ("ALTER TABLE {table} RENAME TO other",
            "CREATE VIRTUAL TABLE {table} USING rtree(id, a, b)")),
        ("a trigger that deletes", ("CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",)),
        ("a recursive view beside it", ("CREATE VIEW more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
            "SELECT i + 1 FROM n) SELECT i FROM n",)),
        ("a table of a view's name", ("CREATE TABLE guards (compile)", "CREATE TABLE json_each (value)",
            "INSERT INTO guards VALUES ('hostile')")),
        ("2,000 columns", tuple(f"ALTER TABLE {{table}} ADD COLUMN c{n}" for n in range(300))),
    )),
    *(("dates", name, _every(value, *_TIMES)) for name, value in (
        ("-2^63", "-9223372036854775808"), ("2^63 - 1", "9223372036854775807"), ("0", "0"),
        ("-1", "-1"), ("the year 10000", "253402300800000000000 / 1000"), ("backwards", "-{column}"),
        ("not a number", "'nan'"), ("1e300", "1e300"),
    )),
    ("texts", "NUL bytes", _every("CAST(x'61000062' AS TEXT)", *_TEXTS)),
    ("texts", "NUL bytes before", _every("CAST(x'00' || {column} AS TEXT)", *_TEXTS)),
    ("texts", "escape sequences", _every("CAST(x'1b5d303b780700e280ae' AS TEXT)", *_TEXTS)),
    ("texts", "100 MB in one column", _sql(f"UPDATE {{table}} SET {{first}} = {_LONG} WHERE rowid = 1")),
    ("texts", "100 MB in a message", _sql(f"UPDATE failures SET message = {_LONG}",
        f"UPDATE recordings SET status = {_LONG}")),
    ("texts", "100 MB in an environment", _sql(f"UPDATE environment SET value = {_LONG} WHERE rowid = 1")),
)  # fmt: skip
