"""A store as a file: how it appears, what reading leaves alone, who may write beside whom."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.processes import PRELUDE, child, run_child
from tests.store.rows import add_recording
from torchreel.errors import StoreError, UsageError
from torchreel.store import Store, queries
from torchreel.store.database import write_schema
from torchreel.store.files import sqlite_files


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a directory: names, times of change and contents."""
    return {
        entry.name: (entry.stat().st_mtime_ns, entry.read_bytes()) for entry in directory.iterdir()
    }


def runs(store: Store) -> list[str]:
    return [row.run for row in queries.recordings(store)]


def test_creating_leaves_one_file_with_our_mark(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "run.db"
    Store.open(path, create=True).close()
    assert [entry.name for entry in path.parent.iterdir()] == ["run.db"]
    assert path.read_bytes()[68:72] == b"reel"


def test_creating_respects_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    script = "import os, sys; from torchreel.store import Store; os.umask(0o027); "
    script += "Store.open(sys.argv[1], create=True).close()"
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert path.stat().st_mode & 0o777 == 0o640


def test_creating_again_keeps_what_is_there(path: Path) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        add_recording(w, run="first")
    with Store.open(path, create=True) as store:
        assert runs(store) == ["first"]


def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.touch()
    with Store.open(path, create=True) as store:
        assert runs(store) == []


def test_two_processes_that_create_at_once_share_one_store(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    program = PRELUDE + "with Store.open(path, create=True) as store, store.writer() as w:\n"
    program += "    add_recording(w, run=str(os.getpid()))"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(3)]
    assert [process.wait() for process in writers] == [0, 0, 0]
    with Store.open(path) as store:
        assert sorted(runs(store)) == sorted(str(process.pid) for process in writers)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.db"]


@pytest.mark.parametrize("name", ["run.db", "ein Lauf?mode=rw#1.db", "100%.db", "läuft.db"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path / name, create=True) as store, store.writer() as w:
        digest = w.blob(b"x" * 100)
    with Store.open(str(tmp_path / name)) as store:
        assert store.read_blob(digest) == b"x" * 100
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_relative_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with Store.open(path.name) as store:
        monkeypatch.chdir("/")
        assert runs(store) == []


def test_a_url_of_a_file_means_the_file(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        assert store.target == str(path)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "nosuch://x/y", "://"])
def test_a_url_that_is_no_store(url: str) -> None:
    with pytest.raises(UsageError):
        Store.open(url)


def test_reading_changes_nothing(path: Path) -> None:
    before = snapshot(path.parent)
    with Store.open(path) as store:
        assert runs(store) == []
        assert snapshot(path.parent) == before
    assert snapshot(path.parent) == before


def test_reading_what_a_killed_process_left(path: Path) -> None:
    """The log stays behind; what was committed is in it, what was not is gone."""
    killed = run_child(
        """
store = Store.open(path, write=True)
with store.writer() as w:
    add_recording(w, run="committed")
writer = store.writer()
add_recording(writer.__enter__(), run="not committed")
os.kill(os.getpid(), signal.SIGKILL)
""",
        path,
    )
    assert killed == -signal.SIGKILL
    assert path.with_name("run.db-wal").stat().st_size > 0
    before = snapshot(path.parent)
    with Store.open(path) as store:
        assert runs(store) == ["committed"]
    after = snapshot(path.parent)
    assert after.keys() == before.keys()
    for name in ("run.db", "run.db-wal"):
        assert after[name] == before[name]


def test_reading_beside_a_live_writer(path: Path) -> None:
    program = """
store = Store.open(path, write=True)
with store.writer() as w:
    add_recording(w, run="one")
writer = store.writer()
add_recording(writer.__enter__(), run="two")
ready()
writer.__exit__(None, None, None)
ready()
store.close()
ready()
"""
    with child(program, path) as process, Store.open(path) as store:
        assert process.stdin
        assert process.stdout
        assert runs(store) == ["one"]
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        assert runs(store) == ["one", "two"]
        # the writer closes the store: its log goes away under a reader that stays open
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        assert runs(store) == ["one", "two"]


def test_a_writer_that_comes_later_is_seen(path: Path) -> None:
    with Store.open(path) as reader:
        assert runs(reader) == []
        with Store.open(path, write=True) as store:
            with store.writer() as w:
                add_recording(w, run="late")
            assert runs(reader) == ["late"]


def test_a_connection_sees_one_state(store: Store) -> None:
    with store.connect() as connection:
        count = text("SELECT count(*) FROM recordings")
        assert connection.execute(count).scalar_one() == 0
        with store.writer() as w:
            add_recording(w)
        assert connection.execute(count).scalar_one() == 0


def test_writers_in_several_processes_wait_for_each_other(path: Path) -> None:
    program = PRELUDE + (
        "store = Store.open(path, write=True)\n"
        "for turn in range(20):\n"
        "    with store.writer() as w:\n"
        "        w.connection.exec_driver_sql('SELECT count(*) FROM blobs').all()\n"
        "        add_recording(w)\n"
        "        w.blob(b'the same bytes, in all of them' * 9)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(3)]
    assert [process.wait() for process in writers] == [0, 0, 0]
    with Store.open(path) as store:
        assert len(runs(store)) == 60


def test_writers_in_several_threads(store: Store) -> None:
    def write() -> None:
        for _ in range(10):
            with store.writer() as w:
                add_recording(w)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs(store)) == 40


def test_a_store_may_be_used_on_both_sides_of_a_fork(store: Store) -> None:
    with store.writer() as w:
        add_recording(w, run="parent")
    pid = os.fork()
    if pid == 0:
        try:
            with store.writer() as w:
                add_recording(w, run="child")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with store.writer() as w:
        add_recording(w, run="parent again")
    assert runs(store) == ["parent", "child", "parent again"]


def test_a_log_without_a_place_to_index_it_is_read_from_a_copy(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague sent run.db and run.db-wal, and they lie where we can't write."""
    run_child(
        "store = Store.open(path, write=True)\n"
        "with store.writer() as w: add_recording(w, run='in the log')\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
        path,
    )
    sent = tmp_path / "sent"
    sent.mkdir()
    for name in ("run.db", "run.db-wal"):
        shutil.copy(path.with_name(name), sent)
    real = sqlite_files._connect

    def refuse(path: Path, parameters: str, busy_timeout_ms: int) -> sqlite3.Connection:
        # root can write anywhere: say what SQLite says to everybody else
        if "mode=ro" in parameters:
            return real(Path("/nonexistent/x"), "mode=ro", busy_timeout_ms)
        return real(path, parameters, busy_timeout_ms)

    monkeypatch.setattr(sqlite_files, "_connect", refuse)
    with Store.open(sent / "run.db") as store:
        assert runs(store) == ["in the log"]
    assert sorted(entry.name for entry in sent.iterdir()) == ["run.db", "run.db-wal"]


def test_a_disk_that_is_full_before_the_store_is_whole_leaves_none(tmp_path: Path) -> None:
    """SQLite says nothing where a log can't be moved into the file as a connection is closed."""

    def half(draft: Path) -> None:
        write_schema(draft)
        os.truncate(draft, draft.stat().st_size // 2)

    path = tmp_path / "run.db"
    with pytest.raises(StoreError, match="the disk is full"):
        sqlite_files.create(path, half)
    assert list(tmp_path.iterdir()) == []
