"""How much of what nobody here has written replays to the same?  One process a program, resumable.

    python -m benchmarks.exam [PROGRAM ...] [--programs FOLDER] [--backend NAME] [--every N]
                              [--offset M] [--state FILE] [--limit SECONDS] [--keep FOLDER]
                              [--entries graph,frame,aot,shapes] [--caches off|cold|warm]

A program is the name of an architecture of transformers (all of them by default, see
`architectures`), or, with `--programs`, a file of that folder.  Each is recorded in a process of
its own; then each of its compiles is replayed from its graph, or from the `--entries`.  Torch's
caches are its own and empty ('cold'), filled by a run before ('warm'), or 'off'.  What is known
goes into the state file (exam.jsonl) at once: a second call goes on where the first one stopped,
and ends with the table of all that the file has.  The tables count programs and compiles, and the
reasons of what was not identical, the most frequent first.

Exits with 1 where a compile diverged, where the store lacks a compile that torch counted, or where
less than 99 % of the compiles are identical.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import caches
from benchmarks.exam.architectures import NOT_TRIED, names
from torchreel.store import Store, queries

TOOL = [str(Path(sys.executable).with_name("torchreel"))]
TARGET = 0.99
FAILED = "frame, where Dynamo failed"
"""The entry of a compile without a graph, since Dynamo failed."""
_COUNTED = re.compile(r"^unique graphs: (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """What became of one compile."""

    place: str
    status: str
    verdict: str
    detail: str
    entry: str = "graph"
    """Where the replay started."""


@dataclass(frozen=True)
class Examined:
    """What became of one program."""

    name: str
    backend: str
    outcome: str
    """'examined', 'not tried' (eager mode cannot run it), 'too long', 'ended with N', or 'not
    replayed' where there are compiles and the replay told of none."""
    detail: str = ""
    seconds: float = 0.0
    counted: int | None = None
    """Graphs that torch itself counted; None where the program does not say."""
    graphs: int = 0
    """Compiles of the store that have a graph."""
    lost: tuple[str, ...] = ()
    caches: str = "cold"
    entries: str = "graph"
    compiles: tuple[Compiled, ...] = field(default=())

    @property
    def key(self) -> tuple[str, ...]:
        """What was examined: a program, and how."""
        return self.name, self.backend, self.caches, self.entries

    @property
    def missing(self) -> int:
        """Graphs that torch counted and the store lacks."""
        return max(0, (self.counted or 0) - self.graphs)


def main(arguments: Sequence[str]) -> int:
    """Examine what the state file does not know yet; the exit status."""
    chosen = _parser().parse_args(arguments)
    state = Path(chosen.state)
    known = {row.key for row in read(state)}
    how = How(chosen.backend, chosen.caches, chosen.entries, chosen.limit, chosen.keep)
    for name, command in list(_programs(chosen))[chosen.offset :: chosen.every]:
        if (name, *how.key) not in known:
            row = examine(name, command, how)
            with state.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            print(_line(row), flush=True)
    return report([row for row in read(state) if row.key[1:] == how.key])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--programs")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--state", default="exam.jsonl")
    parser.add_argument("--limit", type=float, default=900.0)
    parser.add_argument("--keep", help="where stores of what was not identical are put")
    parser.add_argument("--entries", default="graph")
    parser.add_argument("--caches", choices=caches.KINDS, default="cold")
    return parser


def _programs(chosen: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Name and command of each program."""
    if chosen.programs:
        for file in sorted(Path(chosen.programs).glob("*.py")):
            if not chosen.names or file.stem in chosen.names:
                yield file.stem, [sys.executable, str(file.resolve())]
        return
    for name in chosen.names or names():
        module = ["-m", "benchmarks.exam.architectures", name, chosen.backend]
        yield name, [sys.executable, *module]


@dataclass(frozen=True)
class How:
    """How programs are examined; `limit` in seconds, for each command."""

    backend: str = "aot_eager"
    caches: str = "cold"
    entries: str = "graph"
    limit: float = 900.0
    keep: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What makes another examination of the same program."""
        return self.backend, self.caches, self.entries


def examine(name: str, command: Sequence[str], how: How) -> Examined:
    """Record a program and replay each of its compiles."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torchreel-exam-") as folder:
        store = Path(folder, "run.db")
        try:
            row = _examine(name, command, how, store)
        except subprocess.TimeoutExpired:
            row = Examined(name, how.backend, "too long", f"more than {how.limit:.0f} s")
        if how.keep and store.exists() and any(c.verdict != "identical" for c in row.compiles):
            Path(how.keep).mkdir(parents=True, exist_ok=True)
            Path(how.keep, f"{name}.db").write_bytes(store.read_bytes())
    seconds = round(time.monotonic() - started, 1)
    return replace(row, seconds=seconds, caches=how.caches, entries=how.entries)


def _examine(name: str, command: Sequence[str], how: How, store: Path) -> Examined:
    backend, limit, variables = how.backend, how.limit, caches.environment(how.caches, store.parent)
    caches.fill(how.caches, store.parent, command, {}, limit)
    frames = ["--frames", "all"] if "frame" in how.entries.split(",") else []
    recording = [*TOOL, "record", *frames, "-o", str(store), "--", *command]
    run = _run(recording, limit, {**os.environ, **variables})
    last = run.stdout.strip().rpartition("\n")[2][-300:]
    if run.returncode == NOT_TRIED:
        return Examined(name, backend, "not tried", last)
    if run.returncode != 0:
        error = run.stderr.strip().splitlines()[-6:]
        return Examined(name, backend, f"ended with {run.returncode}", " / ".join(error)[-300:])
    with Store.open(store) as opened:
        number = queries.recordings(opened)[0].id
        graphs = sum(
            not queries.is_without_graph(opened, compile)
            for compile in queries.compiles(opened, number)
            if compile.status != "restarted"
        )
        failed = {
            compile.place
            for compile in queries.compiles(opened, number)
            if compile.status == "failed" and not queries.graphs(opened, compile)
        }
        lost = tuple(f"{item.place}: {item.message}" for item in queries.lost(opened, number))
    counted = _COUNTED.search(run.stdout)
    rows, errors = _replay_all(store, how)
    if graphs and not rows:
        return Examined(name, backend, "not replayed", errors)
    return Examined(
        name, backend, "examined", "", 0.0, int(counted[1]) if counted else None, graphs, lost,
        compiles=tuple(
            _from_frame(store, row, limit) if row["compile"] in failed else _compiled(row)
            for row in rows
            if row["compile"] not in failed or row["entry"] == how.entries.partition(",")[0]
        ),
    )  # fmt: skip


def _replay_all(store: Path, how: How) -> tuple[list[dict[str, str]], str]:
    """Every verdict as data, and what was said where there is none.

    Frames are code, which runs with trust; the others have to do without.
    """
    entries = how.entries.split(",")
    rows, errors = [], ""
    for asked in ([e for e in entries if e != "frame"], [e for e in entries if e == "frame"]):
        if asked:
            trust = ["--trust"] if asked == ["frame"] else []
            command = [*TOOL, "replay", str(store), "--all", "--json", "--entry", ",".join(asked)]
            run = _run([*command, *trust], how.limit)
            rows += json.loads(run.stdout) if run.stdout.strip() else []
            errors = run.stderr.strip()[-300:]
    return rows, errors


def _from_frame(store: Path, row: dict[str, str], limit: float) -> Compiled:
    """Replay from its frame what Dynamo failed on: there is no graph to start from."""
    run = _run(
        [*TOOL, "replay", f"{store}#{row['compile']}", "--entry", "frame", "--trust", "--json"],
        limit,
    )
    if not run.stdout.strip():
        detail = run.stderr.strip()[-300:]
        return Compiled(row["compile"], row["status"], "refused", detail, FAILED)
    verdict = json.loads(run.stdout)
    return Compiled(row["compile"], row["status"], verdict["verdict"], verdict["detail"], FAILED)


def _run(
    command: Sequence[str], limit: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=limit, check=False, env=variables
    )


def _compiled(row: dict[str, str]) -> Compiled:
    return Compiled(row["compile"], row["status"], row["verdict"], row["detail"], row["entry"])


def read(state: Path) -> list[Examined]:
    """What is known so far."""
    if not state.exists():
        return []
    rows = map(json.loads, state.read_text().splitlines())
    return [
        Examined(**{**row, "lost": tuple(row["lost"]),
                    "compiles": tuple(Compiled(**item) for item in row["compiles"])})
        for row in rows
    ]  # fmt: skip


def _line(row: Examined) -> str:
    tally = Counter(item.verdict for item in row.compiles)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in tally.most_common())
    missing = f", {row.missing} missing" if row.missing else ""
    return f"{row.name}: {counts or row.outcome}{missing} {row.detail:.120} ({row.seconds:.0f} s)"


def report(rows: Sequence[Examined]) -> int:
    """Print the tables; the exit status."""
    console = Console(width=160)
    console.print(_outcomes(rows))
    console.print(_verdicts(rows))
    compiles = [item for row in rows for item in row.compiles]
    verdicts = Counter(item.verdict for item in compiles)
    share = verdicts["identical"] / len(compiles) if compiles else 0.0
    print(f"{len(compiles)} compiles: {dict(verdicts)}; {share:.1%} identical")
    _print_reasons(console, rows)
    missing = sum(row.missing for row in rows)
    print(f"{missing} graphs that torch counted are missing from the stores")
    return int(share < TARGET or verdicts["diverged"] > 0 or missing > 0)


def _outcomes(rows: Sequence[Examined]) -> Table:
    table = Table("programs", ">", title="Programs")
    for outcome, count in Counter(_outcome(row) for row in rows).most_common():
        table.add_row(outcome, str(count))
    return table


def _verdicts(rows: Sequence[Examined]) -> Table:
    """The verdicts by the entry of the replay."""
    counts = Counter((item.verdict, item.entry) for row in rows for item in row.compiles)
    entries = sorted({entry for _, entry in counts})
    table = Table("verdict", *(f">from {entry}" for entry in entries), title="Compiles")
    for verdict in sorted({verdict for verdict, _ in counts}):
        table.add_row(verdict, *(str(counts[verdict, entry]) for entry in entries))
    return table


def _outcome(row: Examined) -> str:
    if row.outcome != "examined":
        return row.outcome
    bad = {item.verdict for item in row.compiles} - {"identical"}
    return "all compiles identical" if not bad else f"some compiles {' and '.join(sorted(bad))}"


def _print_reasons(console: Console, rows: Sequence[Examined]) -> None:
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for row in rows:
        for item in row.compiles:
            if item.verdict != "identical":
                _count(f"{item.verdict}: {canonical_reason(item.detail)}", row.name, reasons,
                       examples)  # fmt: skip
        for message in row.lost:
            _count(f"lost: {canonical_reason(message)}", row.name, reasons, examples)
        if row.outcome not in ("examined", "not tried"):
            _count(f"{row.outcome}: {canonical_reason(row.detail)}", row.name, reasons, examples)
    table = Table("compiles", "reason", "for example", title="What was not identical")
    for reason, count in reasons.most_common(60):
        table.add_row(str(count), reason, examples[reason])
    console.print(table)


def _count(reason: str, name: str, reasons: Counter[str], examples: dict[str, str]) -> None:
    reasons[reason] += 1
    examples.setdefault(reason, name)


def canonical_reason(text: str) -> str:
    """A reason without what differs from program to program: numbers, and names with them."""
    return re.sub(r"\d+", "N", re.sub(r"'[^']*\d[^']*'", "'…'", text))[:140]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
