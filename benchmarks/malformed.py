"""10,000 malformed pushes of a hostile client: all refused, nothing stored, the server up.

    python -m benchmarks.malformed [--from 0] [--count 10000] [--processes 2]

Four of five are stores that are changed (`tests/store/malformed.py`), pushed into one store on a
server of our own; the others are statements of a role that may append.  Each has a number, and is
the same for it.  Prints how many were refused of each kind, and what was not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from pathlib import Path

from sqlalchemy import create_engine

from tests import server as servers
from tests.store import malformed
from tests.store.pushing import counts, fill
from torchreel.store import Store
from torchreel.store.sending.push import push_path
from torchreel.store.servers.roles import APPEND, grant

_BATCH = 50
_SPAWN = multiprocessing.get_context("spawn")


def attack(numbers: range, base: Path, owner: str, hostile: str) -> Counter[tuple[str, bool]]:
    """Push the malformed stores of some numbers, or execute the statements; count the refusals."""
    found: Counter[tuple[str, bool]] = Counter()
    engine = create_engine(hostile)
    with Store.open(owner, write=True) as central:
        for number in numbers:
            if number % 5 == 4:
                statement = malformed.statement(number)
                what, refused = "statement", malformed.is_refused(engine, statement)
                if not refused:
                    print("NOT REFUSED", number, statement, flush=True)
            else:
                what, path = malformed.make(base, number)
                refused = bool(malformed.pushed(path, central))
                path.unlink()
                if not refused:
                    print("NOT REFUSED", number, what, flush=True)
            found[what, refused] += 1
    engine.dispose()
    return found


def _attack(batch: tuple[range, Path, str, str]) -> Counter[tuple[str, bool]]:
    return attack(*batch)


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", type=int, default=0, dest="start")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, servers.running() as server:
        folder, owner = Path(name), server.new_database()
        base = malformed.make_base(folder)
        with Store.open(owner, create=True, write=True) as central:
            push_path(str(base), central)
            with central.writer() as writer:
                grant(writer.connection)
            before = counts(central)
        server.execute(f"CREATE ROLE hostile LOGIN IN ROLE {APPEND}")
        hostile = server.url(owner.rpartition("/")[2], user="hostile")
        found: Counter[tuple[str, bool]] = Counter()
        end, began = options.start + options.count, time.monotonic()
        batches = [
            (range(at, min(at + _BATCH, end)), base, owner, hostile)
            for at in range(options.start, end, _BATCH)
        ]
        with _SPAWN.Pool(options.processes) as pool:
            for done in pool.imap_unordered(_attack, batches):
                found += done
                print(f"{sum(found.values())}, refused {_refused(found)}", flush=True)
        with Store.open(owner, write=True) as central:
            print(f"rows the same: {counts(central) == before}")
            more = fill(folder / "more.db", range(7, 8))
            print(f"a good one is taken: {len(push_path(str(more), central).sent) == 1}")
        for (what, refused), number in sorted(found.items()):
            print(f"| {what} | {number} | {'refused' if refused else 'NOT REFUSED'} |")
        seconds = time.monotonic() - began
        print(f"{sum(found.values())} in {seconds:.0f} s, refused {_refused(found)}")


def _refused(found: Counter[tuple[str, bool]]) -> int:
    return sum(number for (_, refused), number in found.items() if refused)


if __name__ == "__main__":
    main()
