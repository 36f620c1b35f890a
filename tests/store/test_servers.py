"""A store on a server: a real PostgreSQL, opened, written, read and refused as a file is."""

from __future__ import annotations

import multiprocessing
import traceback
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, select, text

from tests.server import PASSWORD, Server
from tests.store.rows import add_compile, add_event, add_failure, add_graph, add_recording
from torchreel.errors import (
    DamagedStore,
    LockedStore,
    MissingStore,
    NewerStore,
    NotAStore,
    StoreError,
    TorchreelError,
    UnsupportedError,
    UsageError,
)
from torchreel.recorder import launch
from torchreel.recorder.trace_import import import_trace
from torchreel.store import ConfigEntry, Signature, Store, parse, queries
from torchreel.store.passwords import full, hidden
from torchreel.store.recording import open_for_recording
from torchreel.store.schema import metadata, reductions
from torchreel.store.servers import connections

FAILED = Signature("exception", "lowering", "inference", ("KeyError",), ("torch:f",), "no key")


def test_the_migrations_make_the_tables_of_the_schema(url: str) -> None:
    with Store.open(url) as store, store.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_what_is_written_is_read_as_from_a_file(url: str, tmp_path: Path) -> None:
    found = []
    for target in (url, str(tmp_path / "run.db")):
        with Store.open(target, create=True) as store:
            with store.writer() as w:
                recording = add_recording(w, cwd="/a\udcff", argv=["x\0y", "\u20ac"])
                config = w.config([ConfigEntry("m", "k", "1"), ConfigEntry("m", "b", [1], False)])
                compile_ = add_compile(w, recording, "0/1", config_id=config, status="failed")
                add_graph(w, compile_, digest=w.blob(b"g" * 1000))
                add_event(w, recording, 2**40, compile_id=compile_, data={"a": [1.5, None, "\0"]})
                add_failure(w, recording, compile_, FAILED)
                add = {"reason": "Z", "count": 1, "message": "m"}
                rows = [{"recording_id": recording, "place": p, **add} for p in ("b", "A", "_")]
                w.add_many("lost", rows)
            found.append(_everything(store))
    assert found[0] == found[1]


def _everything(store: Store) -> list[object]:
    (recording,) = queries.recordings(store)
    (compile_,) = queries.compiles(store, recording.id)
    (graph,) = queries.graphs(store, compile_)
    return [
        recording, compile_, graph, store.read_blob(graph.digest),
        queries.lost(store, recording.id), queries.config(store, compile_.config_id),
        queries.events(store, recording),
        queries.failure_of(store, compile_), queries.latest_failing(store),
    ]  # fmt: skip


def test_text_with_a_nul_is_kept_escaped(url: str) -> None:
    with Store.open(url, write=True) as store, store.writer() as w:
        add_recording(w, cwd="/a\0b")
    with Store.open(url) as store:
        assert [row.cwd for row in queries.recordings(store)] == ["/a\\x00b"]


def test_a_reader_sees_one_state_and_can_write_nothing(url: str) -> None:
    with Store.open(url, write=True) as writer, Store.open(url) as reader:
        with reader.connect() as connection:
            count = text("SELECT count(*) FROM recordings")
            assert connection.execute(count).scalar() == 0
            with writer.writer() as w:
                add_recording(w)
            assert connection.execute(count).scalar() == 0
        with reader.connect() as connection:
            assert connection.execute(count).scalar() == 1
            with pytest.raises(LockedStore, match="read-only"):
                connection.execute(text("DELETE FROM recordings"))
        with pytest.raises(UsageError, match="reading only"), reader.writer():
            pass


def test_a_transaction_that_fails_leaves_nothing(url: str) -> None:
    with Store.open(url, write=True) as store:
        with pytest.raises(DamagedStore):
            _write_too_much(store)
        with store.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM recordings")).scalar() == 0
            assert connection.execute(text("SELECT count(*) FROM blobs")).scalar() == 0


def _write_too_much(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        w.blob(b"x" * 100)
        add_compile(w, recording, attempt=2**70)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_schemes_of_a_url(url: str, scheme: str) -> None:
    with Store.open(f"{scheme}://{url.partition('://')[2]}") as store:
        assert queries.recordings(store) == []


def test_what_is_no_server_is_said(server: Server) -> None:
    with pytest.raises(StoreError, match=r"can't be opened.*refused"):
        Store.open("postgresql+psycopg://me@127.0.0.1:1/db")
    with pytest.raises(MissingStore, match="nothing_there"):
        Store.open(server.url("nothing_there"))
    with pytest.raises(LockedStore, match="nobody_here"):
        Store.open(server.url("torchreel", user="nobody_here"))
    with pytest.raises(UnsupportedError, match="SQLite or PostgreSQL"):
        Store.open("mysql://me@host/db")


def test_a_database_without_tables_is_no_store_until_it_is_prepared(server: Server) -> None:
    empty = server.new_database()
    for write in (False, True):
        with pytest.raises(NotAStore, match="torchreel prepare"):
            Store.open(empty, write=write)
    Store.open(empty, create=True).close()
    Store.open(empty, write=True).close()


def test_recording_and_importing_make_and_migrate_nothing(server: Server, tmp_path: Path) -> None:
    """Others use the store: its owner prepares it."""
    empty, older = server.new_database(), server.new_database()
    Store.open(older, create=True).close()
    server.execute("UPDATE alembic_version SET version_num = '0009'", database=older.split("/")[-1])
    (tmp_path / "dedicated_log_torch_trace_x.log").write_text("")
    for url, error in ((empty, NotAStore), (older, LockedStore)):
        with pytest.raises(error, match="torchreel prepare"):
            open_for_recording(url)
        with pytest.raises(error, match="torchreel prepare"):
            import_trace(tmp_path, url)
        assert "torchreel prepare" in launch._prepare(url)


def test_a_newer_store_is_refused_and_an_older_one_not_changed_by_the_way(
    server: Server, url: str
) -> None:
    database = url.rpartition("/")[2]
    server.execute("UPDATE alembic_version SET version_num = '9000'", database=database)
    with pytest.raises(NewerStore):
        Store.open(url, create=True)
    server.execute("UPDATE alembic_version SET version_num = '0006'", database=database)
    for write in (False, True):
        with pytest.raises(LockedStore, match="torchreel prepare"):
            Store.open(url, write=write)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE lost RENAME TO kept; CREATE VIEW lost AS SELECT * FROM kept",
        "ALTER TABLE lost DROP COLUMN place",
        "ALTER TABLE lost DROP COLUMN place; "
        "ALTER TABLE lost ADD COLUMN place text GENERATED ALWAYS AS (message || '!') STORED",
        "DROP TABLE lost",
    ],
)
def test_tables_that_compute_or_lack_something_are_refused(
    server: Server, url: str, change: str
) -> None:
    server.execute(*change.split("; "), database=url.rpartition("/")[2])
    with pytest.raises(DamagedStore, match="lost"):
        Store.open(url)


def test_a_blob_that_is_not_what_its_digest_says_is_not_read(server: Server, url: str) -> None:
    with Store.open(url, write=True) as store:
        with store.writer() as w:
            digest = w.blob(b"good" * 100)
        changes = "UPDATE blobs SET data = '\\x61', codec = 'raw', size = 1"
        server.execute(changes, database=url.rpartition("/")[2])
        with pytest.raises(DamagedStore, match="another digest"):
            store.read_blob(digest)


def test_values_that_no_column_should_have_are_named(server: Server, url: str) -> None:
    with Store.open(url, write=True) as store:
        with store.writer() as w:
            add_recording(w)
        server.execute("UPDATE recordings SET argv = '[1'", database=url.rpartition("/")[2])
        with pytest.raises(DamagedStore, match=r"recordings\.argv"):
            queries.recordings(store)


def _prepare(url: str) -> None:
    Store.open(url, create=True).close()


def test_many_prepare_a_store_at_once(server: Server) -> None:
    empty = server.new_database()
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        pool.map(_prepare, [empty] * 4)
    Store.open(empty).close()


def test_a_server_that_comes_back_is_used_again(url: str, server: Server) -> None:
    with Store.open(url, write=True) as store:
        with store.writer() as w:
            add_recording(w)
        server.kill()
        try:
            with pytest.raises(StoreError, match=r"opened|shut down|connection"):
                queries.recordings(store)
        finally:
            server.start()
        assert len(queries.recordings(store)) == 1


@pytest.mark.parametrize("write", [False, True])
def test_a_server_that_was_started_again_is_no_error(url: str, server: Server, write: bool) -> None:
    with Store.open(url, write=write) as store:
        queries.recordings(store)
        server.stop()
        server.start()
        assert queries.recordings(store) == []
        if write:
            server.stop()
            server.start()
            with store.writer() as w:
                add_recording(w)


def _put(url: str) -> bool:
    """Write one identity; True if nobody had written it before."""
    with Store.open(url, write=True) as store, store.writer() as w:
        row = {"digest": "d", "kind": "wanted", "recording_id": None, "row_id": 0}
        return w.put("origins", **row, pushed_ns=1)


def test_a_writer_that_vanishes_in_a_transaction_is_waited_for_no_longer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections._WRITER, "idle_in_transaction_session_timeout", 500)

    def vanish() -> None:
        with Store.open(url, write=True) as store, store.writer() as w:
            row = {"digest": "d", "kind": "wanted", "recording_id": None, "row_id": 0}
            assert w.put("origins", **row, pushed_ns=1)
            assert _put(url), "the other transaction was taken back"

    with pytest.raises(StoreError, match=r"idle|closed|terminat"):
        vanish()


def test_a_lock_is_waited_for_within_limits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections._WRITER, "lock_timeout", 300)
    with Store.open(url, write=True) as store, store.writer() as w:
        connections.sweeping(w.connection)
        with (
            Store.open(url, write=True) as other,
            pytest.raises(LockedStore, match="lock timeout"),
            other.writer() as its,
        ):
            its.blob(b"what is swept")


def test_what_a_url_sets_is_left(url: str) -> None:
    mine = f"{url}?keepalives_idle=7&options=-c%20lock_timeout%3D4321"
    with Store.open(mine, write=True) as store, store.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        found = raw.info.get_parameters()
        assert (found["keepalives_idle"], found["keepalives_count"]) == ("7", "3")
        for name, value in (
            ("lock_timeout", "4321ms"), ("idle_in_transaction_session_timeout", "0"),
        ):  # fmt: skip
            assert connection.execute(text(f"SHOW {name}")).scalar() == value


# ---- Passwords


def test_a_password_opens_a_store_and_is_not_shown(server: Server, url: str) -> None:
    secret = server.locked_url(url.rpartition("/")[2])
    where = parse(f"{secret}#3/0/0")
    with Store.open(where.store) as store:
        shown = [store.target, str(where), repr(where), repr(store.engine), repr(store)]
        with pytest.raises(TorchreelError) as error:
            queries.compile_at(store, where)
        shown += traceback.format_exception(error.value)
        Store.open(store.target).close()  # the same process knows it
    assert PASSWORD not in "".join(shown)
    assert "fish" not in "".join(shown)
    assert full(store.target) == secret


def test_a_wrong_password_is_not_shown_either(server: Server) -> None:
    url = server.locked_url("torchreel").replace(":sword", ":open-sesame")
    with pytest.raises(LockedStore) as error:
        Store.open(url)
    assert "open-sesame" not in str(error.value)
    assert "open-sesame" not in repr(error.value.__cause__)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass/word@host/db", "postgresql://me@host/db"),
        ("postgresql://:word@host/db", "postgresql://@host/db"),
        ("postgresql://me@host/db?password=word", "postgresql://me@host/db"),
        ("postgresql://me@host/db?a=1&password=word&b=2", "postgresql://me@host/db?a=1&b=2"),
        ("postgresql://me@host/db?sslPassword=word&b=2", "postgresql://me@host/db?b=2"),
        ("postgresql://me@host/db?host=/tmp/x", "postgresql://me@host/db?host=/tmp/x"),
        ("dir:x@y/run.db", "dir:x@y/run.db"),
    ],
)
def test_hidden(url: str, shown: str) -> None:
    assert hidden(url) == shown
    assert full(hidden(url)) == url


def test_a_message_about_an_address_shows_no_password() -> None:
    for password in ("open-sesame", "open#sesame", "open/sesame"):
        with pytest.raises(UsageError) as error:
            parse(f"postgresql://me:{password}@host/db#nonsense")
        assert "sesame" not in str(error.value)


def test_a_server_is_not_asked_whether_it_has_a_table(url: str) -> None:
    """Triage reads some tables for each recording of thousands."""
    said: list[str] = []
    with Store.open(url) as store:
        event.listen(
            store.engine,
            "before_cursor_execute",
            lambda _, __, statement, *more: said.append(statement),
        )
        for _ in range(3):
            assert store.rows(select(reductions)) == []
    assert len(said) == 3
