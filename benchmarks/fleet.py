"""Thousands of processes push real failures into one server; it is killed, and so are pushers.

    python -m benchmarks.fleet [--copies 4] [--pushers 64] [--kills 100] [--restarts 3]

Two programs that fail are recorded, with the real compiler, and made into failures of fifty kinds
(`benchmarks.scale`).  Each of 64 stores has `--copies` recordings of each kind, of processes of its
own: 64 x 50 x 4 are 12,800.  As many processes push them at once into a server of our own, without
fsync; eight of the stores are pushed from a copy as well.  Pushers are killed at random moments and
begin again, and the server is killed and started again.  Then every row of each table is counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import copy

from sqlalchemy import func, select, text

from benchmarks.pusher import push_until_done
from benchmarks.scale import multiply, record, variant
from tests import server as servers
from tests.store.pushing import counts
from torchreel.analysis.triage.failure_kinds import kinds_of
from torchreel.analysis.triage.summaries import triage
from torchreel.store import Store, schema
from torchreel.store.sending.push import push_path

_FORK = multiprocessing.get_context("forkserver")
_STORES, _KINDS = 64, 50
_LONGEST_PAUSE = 3.0
"""Seconds between two kills of pushers, at most."""
_EXACT = (schema.recordings, *schema.OF_A_RECORDING, schema.failures, schema.failure_kinds)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


def write(folder: Path, copies: int) -> list[Path]:
    """Make the stores of the machines."""
    sources = record(folder)
    template = folder / "template.db"
    with Store.open(template, create=True) as store:
        for number in range(_KINDS):
            path = variant(sources[number % len(sources)], folder / "one.db", number)
            push_path(str(path), store, kinds_of=kinds_of)
        with store.writer() as writer:
            multiply(writer.connection, copies - 1)
    stores = [Path(copy(template, folder / f"{at}.db")) for at in range(_STORES)]
    for at, path in enumerate(stores):
        with Store.open(path, write=True) as store, store.writer() as writer:
            writer.connection.execute(text(f"UPDATE recordings SET run = run || '/{at}'"))
    return stores


class Pushers:
    """Processes that push stores, and are killed."""

    def __init__(self, stores: list[Path], url: str, many: int) -> None:
        self._waiting, self._url, self._many = list(stores), url, many
        self._running: list[tuple[Path, BaseProcess]] = []
        self._chance = random.Random(3)
        self.killed = 0

    def run(self, server: servers.Server, kills: int, restarts: int) -> None:
        """Push all; the server is killed after so many of the pushers."""
        moments = [kills * at // (restarts + 1) for at in range(1, restarts + 1)]
        while self._go_on():
            time.sleep(self._chance.uniform(0, _LONGEST_PAUSE))
            if self.killed < kills:
                self._kill_one()
            if moments and self.killed >= moments[0]:
                moments.pop(0)
                server.kill()
                time.sleep(1)
                server.start()
                print(f"the server was killed after {self.killed} pushers", flush=True)

    def _go_on(self) -> bool:
        """Start what waits; return True while there is anything to do."""
        self._running = [each for each in self._running if not _has_ended(each[1])]
        while self._waiting and len(self._running) < self._many:
            path = self._waiting.pop()
            process = _FORK.Process(target=push_until_done, args=(str(path), self._url))
            process.start()
            self._running.append((path, process))
        return bool(self._running)

    def _kill_one(self) -> None:
        path, process = self._chance.choice(self._running)
        if process.is_alive():
            process.kill()
            process.join()
            self._running.remove((path, process))
            if process.exitcode:
                self.killed += 1
                self._waiting.append(path)


def _has_ended(process: BaseProcess) -> bool:
    if process.is_alive():
        return False
    process.join()
    assert process.exitcode == 0, process.exitcode
    return True


def expected(stores: list[Path]) -> Counter[str]:
    """Count the rows of all stores."""
    found: Counter[str] = Counter()
    for path in stores:
        with Store.open(path) as store:
            found.update(counts(store))
    return found


def check(url: str, stores: list[Path]) -> bool:
    """Print what is in the server's store; return True where it is what is in the others."""
    wanted = expected(stores)
    names = [table.name for table in _EXACT]
    with Store.open(url) as central, central.connect() as connection:
        found = counts(central)
        digest = schema.failures.c.signature_digest
        kinds = connection.execute(select(digest, func.count()).group_by(digest)).all()
        runs = connection.execute(select(func.count(schema.recordings.c.run.distinct())))
        size = connection.execute(text("SELECT pg_database_size(current_database())"))
        number = runs.scalar_one()
        print({name: found.get(name, 0) for name in (*names, "origins", "kinds", "blobs")})
        print(f"kinds {len(kinds)}, of {sorted({row[1] for row in kinds})}; runs {number}")
        print(f"{size.scalar_one() / 2**20:.0f} MiB")
    differs = {name: (wanted[name], found.get(name, 0)) for name in names}
    differs = {name: both for name, both in differs.items() if both[0] != both[1]}
    whole = wanted["recordings"]
    print(f"differs from what was recorded: {differs or 'nothing'}")
    return not differs and number == whole and {row[1] for row in kinds} == {whole // _KINDS}


def main() -> int:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--pushers", type=int, default=64)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=3)
    options = parser.parse_args()
    _FORK.set_forkserver_preload(["benchmarks.pusher"])
    with tempfile.TemporaryDirectory() as name, servers.running() as server:
        url = server.new_database()
        Store.open(url, create=True).close()
        with timed("written"):
            stores = write(Path(name), options.copies)
        again = [Path(copy(path, path.with_name(f"copy-{path.name}"))) for path in stores[:8]]
        pushers = Pushers([*stores, *again], url, options.pushers)
        with timed("pushed"):
            pushers.run(server, options.kills, options.restarts)
        print(f"pushers killed: {pushers.killed}")
        is_whole = check(url, stores)
        with timed("triage of all"):
            print(len(triage([url]).groups), "groups")
    print("nothing lost, nothing twice" if is_whole else "IT IS NOT ALL THERE, OR NOT ONCE")
    return 0 if is_whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
