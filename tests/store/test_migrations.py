"""Migrations lead to the schema that the code uses, from every store that was ever written."""

import os
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, create_mock_engine, inspect, text

from tests.store.rows import add_recording
from torchreel.errors import DamagedStore, NotAStore
from torchreel.store import Store, database, migrations, queries
from torchreel.store.schema import REVISION, metadata


def test_the_newest_migration_is_the_revision_that_the_code_knows() -> None:
    script = ScriptDirectory.from_config(migrations.alembic_config())
    assert script.get_heads() == [REVISION]


def test_revisions_are_numbers_in_order() -> None:
    """`Store.open` compares them to tell a newer store from an older one."""
    script = ScriptDirectory.from_config(migrations.alembic_config())
    newest_first = [int(step.revision) for step in script.walk_revisions()]
    assert newest_first == sorted(newest_first, reverse=True)


def test_the_migrations_make_the_tables_of_the_schema(store: Store) -> None:
    with store.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_foreign_keys_and_their_rules_are_those_of_the_schema(store: Store) -> None:
    """Alembic's comparison ignores ON DELETE on SQLite."""
    expected = create_engine("sqlite://")
    metadata.create_all(expected)
    for table in metadata.tables:
        assert _keys(store.engine, table) == _keys(expected, table), table


NEXT_STEP = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0002", "0001"

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
    monkeypatch.setattr(database, "REVISION", "0002")
    return tmp_path / "0002_colour.py"


COLOUR = text("SELECT colour FROM lost")


def test_an_older_store_is_read_as_it_is(path: Path, next_step: Path) -> None:
    next_step.write_text(NEXT_STEP.format(then=""))
    before = path.read_bytes()
    with Store.open(path) as store:
        assert len(queries.recordings(store)) == 1
    assert path.read_bytes() == before


def test_an_older_store_is_migrated_to_be_written(path: Path, next_step: Path) -> None:
    next_step.write_text(NEXT_STEP.format(then=""))
    with Store.open(path, write=True) as store, store.connect() as connection:
        assert connection.execute(COLOUR).scalars().all() == ["red"]
    with Store.open(path) as store:
        assert len(queries.recordings(store)) == 1


def test_a_migration_that_fails_half_way_changes_nothing(path: Path, next_step: Path) -> None:
    next_step.write_text(NEXT_STEP.format(then="raise RuntimeError('on purpose')"))
    with pytest.raises(RuntimeError, match="on purpose"):
        Store.open(path, write=True)
    with Store.open(path) as store, store.connect() as connection:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        assert revision == "0001"
        with pytest.raises(DamagedStore, match="no such column"):
            connection.execute(COLOUR)


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
