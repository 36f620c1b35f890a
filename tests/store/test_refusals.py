"""Files that are no store, or not one for us: one sentence each, status 3, nothing damaged."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.store.processes import child, run_without_rights
from tests.store.rows import add_recording
from torchreel import errors
from torchreel.store import Store, database, queries


def _nothing(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _below_a_file(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()


def _sqlite_of(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def _foreign(path: Path) -> None:
    path.unlink()
    _sqlite_of(path, "CREATE TABLE recordings (id INTEGER)")


def _marked_but_empty(path: Path) -> None:
    path.unlink()
    _sqlite_of(path, "PRAGMA application_id = 1919247724", "CREATE TABLE t (a)")


def _newer(path: Path) -> None:
    _sqlite_of(path, "UPDATE alembic_version SET version_num = '9999'", "DROP TABLE blobs")


def _other_revision(path: Path) -> None:
    _sqlite_of(path, "UPDATE alembic_version SET version_num = 'ae1027a6acf'")


def _truncate(size: int) -> Callable[[Path], None]:
    def truncate(path: Path) -> None:
        os.truncate(path, size)

    truncate.__name__ = f"_truncated_to_{size}"
    return truncate


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _one_byte_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _bad_schema_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


REFUSALS = [
    (_nothing, errors.MissingStore, "There is no store at"),
    (_below_a_file, errors.MissingStore, "There is no store at"),
    (_directory, errors.NotAStore, "is a directory"),
    (lambda path: path.write_bytes(b""), errors.NotAStore, "is an empty file"),
    (lambda path: path.write_text("import torch\n"), errors.NotAStore, "is a text file"),
    (lambda path: path.write_bytes(os.urandom(5000)), errors.NotAStore, "is not a database"),
    (_truncate(50), errors.DamagedStore, "it ends after 50 bytes"),
    (_foreign, errors.NotAStore, "of another program"),
    (_marked_but_empty, errors.NotAStore, "no store's tables"),
    (_other_revision, errors.NotAStore, "of another program"),
    (_newer, errors.NewerStore, "upgrade torchreel"),
    (_truncate(4096), errors.DamagedStore, "should be"),
    (_half, errors.DamagedStore, "should be"),
    (_one_byte_short, errors.DamagedStore, "should be"),
    (_bad_schema_page, errors.DamagedStore, "is damaged"),
]


@pytest.mark.parametrize("mode", [{}, {"write": True}], ids=["read", "write"])
@pytest.mark.parametrize(
    ("spoil", "kind", "sentence"), REFUSALS, ids=lambda x: getattr(x, "__name__", x)
)
def test_refused(
    tmp_path: Path,
    empty_store: Path,
    spoil: Callable[[Path], None],
    kind: type[errors.StoreError],
    sentence: str,
    mode: dict[str, bool],
) -> None:
    path = tmp_path / "here" / "run.db"
    path.parent.mkdir()
    shutil.copy(empty_store, path)
    spoil(path)
    before = _tree(tmp_path)
    with pytest.raises(kind) as caught:
        Store.open(path, **mode)
    _is_one_sentence(caught.value, path, sentence)
    assert type(caught.value) is kind
    assert _tree(tmp_path) == before


@pytest.mark.parametrize("spoil", [_foreign, _newer, _half, _directory])
def test_create_never_replaces_what_is_there(
    path: Path, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    spoil(path)
    before = _tree(tmp_path)
    with pytest.raises(errors.StoreError):
        Store.open(path, create=True)
    assert _tree(tmp_path) == before


def test_pages_that_went_bad_are_noticed_when_they_are_read(path: Path) -> None:
    with Store.open(path, write=True) as store, store.writer() as w:
        for number in range(200):
            add_recording(w, run=f"{number}" * 100)
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'recordings'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Store.open(path) as store, pytest.raises(errors.DamagedStore, match="Work on a copy"):
        queries.recordings(store)


def test_a_table_that_somebody_dropped(path: Path) -> None:
    _sqlite_of(path, "DROP TABLE blobs")
    with (
        Store.open(path) as store,
        pytest.raises(errors.DamagedStore, match="no such table: blobs"),
    ):
        store.read_blob("0" * 64)


def test_a_name_no_file_can_have() -> None:
    with pytest.raises(errors.MissingStore):
        Store.open("a\0b")
    with pytest.raises(errors.StoreError):
        Store.open("x" * 5000, create=True)


HOLD = """
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA locking_mode = {mode}")
connection.execute("BEGIN {begin}")
connection.execute("CREATE TABLE held (a)")
ready()
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 100)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("mode", [{}, {"write": True}], ids=["read", "write"])
def test_a_store_that_another_process_has_to_itself(path: Path, mode: dict[str, bool]) -> None:
    with child(HOLD.format(mode="EXCLUSIVE", begin="EXCLUSIVE"), path):
        with pytest.raises(errors.LockedStore) as caught:
            Store.open(path, **mode)
        _is_one_sentence(caught.value, path, "is locked by another process")
    with Store.open(path, **mode) as store:
        assert queries.recordings(store) == []


@pytest.mark.usefixtures("impatient")
def test_a_transaction_that_does_not_end(path: Path) -> None:
    holder = child(HOLD.format(mode="NORMAL", begin="IMMEDIATE"), path)
    with holder, Store.open(path, write=True) as store:
        assert queries.recordings(store) == []
        with pytest.raises(errors.LockedStore, match="is locked"), store.writer():
            pass


@pytest.fixture
def public(path: Path) -> Iterator[Path]:
    """The store in a directory that other users can read and nobody can write to."""
    directory = Path(tempfile.mkdtemp())
    shutil.copy(path, directory / "run.db")
    (directory / "run.db").chmod(0o444)
    directory.chmod(0o555)
    yield directory / "run.db"
    directory.chmod(0o755)
    shutil.rmtree(directory)


OPEN = """
try:
    with Store.open(sys.argv[1], **{mode}) as store:
        print([row.run for row in queries.recordings(store)])
except StoreError as error:
    print(type(error).__name__, error)
"""


def test_a_read_only_directory_can_be_read(public: Path) -> None:
    result = run_without_rights(OPEN.format(mode={}), public)
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("mode", "name", "sentence"),
    [({"write": True}, "run.db", "read-only"), ({"create": True}, "new.db", "can't be created")],
)
def test_a_read_only_directory_is_not_written_to(
    public: Path, mode: dict[str, bool], name: str, sentence: str
) -> None:
    before = _tree(public.parent)
    result = run_without_rights(OPEN.format(mode=mode), public.with_name(name))
    assert result.stdout.startswith(f"LockedStore {public.with_name(name)} ")
    assert sentence in result.stdout
    assert _tree(public.parent) == before


def test_a_file_that_may_not_be_read(public: Path) -> None:
    public.chmod(0o000)
    result = run_without_rights(OPEN.format(mode={}), public)
    assert result.stdout == f"LockedStore {public} can't be read: Permission denied.\n"


def test_a_failed_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sqlite_of(path, "UPDATE alembic_version SET version_num = '0000'")
    before = path.read_bytes()

    def fail(connection: object) -> None:
        connection.execute(text("DROP TABLE blobs"))  # type: ignore[attr-defined]
        raise errors.StoreError("on purpose")

    monkeypatch.setattr("torchreel.store.migrations.upgrade", fail)
    with pytest.raises(errors.StoreError, match="on purpose"):
        Store.open(path, write=True)
    assert path.read_bytes() == before


def _is_one_sentence(error: errors.StoreError, path: Path, sentence: str) -> None:
    message = str(error)
    assert sentence in message
    assert str(path) in message
    assert "\n" not in message
    assert error.exit_status == 3


def _tree(directory: Path) -> dict[str, bytes | None]:
    return {
        str(entry): entry.read_bytes() if entry.is_file() else None
        for entry in directory.rglob("*")
    }


@pytest.mark.parametrize("write", [False, True])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, write: bool) -> None:
    path = tmp_path / "run.db"
    os.mkfifo(path)
    with pytest.raises(errors.NotAStore, match="is a pipe: name the store's file"):
        Store.open(path, write=write, create=write)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("write", [False, True])
def test_a_log_that_is_no_file_is_refused(tmp_path: Path, suffix: str, write: bool) -> None:
    path, ours = tmp_path / "run.db", tmp_path / "ours"
    Store.open(path, create=True).close()
    ours.write_text("a file of the user's")
    beside = path.with_name(path.name + suffix)
    puts: tuple[Callable[[], object], ...] = (
        beside.mkdir, lambda: os.mkfifo(beside), lambda: beside.symlink_to(ours),
        lambda: beside.symlink_to("/dev/zero"), lambda: beside.symlink_to("/nowhere"),
    )  # fmt: skip
    for put in puts:
        put()
        with pytest.raises(errors.DamagedStore, match=f"has beside it run.db{suffix}"):
            Store.open(path, write=write)
        if beside.is_dir():
            beside.rmdir()
        else:
            beside.unlink()
    assert ours.read_text() == "a file of the user's"
