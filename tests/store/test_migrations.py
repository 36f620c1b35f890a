"""Migrations lead to the schema that the code uses, from every store that was ever written."""

import os
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    create_mock_engine,
    inspect,
    select,
    text,
)

from tests.store.rows import add_compile, add_event, add_recording
from torchreel.errors import DamagedStore, NotAStore
from torchreel.store import Store, database, migrations, queries, schema
from torchreel.store.blobs.pages import COLUMNS, write_page, write_pages
from torchreel.store.revision import REVISION
from torchreel.store.schema import COMPUTED, PUSHED_TO, metadata


def test_the_newest_migration_is_the_revision_that_the_code_knows() -> None:
    script = ScriptDirectory.from_config(migrations.alembic_config())
    assert script.get_heads() == [REVISION]


def test_revisions_are_numbers_in_order() -> None:
    """`Store.open` compares them to tell a newer store from an older one."""
    script = ScriptDirectory.from_config(migrations.alembic_config())
    newest_first = [int(step.revision) for step in script.walk_revisions()]
    assert newest_first == sorted(newest_first, reverse=True)


@pytest.fixture
def migrated() -> Engine:
    """A database that every migration in turn has made."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        migrations.upgrade(connection)
    return engine


def test_the_migrations_make_the_tables_of_the_schema(migrated: Engine) -> None:
    with migrated.connect() as connection:
        assert _differences(connection) == []


def test_foreign_keys_and_their_rules_are_those_of_the_schema(migrated: Engine) -> None:
    """Alembic's comparison ignores ON DELETE on SQLite."""
    expected = create_engine("sqlite://")
    metadata.create_all(expected)
    for table in metadata.tables:
        assert _keys(migrated, table) == _keys(expected, table), table


def test_a_new_store_says_which_revision_it_is(store: Store) -> None:
    """It is made from the schema, without Alembic."""
    with store.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == REVISION
        differences = [(what, str(table)) for what, table in _differences(connection)]
        assert sorted(differences) == sorted(("add_table", table.name) for table in COMPUTED)


def test_the_tables_of_what_is_computed_come_with_the_first_row(path: Path, store: Store) -> None:
    with store.writer() as w:
        assert w.put("cases", digest="c", call_nodes=1, document="d")
        reduction = {"start_case": "c", "best_case": "c", "status": "running", "started_ns": 1}
        w.add("reductions", **reduction, oracle_runs=0, cache_hits=0, seconds=0.0)
    with store.connect() as connection:
        assert _differences(connection) == []
    with Store.open(path) as reader:
        (found,) = queries.reductions(reader)
        assert found.status == "running"
        assert queries.by_catch(reader, found) == []


def test_what_is_read_before_anything_is_computed_is_nothing(path: Path, store: Store) -> None:
    with store.writer() as w:
        compile_id = add_compile(w, add_recording(w))
    for opened in (store, Store.open(path)):
        with opened:
            assert queries.reductions(opened) == []
            assert queries.replays(opened, queries.compile_by_id(opened, compile_id)) == []
            assert opened.rows(select(*(table for table in COMPUTED))) == []
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT * FROM replays")


@pytest.fixture
def old_pages(path: Path) -> Path:
    """A store of revision 0005: pages of three kinds in one blob, and one in a blob of its own."""
    pages = {"a": [1, 5], "b": [2, 3], "c": [4]}
    documents = {kind: _document(seqs) for kind, seqs in pages.items()}
    names = ("compile_id", "kind", "count", "first_seq", "last_seq", "digest", "line")
    insertion = f"INSERT INTO event_pages (recording_id, {', '.join(names)}) VALUES (1, "
    with Store.open(path, write=True) as store, store.writer() as w:
        w.connection.execute(text("DELETE FROM alembic_version"))
        metadata.drop_all(w.connection)
        migrations.upgrade(w.connection, "0005")
        compile_id = add_compile(w, add_recording(w))
        together, alone = w.blob(write_pages([*documents.values()])), w.blob(_document([7]))
        for compile_, kind, seqs, digest, line in (
            (compile_id, "b", pages["b"], together, 2), (None, "d", [7], alone, None),
            (compile_id, "a", pages["a"], together, 1), (compile_id, "c", pages["c"], together, 3),
        ):  # fmt: skip
            row = (compile_, kind, len(seqs), seqs[0], seqs[-1], digest, line)
            statement = text(f"{insertion}{', '.join(f':{name}' for name in names)})")
            w.connection.execute(statement, dict(zip(names, row, strict=True)))
    return path


@pytest.mark.parametrize("write", [False, True])
def test_pages_of_an_older_store_are_one_row_for_each_blob(old_pages: Path, write: bool) -> None:
    with Store.open(old_pages, write=write) as store:
        whole = queries.recording(store, 1)
        found = [(event.seq, event.kind) for event in queries.events(store, whole)]
        assert found == [(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "a"), (7, "d")]
        assert queries.event_counts(store, whole) == {"a": 2, "b": 2, "c": 1, "d": 1}
        (compile_,) = queries.compiles(store, 1)
        assert [e.seq for e in queries.events(store, compile_, "b")] == [2, 3]
        rows = store.rows(select(schema.event_pages.c.kinds, schema.event_pages.c.last_seq))
        assert rows == [([["a", 2], ["b", 2], ["c", 1]], 5), ([["d", 1]], 7)]


@pytest.mark.parametrize("kind", ["a", "b", "c"])
def test_pages_that_were_deleted_stay_deleted(old_pages: Path, kind: str) -> None:
    with closing(sqlite3.connect(old_pages)) as connection, connection:
        connection.execute("DELETE FROM event_pages WHERE kind = ?", (kind,))
    left = {"a": 2, "b": 2, "c": 1, "d": 1}
    del left[kind]
    with Store.open(old_pages) as store:
        whole = queries.recording(store, 1)
        assert Counter(event.kind for event in queries.events(store, whole)) == left
        assert queries.event_counts(store, whole) == left
        assert queries.events(store, whole, kind) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event_pages SET line = 10000000000 WHERE line = 1",
        "UPDATE event_pages SET line = 'x' WHERE line = 1",
        "UPDATE event_pages SET line = -1 WHERE line = 1",
        "UPDATE event_pages SET first_seq = 'x' WHERE line = 1",
        "UPDATE event_pages SET kind = x'ff00' WHERE line = 1",
        "UPDATE event_pages SET kind = cast(x'ff00' AS text) WHERE line = 1",
        "UPDATE event_pages SET recording_id = 99",
        "DROP TABLE event_pages",
    ],
)
def test_an_older_store_that_is_none_is_a_damaged_one(old_pages: Path, change: str) -> None:
    with closing(sqlite3.connect(old_pages)) as connection, connection:
        connection.execute(change)
    before = old_pages.read_bytes()
    for write in (False, True):
        with pytest.raises(DamagedStore, match=re.escape(str(old_pages))):
            Store.open(old_pages, write=write)
    with closing(sqlite3.connect(old_pages)) as connection:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert found == [("0005",)]
    assert len(old_pages.read_bytes()) == len(before)


def test_an_index_may_be_gone_already(old_pages: Path) -> None:
    with closing(sqlite3.connect(old_pages)) as connection, connection:
        connection.execute("DROP INDEX ix_failures_signature_digest")
    with Store.open(old_pages) as store:
        assert len(queries.recordings(store)) == 1


def _document(seqs: list[int]) -> bytes:
    nothing = [None] * len(seqs)
    columns = {**dict.fromkeys(COLUMNS, nothing), "seq": seqs, "time_ns": seqs, "data": nothing}
    return write_page(columns, None, str)


NEXT = f"{int(REVISION) + 1:04}"
NEXT_STEP = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "{next}", "{now}"

def upgrade():
    op.add_column("lost", sa.Column("colour", sa.Text(), server_default="red"))
    {then}
"""


@pytest.fixture
def next_step(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torchreel whose schema is one step ahead of the store at `path`; the step's file."""
    with Store.open(path, write=True) as store, store.writer() as w:
        recording = add_recording(w)
        w.add("lost", recording_id=recording, reason="r", place="p", count=1, message="m")
    config = migrations.alembic_config
    ours = Path(migrations.__file__).with_name("versions")

    def config_with_more() -> Config:
        both = config()
        both.set_main_option("version_locations", f"{ours}{os.pathsep}{tmp_path}")
        both.set_main_option("path_separator", "os")
        return both

    monkeypatch.setattr(migrations, "alembic_config", config_with_more)
    monkeypatch.setattr(database, "REVISION", NEXT)
    return tmp_path / f"{NEXT}_colour.py"


COLOUR = text("SELECT colour FROM lost")


def test_an_older_store_is_read_as_it_is(path: Path, next_step: Path) -> None:
    next_step.write_text(NEXT_STEP.format(next=NEXT, now=REVISION, then=""))
    before = path.read_bytes()
    with Store.open(path) as store:
        assert len(queries.recordings(store)) == 1
    assert path.read_bytes() == before


def test_an_older_store_is_migrated_to_be_written(path: Path, next_step: Path) -> None:
    next_step.write_text(NEXT_STEP.format(next=NEXT, now=REVISION, then=""))
    with Store.open(path, write=True) as store, store.connect() as connection:
        assert connection.execute(COLOUR).scalars().all() == ["red"]
    with Store.open(path) as store:
        assert len(queries.recordings(store)) == 1


def test_a_migration_that_fails_half_way_changes_nothing(path: Path, next_step: Path) -> None:
    next_step.write_text(
        NEXT_STEP.format(next=NEXT, now=REVISION, then="raise RuntimeError('on purpose')")
    )
    with pytest.raises(RuntimeError, match="on purpose"):
        Store.open(path, write=True)
    with closing(sqlite3.connect(path)) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert revision == REVISION
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            connection.execute(str(COLOUR))


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005", "0006"])
def test_a_store_of_every_revision_can_be_read(tmp_path: Path, path: Path, revision: str) -> None:
    """For reading it is migrated in a copy: the file itself stays what it is."""
    old = Path(shutil.copy(path, tmp_path / "old.db"))
    with Store.open(old, write=True) as store, store.writer() as w:
        w.connection.execute(text("DELETE FROM alembic_version"))
        metadata.drop_all(w.connection)
        migrations.upgrade(w.connection, revision)
        add_event(w, add_recording(w), 1)
    before = old.read_bytes()
    with Store.open(old) as store:
        (recording,) = queries.recordings(store)
        (event,) = queries.events(store, recording)
        assert (event.seq, event.cause) == (1, None)
    assert old.read_bytes() == before
    assert not list(tmp_path.glob("old.db-*"))


def test_names_that_came_again_in_an_older_store_are_told_apart(path: Path) -> None:
    names = [("0/0", 0), ("0/0", 1), ("-", 0), ("1/0", 0), ("0/0", 0), ("0/0", 1), ("-", 1)]
    with Store.open(path, write=True) as store, store.writer() as w:
        w.connection.execute(text("DELETE FROM alembic_version"))
        metadata.drop_all(w.connection)
        migrations.upgrade(w.connection, "0006")
        recording = add_recording(w)
        for name, attempt in names:
            add_compile(w, recording, name, attempt=attempt)
    with Store.open(path, write=True) as store:
        found = [row.place for row in queries.compiles(store, recording)]
    assert found == [
        "1/0/0", "1/0/0_1", "1/-", "1/1/0", "1/g1/0/0", "1/g1/0/0_1", "1/-_1",
    ]  # fmt: skip


def test_stacks_of_an_older_store_are_what_they_were(path: Path) -> None:
    """Each frame was a row of its own then."""
    frames = [(1, None, "a.py", 1, "f"), (2, 1, "\u00e9.py", 2, "g"), (3, 1, "b.py", 3, "h")]
    with Store.open(path, write=True) as store, store.writer() as w:
        w.connection.execute(text("DELETE FROM alembic_version"))
        metadata.drop_all(w.connection)
        migrations.upgrade(w.connection, "0002")
        recordings = [add_recording(w), add_recording(w)]
        for recording in recordings:
            add_event(w, recording, 1, stack=2)
            for frame in frames[: 1 + recording]:
                names = ("id", "parent", "file", "line", "name")
                values = {"recording_id": recording, **dict(zip(names, frame, strict=True))}
                w.connection.execute(
                    text(
                        "INSERT INTO stack_frames VALUES "
                        "(:recording_id, :id, :parent, :file, :line, :name)"
                    ),
                    values,
                )
    with Store.open(path, write=True) as store:
        for recording in queries.recordings(store):
            (event,) = queries.events(store, recording)
            stack = queries.stack(store, event)
            assert [(f.recording_id, f.file, f.line, f.name) for f in stack] == [
                (recording.id, "a.py", 1, "f"), (recording.id, "\u00e9.py", 2, "g"),
            ]  # fmt: skip
            assert len(queries.stack_frames(store, recording.id)) == 1 + recording.id


def test_a_store_without_a_revision_is_none(path: Path) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        w.connection.execute(text("DELETE FROM alembic_version"))
    with pytest.raises(NotAStore):
        Store.open(path)


def test_migrating_twice_changes_nothing(store: Store) -> None:
    with store.writer() as w:
        before = w.connection.execute(text("SELECT sql FROM sqlite_master")).all()
        migrations.upgrade(w.connection)
        assert w.connection.execute(text("SELECT sql FROM sqlite_master")).all() == before


def test_the_schema_has_a_postgresql_form() -> None:
    statements: list[str] = []
    engine = create_mock_engine(
        "postgresql+psycopg://",
        lambda sql, *_: statements.append(str(sql.compile(dialect=engine.dialect))),
    )
    metadata.create_all(engine, checkfirst=False)
    assert sum("CREATE TABLE" in statement for statement in statements) == len(metadata.tables)


def _keys(engine: object, table: str) -> list[tuple[object, ...]]:
    return sorted(
        (tuple(key["constrained_columns"]), key["referred_table"], key["options"].get("ondelete"))
        for key in inspect(engine).get_foreign_keys(table)  # type: ignore[attr-defined]
    )


def _differences(connection: Connection) -> list[Any]:
    """What Alembic would change to make the tables of a file those of the schema."""

    def concerns_a_file(item: object, *_: object) -> bool:
        return PUSHED_TO not in getattr(item, "info", {})

    options = {"compare_type": True, "include_object": concerns_a_file}
    found: list[Any] = compare_metadata(
        MigrationContext.configure(connection, opts=options), metadata
    )
    return found
