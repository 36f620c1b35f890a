"""A disk that is full, a store that can't be written to, a core that is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.minifier.hand_made import BUG, Predicate, functions_of
from tests.minifier.search.test_search import journal_of, long_chain, sin_reaches_cos
from torchreel.minifier.cases.case import Case
from torchreel.minifier.options import usable_cores
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.store import queries
from torchreel.store.database import Store

WANTED = ["sin", "cos"]


class Notes:
    """A listener that keeps what is told."""

    def __init__(self) -> None:
        self.events: list[ProgressEvent] = []

    def on_step(self, event: ProgressEvent) -> None:
        """See `Listener`."""
        self.events.append(event)


def limited(store: Store, pages: int) -> None:
    """Let SQLite refuse to grow the file beyond so many pages: what it says of a full disk."""

    @event.listens_for(store.engine, "connect")
    def _limit(connection: object, record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    store.engine.dispose()


def test_a_full_disk_does_not_end_the_search(tmp_path: Path) -> None:
    """It goes on in memory, says so once, and its result is the same."""
    path, notes = tmp_path / "run.db", Notes()
    Store.open(path, write=True, create=True).close()

    class Filling(Predicate):
        def judge(self, case: Case) -> OracleReport:
            if len(self.seen) == 8:
                limited(store, 1)  # SQLite makes that the pages there are
            return super().judge(case)

    with Store.open(path, write=True) as store:
        oracle = Filling(sin_reaches_cos)
        found = Search(oracle, BUG, journal=journal_of(store), listener=notes).run(long_chain())
    assert functions_of(found.case) == WANTED
    assert found.status == "fixpoint"
    told = [event.message for event in notes.events if event.kind == "note"]
    assert len(told) == 1
    assert "disk is full" in told[0]
    with Store.open(path) as store:  # and what had been written is whole
        (row,) = queries.reductions(store)
        assert journal_of(store).accepted(row.best_case) is not None


def test_the_best_case_is_kept_as_soon_as_there_is_room(tmp_path: Path) -> None:
    """Somebody cleans up while the search goes on: its result is in the store."""
    path = tmp_path / "run.db"
    Store.open(path, write=True, create=True).close()

    class Passing(Predicate):
        def judge(self, case: Case) -> OracleReport:
            if len(self.seen) == 6:
                limited(store, 1)
            if len(self.seen) == 20:
                limited(store, 1_000_000)
            return super().judge(case)

    with Store.open(path, write=True) as store:
        journal = journal_of(store)
        found = Search(Passing(sin_reaches_cos), BUG, journal=journal).run(long_chain())
        assert journal.problem
    with Store.open(path) as store:
        (row,) = queries.reductions(store)
        assert row.best_case == found.case.digest
        kept = journal_of(store).accepted(row.best_case)
    assert kept is not None
    assert kept.digest == found.case.digest


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 700 kB, in a namespace of its own, where that is allowed."""
    script = (
        "from tests.minifier.storage.test_full_disk import *\n"
        "store = Store.open('disk/run.db', write=True, create=True)\n"
        "filler = open('disk/filler', 'wb', buffering=0)\n"
        "class Filling(Predicate):\n"
        "    def judge(self, case):\n"
        "        try:\n"
        "            while len(self.seen) > 5: filler.write(bytes(4096))\n"
        "        except OSError: pass\n"
        "        return super().judge(case)\n"
        "journal = journal_of(store)\n"
        "found = Search(Filling(sin_reaches_cos), BUG, journal=journal).run(long_chain())\n"
        "assert functions_of(found.case) == WANTED\n"
        "import shutil\n"
        "print('reduced on', shutil.disk_usage('disk').free, journal.problem)\n"
    )
    (tmp_path / "disk").mkdir()
    mount = "mount -t tmpfs -o size=700k tmpfs disk"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], cwd=tmp_path).returncode:
        pytest.skip("no file system can be mounted here")
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, script],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "reduced on 0 " in done.stdout
    assert "the disk is full" in done.stdout


def test_a_store_that_cannot_be_written_to_is_copied(tmp_path: Path) -> None:
    """Verdicts go to the copy, which is taken up again the next time."""
    path = tmp_path / "run.db"
    Store.open(path, write=True, create=True).close()
    with Store.open(path) as reader:
        assert not reader.writable
        with reader.copied(tmp_path / "out" / "run.db") as copy:
            Search(Predicate(sin_reaches_cos), BUG, journal=journal_of(copy)).run(long_chain())
        with reader.copied(tmp_path / "out" / "run.db") as copy:
            again = Predicate(sin_reaches_cos)
            Search(again, BUG, journal=journal_of(copy)).run(long_chain())
            assert not again.seen
        assert queries.reductions(reader) == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no core can be taken away")
def test_a_core_that_is_taken_away_is_not_used() -> None:
    """`-j 0` asks what is left, not what the machine has."""
    all_cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(all_cores)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, all_cores)
    assert usable_cores() == len(all_cores)
