"""Descriptors that the program closes, and files that it overwrites: SQLite writes no more."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.store.rows import add_recording
from torchreel.errors import MissingStore
from torchreel.store import Store, queries
from torchreel.store.files import descriptors
from torchreel.store.files.direct import DirectStore

CONTENT = b"mine " * 20_000


def reuse(path: Path, folder: Path) -> list[Path]:
    """Close what SQLite has open, and have files of ours get the numbers."""
    numbers = {number for found in descriptors.of_file(path).values() for number in found}
    assert len(numbers) == 3
    for number in numbers:
        os.close(number)
    files = [folder / f"file{number}" for number in numbers]
    for file in files:
        handle = os.open(file, os.O_RDWR | os.O_CREAT)
        assert handle in numbers
        os.write(handle, CONTENT)
    return files


def give_back(files: list[Path]) -> None:
    for file in files:
        os.close(int(file.name.removeprefix("file")))


def test_closing_a_range_waits_for_a_commit(path: Path, tmp_path: Path) -> None:
    """It took the descriptors between the look at them and the end of a commit."""
    builtin = os.closerange
    store = DirectStore(path)
    assert pickle.loads(pickle.dumps(os.closerange)) is os.closerange
    number = os.open(tmp_path, os.O_RDONLY)
    closer = threading.Thread(target=lambda: os.closerange(number, number + 1))
    with descriptors.kept_open():
        closer.start()
        closer.join(0.2)
        assert closer.is_alive()
        assert descriptors.identity(number) is not None
    closer.join()
    assert descriptors.identity(number) is None
    store.close()
    assert os.closerange is builtin


def test_a_forked_child_closes_its_descriptors_at_once(path: Path) -> None:
    store = DirectStore(path)
    with descriptors.kept_open():
        child = os.fork()
        if child == 0:
            os.closerange(900, 901)
            os._exit(0 if os.closerange.__class__ is type(len) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


@pytest.mark.parametrize("moment", ["before", "in"])
def test_no_byte_goes_into_files_that_got_the_numbers(
    path: Path, tmp_path: Path, moment: str
) -> None:
    store = DirectStore(path)
    with store.writer() as w:
        kept = add_recording(w)  # type: ignore[arg-type]
    files: list[Path] = []

    def write() -> None:
        with store.writer() as w:
            for _ in range(500):
                add_recording(w, cwd="/src" * 1000)  # type: ignore[arg-type]
            if moment == "in":
                files.extend(reuse(path, tmp_path))

    if moment == "before":
        files.extend(reuse(path, tmp_path))
    with pytest.raises(MissingStore, match="closed by the program"):
        write()
    store.close()
    assert [file.read_bytes() == CONTENT for file in files] == [True] * 3
    give_back(files)
    # What SQLite knows of the file in this process is not true any more.
    query = (
        "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]);"
        "print(store.execute(sys.argv[2]).fetchall())"
    )
    command = [sys.executable, "-c", query, str(path), "SELECT id FROM recordings"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"[({kept},)]\n"


@pytest.mark.parametrize("moment", ["before", "in"])
def test_no_byte_goes_into_what_was_written_over_the_store(path: Path, moment: str) -> None:
    store = DirectStore(path)
    with store.writer() as w:
        add_recording(w)  # type: ignore[arg-type]

    def write() -> None:
        with store.writer() as w:
            add_recording(w)  # type: ignore[arg-type]
            if moment == "in":
                path.write_bytes(CONTENT)

    if moment == "before":
        path.write_bytes(CONTENT)
    with pytest.raises(MissingStore, match="was overwritten"):
        write()
    store.close()
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_another_reader_of_the_process_may_come_and_go(path: Path) -> None:
    store = DirectStore(path)
    with Store.open(path) as reader:
        assert queries.recordings(reader) == []
        with store.writer() as w:
            add_recording(w)  # type: ignore[arg-type]
    with store.writer() as w:
        add_recording(w)  # type: ignore[arg-type]
    store.close()
    with Store.open(path) as found:
        assert len(queries.recordings(found)) == 2


def test_a_closed_standard_descriptor_stays_closed() -> None:
    with descriptors.standard_ones_stay_closed():
        pass
    kept = os.dup(0)
    os.close(0)
    try:
        with descriptors.standard_ones_stay_closed():
            assert os.open(os.devnull, os.O_RDONLY) == 0  # as SQLite does
        assert descriptors.identity(0) is None
    finally:
        os.dup2(kept, 0)
        os.close(kept)


_CLOSES_AT_RANDOM = """
import os, random, sys, threading, time
from contextlib import suppress
from pathlib import Path
from tests.store.rows import add_recording
from torchreel.errors import MissingStore
from torchreel.store.files.direct import DirectStore
folder = Path(sys.argv[1])
store = DirectStore(folder / "run.db")
def write():
    with suppress(MissingStore):
        while True:
            with store.writer() as w:
                for _ in range(300): add_recording(w, cwd="/src" * 1000)
threading.Thread(target=write, daemon=True).start()
time.sleep(random.uniform(0.02, 0.2))
os.closerange(3, 256)
files = [folder / f"file{n}" for n in range(12)]
for file in files: os.write(os.open(file, os.O_RDWR | os.O_CREAT), b"mine " * 1000)
time.sleep(0.1)
os._exit(any(file.read_bytes() != b"mine " * 1000 for file in files))
"""


@pytest.mark.slow
def test_no_commit_goes_on_in_files_of_the_program(path: Path, tmp_path: Path) -> None:
    """Of 150 such programs 39 got pages of SQLite into a file of theirs."""
    for number in range(15):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.db").write_bytes(path.read_bytes())
        program = [sys.executable, "-c", _CLOSES_AT_RANDOM, str(folder)]
        assert subprocess.run(program, check=False).returncode == 0
