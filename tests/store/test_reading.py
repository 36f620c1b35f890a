"""What is read from a store is checked: values, blobs, documents, the schema; and it ends."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from tests.store.rows import add_compile, add_recording
from torchreel.errors import DamagedStore
from torchreel.store import Store, limits, queries
from torchreel.store.documents.jsontypes import digest_of, parse_json
from torchreel.store.recording import open_for_recording


@pytest.fixture
def recorded(path: Path) -> Path:
    """A store with two recordings; the second has a compile."""
    with Store.open(path, write=True) as store, store.writer() as w:
        add_recording(w, run="first")
        add_compile(w, add_recording(w, run="second"))
        w.add_many("environment", [{"recording_id": 1, "key": "torch", "value": "2.13.0"}])
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def allow_nulls(path: Path) -> None:
    change(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')",
    )


VALUES = [
    ("cwd", "CAST(x'61ff' AS TEXT)", "is text that is not UTF-8"),
    ("cwd", "x'6161'", "is b'aa', and no text"),
    ("cwd", "NULL", "is null, and no text"),
    ("pid", "'many'", "is 'many', and no number"),
    ("pid", "1.5", "is 1.5, and no number"),
    ("pid", "9223372036854775808", "and no number"),
    ("argv", "'[1'", "is no JSON"),
    ("argv", "x'00'", "and no JSON"),
    ("argv", "NULL", "is null, and no"),
    ("argv", "replace(hex(zeroblob(9000)), '00', '[')", "nested too deep"),
    ("argv", "'" + "9" * 5000 + "'", "is no JSON"),
    ("argv", "'[NaN]'", "is no JSON"),
]


@pytest.mark.parametrize(("column", "value", "sentence"), VALUES)
def test_a_value_that_its_column_cannot_have(
    recorded: Path, column: str, value: str, sentence: str
) -> None:
    allow_nulls(recorded)
    change(recorded, f"UPDATE recordings SET {column} = {value} WHERE id = 2")
    with Store.open(recorded) as store:
        with pytest.raises(DamagedStore) as caught:
            queries.recordings(store)
        with store.as_far_as_readable() as unreadable:
            assert [row.run for row in queries.recordings(store)] == ["first"]
    assert f"recordings.{column} of row 2 " in str(caught.value)
    assert sentence in str(caught.value)
    assert unreadable == [str(caught.value)]


def test_a_row_is_named_by_its_key(recorded: Path) -> None:
    change(recorded, "UPDATE environment SET value = x'00'")
    with Store.open(recorded) as store, pytest.raises(DamagedStore) as caught:
        queries.environment(store, 1)
    assert "environment.value of row 1, 'torch' is b'\\x00', and no text" in str(caught.value)


def test_a_key_of_bytes(recorded: Path) -> None:
    change(recorded, "UPDATE environment SET key = x'00ff'")
    with Store.open(recorded) as store, pytest.raises(DamagedStore, match=r"environment\.key"):
        queries.environment(store, 1)


SCHEMAS = {
    "a view": (
        "ALTER TABLE recordings RENAME TO other",
        "CREATE VIEW recordings AS SELECT * FROM other",
    ),
    "an endless view": (
        "DROP TABLE lost",
        "CREATE VIEW lost AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS recording_id, i AS reason, i AS place, i AS count, i AS message FROM n",
    ),
    "a trigger": (
        "CREATE TRIGGER evil AFTER INSERT ON recordings BEGIN DELETE FROM recordings; END",
    ),
    "a virtual table": ("CREATE VIRTUAL TABLE more USING fts5(a)",),
    "a generated column": (
        "ALTER TABLE lost ADD COLUMN more TEXT AS (hex(zeroblob(100000000))) VIRTUAL",
    ),
    "a check": ("CREATE TABLE more (a CHECK (hex(zeroblob(100000000)) > a))",),
    "an index of expressions": ("CREATE INDEX more ON recordings (hex(cwd))",),
    "a column less": ("ALTER TABLE recordings RENAME COLUMN cwd TO other",),
    "a thousand tables": tuple(f"CREATE TABLE more{n} (a)" for n in range(1000)),
}


@pytest.mark.parametrize("mode", [{}, {"write": True}], ids=["read", "write"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_is_not_ours(recorded: Path, name: str, mode: dict[str, bool]) -> None:
    change(recorded, *SCHEMAS[name])
    with pytest.raises(DamagedStore, match="did not write this"):
        Store.open(recorded, **mode)


def test_nothing_is_recorded_into_a_schema_that_is_not_ours(recorded: Path) -> None:
    change(recorded, *SCHEMAS["a trigger"])
    with pytest.raises(DamagedStore, match="has a trigger 'evil'"):
        open_for_recording(str(recorded))


@pytest.mark.parametrize("revision", ["x'ff'", "1e300", "CAST(x'ff' AS TEXT)", "'-1'", "''", "'6'"])
def test_a_revision_of_no_kind(recorded: Path, revision: str) -> None:
    change(recorded, f"UPDATE alembic_version SET version_num = {revision}")
    with pytest.raises(Exception, match="revision") as caught:
        Store.open(recorded)
    assert type(caught.value).__name__ in ("DamagedStore", "NotAStore")


def test_a_query_that_would_not_end(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SQL_STEPS", 3_000_000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with (
        Store.open(recorded) as store,
        store.connect() as connection,
        pytest.raises(DamagedStore, match="takes longer than any does"),
    ):
        connection.exec_driver_sql(f"SELECT max(i) FROM ({endless})").all()


def test_a_value_that_is_longer_than_its_file(recorded: Path) -> None:
    with (
        Store.open(recorded) as store,
        store.connect() as connection,
        pytest.raises(DamagedStore, match="longer than any"),
    ):
        connection.exec_driver_sql("SELECT hex(zeroblob(100000000))").all()


# -- blobs ----------------------------------------------------------------------------------------


def put(path: Path, data: bytes, packed: bytes, size: int, codec: str = "zstd") -> str:
    digest = digest_of(data)
    with closing(sqlite3.connect(path)) as connection:
        row = (digest, codec, size, packed)
        connection.execute("INSERT INTO blobs (digest, codec, size, data) VALUES (?, ?, ?, ?)", row)
        connection.commit()
    return digest


def test_a_blob_that_claims_too_much_is_not_unpacked(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(64 << 20)
    digest = put(recorded, content, zstandard.compress(content), len(content))
    monkeypatch.setattr(zstandard, "ZstdDecompressor", None)
    with Store.open(recorded) as store, pytest.raises(DamagedStore, match="which no blob is"):
        store.read_blob(digest)


def test_a_frame_with_a_large_window(recorded: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, hash_log=6)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    digest = put(recorded, b"a" * 1000, packer.compress(b"a" * 1000) + packer.flush(), 1000)
    with Store.open(recorded) as store, pytest.raises(DamagedStore, match="does not unpack"):
        store.read_blob(digest)


def test_the_largest_blob_that_is_allowed_is_read(recorded: Path) -> None:
    content = bytes(limits.UNPACKED_FLOOR)
    digest = put(recorded, content, zstandard.compress(content), len(content))
    with Store.open(recorded) as store:
        assert store.read_blob(digest) == content


@pytest.mark.parametrize(
    "change_of_pack", ["dictionary = 'two'", "data = 'text'", "size = 'x'", "first = 'x'"]
)
def test_a_pack_of_other_types(recorded: Path, change_of_pack: str) -> None:
    with closing(sqlite3.connect(recorded, isolation_level=None)) as connection:
        connection.execute("INSERT INTO packs (size, data) VALUES (9, x'00')")
        row = (digest_of(b"x"), "pack", 1, b"", 1, 0)
        connection.execute("INSERT INTO blobs VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute(f"UPDATE packs SET {change_of_pack}")
    with Store.open(recorded) as store, pytest.raises(DamagedStore):
        store.read_blob(digest_of(b"x"))


def test_a_digest_that_is_none(recorded: Path) -> None:
    with Store.open(recorded) as store, pytest.raises(DamagedStore, match="which is no digest"):
        store.read_blob("\ud800")


# -- documents ------------------------------------------------------------------------------------


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (nested(limits.JSON_DEPTH + 1), "deeper than"),
        (nested(10_000), "too deeply"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "too deeply"),
        (f'["]",{nested(limits.JSON_DEPTH)}]', "deeper than"),
        ("[" * 10_000_000, "memory"),
        ("9" * 5000, ""),
        ("NaN", ""),
        ("[1e999]", ""),
        ("[-Infinity]", ""),
        ('["\\ud800", 1e999]', ""),
        ('["\\ud800", NaN]', ""),
        ("", ""),
        ("[1", ""),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_document_that_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason or "."):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        nested(limits.JSON_DEPTH), "18446744073709551616", "-9223372036854775809", "9" * 4000,
        '["\\ud800"]', '"é"', "[0.1, 1e300, -0.0, 5e-324]", '{"a": {"b": null}, "a": 2}', '"]]]["',
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_what_json_takes_is_read_alike(text: str) -> None:
    assert parse_json(text) == json.loads(text)
    assert repr(parse_json(text)) == repr(json.loads(text))


def test_bytes_that_are_no_utf8_are_kept() -> None:
    assert parse_json(b'["\xed\xa0\x80"]') == ["\ud800"]
