"""Many processes push into one PostgreSQL server, some are killed, some send what is malformed.

    python -m benchmarks.fleet [--processes 10000] [--pushers 16] [--kills 40] [--malformed 1000]

Each simulated process is a recording with a failing compile, of one of fifty kinds of failures; all
lie in 64 stores. A server of our own is started, without fsync, and killed twice under the pushers.
Then: is every recording there once, how long does a list and a triage take, and does a malformed
store (the ways of tests/store/test_push.py) leave anything behind?
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copy

from sqlalchemy import func, select

from tests import server as servers
from tests.store.pushing import FAILED, counts, fill, push_once, push_until_done
from tests.store.rows import add_compile, add_failure, add_graph, add_recording
from tests.store.test_push import BAD
from torchreel.analysis.triage.summaries import triage
from torchreel.store import Store, queries, schema

_SPAWN = multiprocessing.get_context("spawn")
_STORES, _KINDS = 64, 50


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.2f} s", flush=True)


def write(path: Path, runs: range) -> None:
    """Make a store with a recording for each number."""
    with Store.open(path, write=True, create=True) as store, store.writer() as w:
        for run in runs:
            kind = run % _KINDS
            recording = add_recording(w, run=f"run {run}", pid=run + 1, ended_ns=9)
            row = add_compile(w, recording, "0/0", status="failed")
            shared = random.Random(kind).randbytes(2000)
            add_graph(w, row, digest=w.blob(shared))
            w.blob(random.Random(run).randbytes(500))
            found = replace(FAILED, frames=(f"torch:f{kind}",), message=f"no key {chr(97 + kind)}")
            add_failure(w, recording, row, found, time_ns=run)


def push_all(stores: list[Path], url: str, server: servers.Server, kills: int, many: int) -> None:
    """Push each store; kill pushers at random moments, and the server twice."""
    chance = random.Random(3)
    waiting, running = list(stores), []
    ended = 0
    while waiting or running:
        while waiting and len(running) < many:
            path = waiting.pop()
            process = _SPAWN.Process(target=push_until_done, args=(str(path), url))
            process.start()
            running.append((path, process))
        time.sleep(chance.uniform(0, 0.5))
        if kills > 0:
            path, process = running.pop(chance.randrange(len(running)))
            if process.is_alive():
                process.kill()
                kills -= 1
                waiting.append(path)
            process.join()
        for path, process in [each for each in running if not each[1].is_alive()]:
            process.join()
            running.remove((path, process))
            ended += 1
            if ended in (_STORES // 3, 2 * _STORES // 3):
                server.kill()
                server.start()


def malformed(number: int, url: str, folder: Path) -> None:
    """Push malformed stores one after the other, from eight processes."""
    before = counts_of(url)
    made = []
    for name, change in BAD.items():
        path = fill(folder / f"{len(made)}-bad.db", range(100_000 + len(made), 100_001 + len(made)))
        change(path)
        made.append((name, path))
    tasks = [(str(made[at % len(made)][1]), url) for at in range(number)]
    with _SPAWN.Pool(8) as pool:
        refused = sum(bool(said) for said in pool.starmap(push_once, tasks, chunksize=16))
    print(
        f"malformed pushes: {number}, refused {refused}, rows the same: {counts_of(url) == before}"
    )


def counts_of(url: str) -> dict[str, int]:
    """Return the numbers of rows in each table."""
    with Store.open(url) as central:
        return counts(central)


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=10_000)
    parser.add_argument("--pushers", type=int, default=16)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--malformed", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, servers.running() as server:
        folder = Path(name)
        url = server.new_database()
        Store.open(url, create=True).close()
        edges = [options.processes * at // _STORES for at in range(_STORES + 1)]
        stores = [folder / f"{at}.db" for at in range(_STORES)]
        with timed(f"written, {options.processes} recordings"):
            for path, first, last in zip(stores, edges, edges[1:], strict=False):
                write(path, range(first, last))
        again = [Path(copy(path, path.with_name(f"copy-{path.name}"))) for path in stores[:8]]
        with timed(f"pushed, {options.kills} pushers and the server twice killed"):
            push_all([*stores, *again], url, server, options.kills, options.pushers)
        found = counts_of(url)
        print({key: found[key] for key in ("recordings", "failures", "compiles", "blobs")})
        with Store.open(url) as central, central.connect() as connection:
            table = schema.failures
            rows = connection.execute(
                select(table.c.signature_digest, func.count()).group_by(table.c.signature_digest)
            ).all()
            runs = connection.execute(select(func.count(schema.recordings.c.run.distinct())))
            sizes = sorted(number for _, number in rows)
            print(f"kinds {len(rows)}, of {sizes[0]} to {sizes[-1]}; runs {runs.scalar_one()}")
        with timed("list of recordings"), Store.open(url) as central:
            print(len(queries.recordings(central)))
        with timed("triage"):
            print(len(triage([url]).groups), "groups")
        malformed(options.malformed, url, folder)


if __name__ == "__main__":
    main()
