"""The recorder's way into a file writes what SQLAlchemy's does, and imports none of it."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.rows import add_compile, add_event, add_recording
from torchreel.errors import LockedStore, NewerStore, NotAStore
from torchreel.store import ConfigEntry, Store, queries, schema
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.files.direct import DirectStore, DirectWriter
from torchreel.store.recording import open_for_recording
from torchreel.store.writer import Writer


def test_the_sql_of_a_new_store_is_that_of_the_tables() -> None:
    assert Path(schema.__file__).with_name("schema.sql").read_text() == schema.sql()


def _write_everything(w: Writer | DirectWriter) -> None:
    recording = add_recording(w, cwd="/src/\udcff\u00e9", argv=["a", "\u00e9"])  # type: ignore[arg-type]
    compile_ = add_compile(w, recording)  # type: ignore[arg-type]
    add_event(w, recording, 1, compile_id=compile_, data={"b": [1, None], "a": "x"})  # type: ignore[arg-type]
    assert w.blob(b"x" * 1000) == w.blob(b"x" * 1000)
    entries = [ConfigEntry("m", "b", [1]), ConfigEntry("m", "a", "text", portable=False)]
    config = w.config(entries)
    assert w.config(entries[::-1]) == config
    w.update("compiles", compile_, config_id=config, status="failed")
    assert w.put("environment", recording_id=recording, key="k", value="v")
    assert not w.put("environment", recording_id=recording, key="k", value="w")
    rows = [{"recording_id": recording, "reason": r, "place": "p", "count": 1} for r in "ab"]
    w.add_many("lost", [{**row, "message": "m"} for row in rows])
    w.clear_losses(recording)
    w.add_many("lost", [{**rows[0], "message": "m"}])
    w.delete("recordings", add_recording(w))  # type: ignore[arg-type]


def _dump(path: Path) -> list[str]:
    """The rows of all tables, but for how the bytes of blobs are kept."""
    with closing(sqlite3.connect(path)) as connection:
        kept = ('INSERT INTO "blobs"', 'INSERT INTO "packs"')
        return [line for line in connection.iterdump() if not line.startswith(kept)]


def test_both_writers_write_the_same_rows(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    store = open_for_recording(str(ours))
    assert isinstance(store, DirectStore)
    with store.writer() as w:
        _write_everything(w)
    store.close()
    with Store.open(theirs, create=True) as other, other.writer() as writer:
        _write_everything(writer)
    assert _dump(ours) == _dump(theirs)
    assert len(_dump(ours)) > 35


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    store = open_for_recording(str(path))
    digest = digest_of(b"gone again" * 20)

    def fail_half_way() -> None:
        with store.writer() as w:
            add_recording(w)  # type: ignore[arg-type]
            assert w.blob(b"gone again" * 20) == digest
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_half_way()
    with store.writer() as w:
        assert w.blob(b"gone again" * 20) == digest
    store.close()
    with Store.open(path) as reader:
        assert queries.recordings(reader) == []
        assert reader.read_blob(digest) == b"gone again" * 20


def test_what_is_no_store_is_refused_as_ever(tmp_path: Path, path: Path) -> None:
    (tmp_path / "text.db").write_text("hello" * 100)
    with pytest.raises(NotAStore):
        open_for_recording(str(tmp_path / "text.db"))
    with Store.open(path, write=True) as store, store.writer() as w:
        w.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerStore):
        open_for_recording(str(path))


def test_a_locked_file_is_a_locked_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchreel.store.files.direct._BUSY_TIMEOUT_MS", 50)
    store = open_for_recording(str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedStore, match="locked by another process"), store.writer() as w:
            add_recording(w)  # type: ignore[arg-type]
        other.execute("ROLLBACK")
    with store.writer() as w:
        add_recording(w)  # type: ignore[arg-type]
    store.close()


def test_a_forked_child_leaves_the_connection_of_its_parent_alone(path: Path) -> None:
    store = open_for_recording(str(path))
    with store.writer() as w:
        add_recording(w)  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            del w, store
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    store.close()
    with Store.open(path) as reader:
        assert len(queries.recordings(reader)) == 1


PROGRAM = """
import sys, torch, torchreel
with torchreel.record(sys.argv[1]):
    torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
sys.exit(any(name.startswith(("sqlalchemy", "alembic")) for name in sys.modules))
"""


@pytest.mark.slow
def test_a_recorded_program_imports_no_sqlalchemy(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert subprocess.run([sys.executable, "-c", PROGRAM, str(path)]).returncode == 0
    with Store.open(path) as store:
        (compile_,) = queries.compiles(store, 1)
        assert len(queries.graphs(store, compile_)) == 1
