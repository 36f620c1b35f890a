"""Milliseconds and statements of `ls`, `query` and `triage` with 10,000 failures in a store.

    python -m benchmarks.scale [--failures 10000] [--on server file]

Two programs that fail are recorded, with the real compiler; of each, 25 recordings are pushed whose
failures are of as many kinds.  The database multiplies them (`INSERT ... SELECT`), with all that
belongs to them but the blobs, which they share.  Then one more recording is pushed, and each
question is asked five times in this process, the store being opened each time: the least and the
median.  A server of our own, without fsync.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copy

from sqlalchemy import Connection, Engine, event, func, select, text

from tests import server as servers
from torchreel.analysis.query.query import query
from torchreel.analysis.query.views import QueryScope
from torchreel.analysis.triage.failure_kinds import kinds_of
from torchreel.analysis.triage.summaries import triage_of
from torchreel.commands.ls import ls
from torchreel.store import Store, parse, queries, schema
from torchreel.store.sending.push import push_path

_PROGRAMS = (
    """
import torch

def step(x):
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1

torch.compile(step)(torch.randn(2, 3))
""",
    """
import torch

def bad(graph, inputs):
    raise KeyError("no such key")

torch.compile(lambda x: torch.relu(x).sum(), backend=bad)(torch.ones(3))
""",
)
_KINDS = 50
_TIMES, _LONG = 5, 30.0
"""How often a question is asked; once where that takes more seconds."""
_PAUSE = 1.0
"""Seconds in which the server's process of the last connection ends: its time counts then."""
_QUERIES = {
    "compiles": "SELECT status, count(*) FROM compiles GROUP BY 1",
    "failures": "SELECT stage, exception_type, count(*) FROM failures GROUP BY 1, 2",
    "stages": "SELECT stage, count(*) FROM stages GROUP BY 1",
}
_MULTIPLIED = (schema.recordings, *schema.OF_A_RECORDING, schema.failures, schema.failure_kinds)


def record(folder: Path) -> list[Path]:
    """Record each program, into a store of its own."""
    stores = []
    for number, source in enumerate(_PROGRAMS):
        program, store = folder / f"program{number}.py", folder / f"program{number}.db"
        program.write_text(source)
        command = ["record", "--mode", "flight", "-o", store, "--", sys.executable, program]
        subprocess.run([sys.executable, "-m", "torchreel.cli", *command], capture_output=True)
        stores.append(store)
    return stores


def variant(of: Path, path: Path, number: int) -> Path:
    """Make a copy of a store whose recording is another run's, and its failure of another kind."""
    copy(of, path)
    with Store.open(path, write=True) as store, store.writer() as writer:
        (failure,) = queries.failures(store)
        frames = (f"torch._inductor.lowering:kind_{number}", *failure.signature.frames)
        signature = replace(failure.signature, frames=frames)
        changed = {"signature": signature.to_json(), "signature_digest": signature.digest}
        writer.update("failures", failure.id, **changed)
        (recording,) = queries.recordings(store)
        began = recording.started_ns + number * 10**9
        writer.update("recordings", recording.id, run=f"run {number}", started_ns=began)
    return path


def multiply(connection: Connection, times: int) -> None:
    """Add `times` copies of each recording that is there, with what belongs to it."""
    if times < 1:
        return
    spans = {
        table.name: connection.execute(text(f"SELECT max(id) FROM {table.name}")).scalar_one() or 0
        for table in _MULTIPLIED
        if "id" in table.c
    }
    counted = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {times})"
    for table in _MULTIPLIED:
        columns = {column.name: column.name for column in table.c}
        for column in table.c:
            for key in column.foreign_keys:
                span = spans.get(key.column.table.name)
                if span is not None:
                    columns[column.name] = f"{column.name} + n * {span}"
        if "id" in table.c:
            columns["id"] = f"id + n * {spans[table.name]}"
        if table is schema.recordings:
            columns |= {"run": "run || '-' || n", "started_ns": "started_ns + n * 60000000000"}
        if table in (schema.failures, schema.failure_kinds):
            columns["time_ns"] = "time_ns + n * 60000000000"
        if table is schema.failure_kinds:  # which repeats what it was seen in
            columns["recording_id"] = f"recording_id + n * {spans['recordings']}"
            columns |= {"run": "run || '-' || n", "started_ns": "started_ns + n * 60000000000"}
        names, values = ", ".join(columns), ", ".join(columns.values())
        into = f"INSERT INTO {table.name} ({names})"
        connection.execute(text(f"{into} {counted} SELECT {values} FROM {table.name}, s"))
        if "id" in table.c and connection.dialect.name == "postgresql":
            number = f"pg_get_serial_sequence('{table.name}', 'id')"
            connection.execute(text(f"SELECT setval({number}, max(id)) FROM {table.name}"))


@contextlib.contextmanager
def counted() -> Iterator[list[str]]:
    """The statements of a block, on any store, without those that begin and end transactions."""
    executed: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "SET")):
            executed.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@dataclass(frozen=True)
class Examined:
    """A store that is asked, and the server that it is on."""

    target: str
    server: servers.Server | None

    def measure(self, what: str, ask: Callable[[], object]) -> None:
        """Print how long a question takes, also of the processors alone, and how many
        statements.
        """
        seconds: list[float] = []
        here: list[float] = []
        time.sleep(_PAUSE)
        began_there = self._seconds_there()
        for _ in range(_TIMES):
            with counted() as executed:
                began, began_here = time.perf_counter(), time.process_time()
                ask()
                seconds.append(time.perf_counter() - began)
                here.append(time.process_time() - began_here)
            if seconds[-1] > _LONG:
                break
        time.sleep(_PAUSE)
        there = (self._seconds_there() - began_there) / len(here)
        figures = (min(seconds), statistics.median(seconds), statistics.median(here), there)
        cells = " | ".join(f"{each * 1000:.0f}" for each in figures)
        print(f"| {what} | {cells} | {len(executed)} |", flush=True)

    def _seconds_there(self) -> float:
        return 0.0 if self.server is None else self.server.processor_seconds


def fill(store: Examined, sources: Sequence[Path], folder: Path, failures: int) -> int:
    """Fill a store, and push one more recording; return its number there."""
    with Store.open(store.target, write=True) as central:
        for number in range(_KINDS):
            path = variant(sources[number % len(sources)], folder / "one.db", number)
            assert len(push_path(str(path), central, kinds_of=kinds_of).sent) == 1
        began = time.monotonic()
        with central.writer() as writer:
            multiply(writer.connection, failures // _KINDS - 1)
        if store.server is not None:  # as its daemon does; a file has none
            engine = central.engine.execution_options(isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(text("VACUUM ANALYZE"))
        seconds = time.monotonic() - began
        with central.connect() as connection:
            rows = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (schema.failures, schema.events, schema.graph_targets)
            }
        print(f"\n{central.engine.dialect.name}: {rows}, filled in {seconds:.0f} s\n")
        new = variant(sources[0], folder / "new.db", 0)
        with Store.open(new, write=True) as source, source.writer() as writer:
            writer.update("recordings", 1, run="new")
        ((_, arrived),) = push_path(str(new), central, kinds_of=kinds_of).sent.items()
    return arrived


def examine(store: Examined, arrived: int) -> None:
    """Ask a store each question."""
    target, middle = store.target, arrived // 2
    print("| question | least, ms | median, ms | CPU here | CPU of the server | statements |")
    print("|---|---|---|---|---|---|")
    store.measure("`ls`, a page", lambda: _listed(target, None))
    store.measure("`ls`, a page in the middle", lambda: _listed(target, middle))
    newest = parse(f"{target}#{arrived}")
    store.measure("triage of the failure that came last", lambda: triage_of(newest))
    store.measure("the latest failure, as `show` looks for it", lambda: _latest(target))
    for view, statement in _QUERIES.items():
        store.measure(f"`query` over `{view}`", partial(_queried, target, statement))


def _listed(target: str, before: int | None) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ls(target, before=before)


def _latest(target: str) -> None:
    with Store.open(target) as store:
        assert queries.latest_failing(store) is not None


def _queried(target: str, statement: str) -> None:
    with Store.open(target) as store:
        assert query(QueryScope(store), statement, seconds=600).rows


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=10_000)
    parser.add_argument("--on", nargs="*", default=["server", "file"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        sources = record(folder)
        for where in options.on:
            server = stack.enter_context(servers.running()) if where == "server" else None
            target = str(folder / "many.db") if server is None else server.new_database()
            Store.open(target, create=True).close()
            store = Examined(target, server)
            examine(store, fill(store, sources, folder, options.failures))


if __name__ == "__main__":
    main()
