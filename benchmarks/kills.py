"""Processes killed at random moments of a compile: is everything that was committed there, whole?

    python -m benchmarks.kills [KILLS] [full|flight ...]

One warm process forks the victims, which compile small graphs into one store, one after the other,
until SIGKILL comes.  Each victim says, by a line in a file, which checkpoints were on disk when the
recorder let the compiler go on.  Afterwards: the store opens and SQLite finds it whole, every such
checkpoint is in it and decodes, every compile has a true status, and a replay starts from the last
graph of a victim.  Exits with 1 when any of this is not so.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.replay import replay
from torchreel.store import Store, queries
from torchreel.store.post_mortem import settle

LONGEST = 1.2
"""Seconds a victim lives at most: some compiles, and the time in which its store is opened."""


@dataclass(frozen=True)
class Found:
    """What is there after the kills."""

    recordings: int
    checkpoints: int
    committed: int
    missing: int
    broken: int
    statuses: dict[str, int]
    verdict: str

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing that was committed, and nothing is broken."""
        whole = self.missing == self.broken == 0 and self.checkpoints > 0
        return whole and self.verdict in ("identical", "diverged")


def main(arguments: list[str]) -> int:
    """Kill, look, and say what was found; the exit status."""
    if arguments and arguments[0] == "--victims":
        return _victims(Path(arguments[1]), int(arguments[2]), arguments[3], int(arguments[4]))
    kills = next((int(a) for a in arguments if a.isdigit()), 300)
    modes = [a for a in arguments if not a.isdigit()] or ["full", "flight"]
    bad = 0
    for mode in modes:
        with tempfile.TemporaryDirectory(prefix="torchreel-kills-") as folder:
            found = run(Path(folder), kills // len(modes), mode)
        print(f"{kills // len(modes)} kills, {mode}: {found}", flush=True)
        bad += not found.is_good
    return min(bad, 1)


def run(folder: Path, kills: int, mode: str, seed: int = 0) -> Found:
    """Kill that many processes that record into a store in `folder`, and look at what is there."""
    command = [sys.executable, "-m", "benchmarks.kills", "--victims"]
    subprocess.run([*command, str(folder), str(kills), mode, str(seed)], check=True)
    with closing(sqlite3.connect(folder / "run.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Store.open(folder / "run.db", write=True) as store:
        settle(store)
        return _look(store, list(_committed(folder / "committed")), mode)


def _committed(log: Path) -> Iterator[tuple[int, str]]:
    for line in log.read_text().splitlines():
        pid, digest = line.split()
        yield int(pid), digest


def _look(store: Store, committed: list[tuple[int, str]], mode: str) -> Found:
    recordings = queries.recordings(store)
    rows = {row.id: queries.compiles(store, row.id) for row in recordings}
    there: set[tuple[int, str]] = set()
    broken = 0
    for recording in recordings:
        for compile in rows[recording.id]:
            for checkpoint in queries.checkpoints(store, compile):
                there.add((recording.pid, checkpoint.digest))
                broken += not _is_whole(store.read_blob(checkpoint.digest))
    # In flight mode, all but those of the last few compiles of a process have been deleted again.
    last = dict(committed)
    expected = set(committed) if mode == "full" else set(last.items())
    every = [compile for compiles in rows.values() for compile in compiles]
    # What Dynamo does, before and after its backend, is no part of a replay from the graph.
    died_in = {row.compile_id: row.stage for row in queries.failures(store)}
    crashed = [
        compile
        for compile in every
        if compile.status == "crashed" and queries.checkpoints(store, compile)
        and died_in.get(compile.id) not in ("dynamo", "guards")
    ]  # fmt: skip
    verdict = replay(store, crashed[-1], "graph").verdict if crashed else "nothing to replay"
    return Found(
        len(recordings), len(there), len(committed), len(expected - there), broken,
        dict(Counter(c.status for c in every)), verdict,
    )  # fmt: skip


def _is_whole(data: bytes) -> bool:
    doc = CheckpointDoc.from_bytes(data)
    return doc.graph.nodes[-1].op == "output" and len(doc.inputs) == 1


def _victims(folder: Path, kills: int, mode: str, seed: int) -> int:
    """The warm process: compiles once, so that what is slow at first is over, then forks."""
    import torch

    import torchreel

    torch.set_num_threads(1)
    with torchreel.record(folder / "warm.db"):
        torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2))
    (folder / "committed").touch()
    moments = random.Random(seed)
    for n in range(kills):
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_killed(folder, mode, tell)
        if n % 2:  # from its first compile on; otherwise, from the beginning
            os.read(ready, 1)
        os.close(ready)
        os.close(tell)
        time.sleep(moments.uniform(0.01, LONGEST))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 0


def _be_killed(folder: Path, mode: str, tell: int) -> None:
    """Compile until the end; what was committed is written down after each time."""
    import torch

    import torchreel
    from torchreel.recorder.failing_open import losses
    from torchreel.recorder.recorder import Recorder
    from torchreel.store.documents.jsontypes import digest_of

    log = os.open(folder / "committed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    original = Recorder.add_checkpoint

    def add_checkpoint(self: Recorder, doc: CheckpointDoc, stage: str) -> None:
        original(self, doc, stage)
        assert self.event_log.redactor is not None
        if not any(reason == "not committed in time" for reason, *_ in losses.snapshot()):
            data = self.event_log.redactor.data(doc.to_bytes())
            os.write(log, f"{os.getpid()} {digest_of(data)}\n".encode())

    Recorder.add_checkpoint = add_checkpoint  # type: ignore[method-assign]
    torchreel.install(folder / "run.db", mode)
    os.write(tell, b".")
    for n in range(10_000):
        torch._dynamo.reset()
        torch.compile(lambda x, n=n: (x * n).cos() + n, backend="aot_eager")(torch.ones(3))
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
