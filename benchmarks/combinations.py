"""Does every combination of how a program is compiled and recorded replay?  One cell at a time.

    python -m benchmarks.combinations [CELL ...] [--share N] [--state FILE] [--keep FOLDER]

A cell is a backend with torch's caches off, empty or filled by a run before, options of
`torch.compile`, threads, and a way to record.  Each is a process of its own that compiles a third
(`--share 3`, another third in the next cell) of the programs of `combination_programs`; then each
compile is replayed from every entry that it has, and all frames as one sequence.  What is known
goes into the state file at once; the table is of all that the file has.  Exits with 1 where
something diverged.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import caches
from benchmarks.corpus import applies
from torchreel.replay import replay
from torchreel.replay.many import Row, replay_all
from torchreel.replay.sequence import replay_sequence
from torchreel.store import Store, queries

ENTRIES = ("graph", "aot", "shapes", "frame", "sequence")
NOTHING = "nothing recorded"
_LIMIT = 1800.0  # seconds for a process


@dataclass(frozen=True)
class Cell:
    """One way to compile and to record."""

    backend: str = "inductor"
    caches: str = "cold"
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment: how it is recorded."""
    mode: str = "full"


_FLIGHT = {"TORCHREEL_SLOW_COMPILE": "0"}
"""Every compile is slow, so that flight mode keeps it whole."""
_ALL, _NONE = {"TORCHREEL_REDACT": "all"}, {"TORCHREEL_REDACT": "none"}
_DYNAMIC, _FULL = {"dynamic": True}, {"fullgraph": True}

CELLS: dict[str, Cell] = {
    "eager": Cell("eager"),
    "eager-flight": Cell("eager", mode="flight", variables=_FLIGHT),
    "eager-threads-redacted": Cell("eager", threads=4, variables=_ALL),
    "aot": Cell("aot_eager"),
    "aot-warm": Cell("aot_eager", "warm"),
    "aot-dynamic-redacted": Cell("aot_eager", options=_DYNAMIC, variables=_ALL),
    "aot-fullgraph-unredacted": Cell("aot_eager", options=_FULL, variables=_NONE),
    "aot-threads-dynamic": Cell("aot_eager", options=_DYNAMIC, threads=4),
    "inductor-off": Cell(caches="off"),
    "inductor": Cell(),
    "inductor-warm": Cell(caches="warm"),
    "inductor-warm-dynamic": Cell(caches="warm", options=_DYNAMIC),
    "inductor-warm-fullgraph": Cell(caches="warm", options=_FULL),
    "inductor-redacted": Cell(variables=_ALL),
    "inductor-static": Cell(options={"dynamic": False}, variables=_NONE),
    "inductor-flight": Cell(mode="flight", variables=_FLIGHT),
    "inductor-warm-flight": Cell(caches="warm", mode="flight", variables=_FLIGHT),
    "inductor-overhead": Cell(options={"mode": "reduce-overhead"}),
    "inductor-autotune": Cell(options={"mode": "max-autotune"}),
    "inductor-warm-autotune-dynamic": Cell(
        caches="warm", options={"mode": "max-autotune-no-cudagraphs", **_DYNAMIC}
    ),
    "inductor-threads": Cell(threads=4),
    "inductor-warm-threads-redacted": Cell(caches="warm", threads=4, variables=_ALL),
}


@dataclass(frozen=True)
class Found:
    """One verdict of a cell."""

    cell: str
    entry: str
    place: str
    frame: str
    status: str
    verdict: str
    detail: str = ""
    compared: int = 0


def main(arguments: Sequence[str]) -> int:
    """Run the cells that the state file lacks; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*")
    parser.add_argument("--share", type=int, default=3)
    parser.add_argument("--state", default="combinations.jsonl")
    parser.add_argument("--keep", help="where the stores are put")
    chosen = parser.parse_args(arguments)
    state = Path(chosen.state)
    known = {row.cell for row in read(state)}
    for place, (name, cell) in enumerate(CELLS.items()):
        if name in (chosen.cells or CELLS) and name not in known:
            started = time.monotonic()
            rows = examine(name, cell, programs(place, chosen.share), chosen.keep)
            with state.open("a") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
            tally = Counter(row.verdict for row in rows)
            print(f"{name}: {dict(tally)} ({time.monotonic() - started:.0f} s)", flush=True)
    return report(read(state))


def programs(place: int, share: int) -> list[str]:
    """The programs of a cell: each cell has another share."""
    from benchmarks.combination_programs import names

    return names()[place % share :: share]


def examine(name: str, cell: Cell, chosen: Sequence[str], keep: str | None = None) -> list[Found]:
    """Record programs as a cell says, and replay them from every entry."""
    with tempfile.TemporaryDirectory(prefix="torchreel-combinations-") as temporary:
        folder = Path(temporary)
        path = Path(keep, f"{name}.db") if keep else folder / "run.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f"{path.name}*"):  # with its log of SQLite's
            left.unlink()
        record(path, cell, chosen, folder)
        if not path.exists():
            return [Found(name, "graph", "", "", "", NOTHING)]
        with Store.open(path, write=True) as store:
            return [_found(name, entry, row) for entry, row in _rows(store)]


def record(path: Path, cell: Cell, chosen: Sequence[str], folder: Path) -> None:
    """Run programs with the recorder on, after a run without where the caches are warm."""
    options = ["--options", json.dumps(cell.options), "--threads", str(cell.threads)]
    module = ["-m", "benchmarks.combination_programs", *options, cell.backend, *chosen]
    command = [sys.executable, *module]
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    plain = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    caches.fill(cell.caches, folder, command, plain, _LIMIT)
    environment = {
        **os.environ, **plain, **cell.variables, **caches.environment(cell.caches, folder),
        "TORCHREEL": f"{cell.mode}:{path.absolute()}", "TORCHREEL_FRAMES": "all",
    }  # fmt: skip
    subprocess.run(command, env=environment, timeout=_LIMIT, check=True)


def _rows(store: Store) -> Iterator[tuple[str, Row]]:
    """The verdicts from each entry; of a frame, alone and in the sequence."""
    recording = queries.recordings(store)[0]

    def one(compile: Any, entry: str) -> Any:
        return replay(store, compile, entry, trust=entry == "frame")

    for row in replay_all(store, recording.id, ("graph", "aot", "shapes", "frame"), one):
        if row.verdict.entry == "frame" or applies(store, row.compile, row.verdict.entry):
            yield row.verdict.entry, row
    for row in replay_sequence(store, recording, trust=True, timeout=_LIMIT):
        yield "sequence", row


def _found(cell: str, entry: str, row: Row) -> Found:
    compile, verdict = row.compile, row.verdict
    found = Found(
        cell, entry, compile.place, compile.frame_name or "", compile.status, verdict.verdict,
        verdict.detail, row.events[1],
    )  # fmt: skip
    if verdict.verdict != "identical":
        print(f"{cell} {compile.place} {found.frame} from {entry}: {verdict.verdict}: "
              f"{verdict.detail}", flush=True)  # fmt: skip
        for line in verdict.difference.splitlines()[:12]:
            print(f"    {line:.200}", flush=True)
    return found


def read(state: Path) -> list[Found]:
    """What is known so far."""
    if not state.exists():
        return []
    return [Found(**json.loads(line)) for line in state.read_text().splitlines()]


def report(rows: Sequence[Found]) -> int:
    """Print identical, diverged and refused by cell and entry; the exit status."""
    table = Table("combination", *(f">{entry}" for entry in ENTRIES))
    for name in CELLS:
        mine = [row for row in rows if row.cell == name]
        if mine:
            table.add_row(name, *(_counts([r for r in mine if r.entry == e]) for e in ENTRIES))
    Console(width=120).print(table)
    print("identical/diverged/refused")
    return int(any(row.verdict in ("diverged", NOTHING) for row in rows))


def _counts(rows: Sequence[Found]) -> str:
    tally = Counter(row.verdict for row in rows)
    if tally[NOTHING]:
        return NOTHING
    counts = [str(tally[kind]) for kind in ("identical", "diverged", "refused")]
    return "/".join(counts) if rows else "-"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
