"""Damaged and absurd stores: does every command end in one sentence, in time, and in 1 GB?

    python -m benchmarks.damaged [--folder DIR] [--count 2000] [--every 8] [--light]
                               [--heavy] [--verbs replay minify ...]

Damages copies of real recordings in 2,000 ways and runs every command on each: those that start
torch (replay, minify, bisect, share, a recording into it, and others) on one of eight each.
Results go to a file in the folder, so that a run which was stopped goes on.  Prints how many
commands ended how; exits with 1 if any ended in a traceback, a hang, or took too much memory.
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from sqlalchemy import Engine, Select
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.util import LRUCache

from benchmarks.damage import absurd, forked
from benchmarks.damage.mutants import Mutant, make
from benchmarks.damage.outcomes import Job, Outcome, run, run_together
from benchmarks.damage.recordings import recordings
from torchreel.cli import app
from torchreel.errors import TorchreelError

LIGHT: tuple[str, ...] = (
    "ls {}", "ls {} --json", "show {}", "show {} --json", "show {} --events",
    "show {} --graph dynamo", "show {} --code", "show {} --traceback", "shapes {}",
    "why {} recompile", "why {} specialised", "why {} graph-break", "why {} s77", "guards {}",
    "guards {} --input n:5", "diff {} {base}", "diff {base} {}", "diff --ranks {}",
    "query {} SELECT*FROM[compiles]", "query {} SELECT*FROM[graph_nodes]",
    "query {} SELECT*FROM[guards]", "query {} SELECT*FROM[symbols]",
    "query {} SELECT*FROM[recompiles],[graph_breaks],[cache_decisions],[stages],[kernels]",
    "audit {}", "push {} --to central.db", "prune {} --max-group 1",
    "triage {}", "triage {} --baseline {base}", "report {} -o report.html -f",
    "export {} --format torch-trace -o trace -f", "import traces -o {}",
    "record -o {} -- true", "record -o {} --max-bytes 30k -- true",
)  # fmt: skip
"""Commands that never import torch."""
ABSURD = 1_000_000
"""Mutants from this number on are those of `absurd`: `--from 1000000 --count 200`."""
HEAVY: tuple[str, ...] = (
    "replay {} --entry shapes", "replay {} --timeout 60", "replay {} --entry aot --timeout 60",
    "minify {} --limit-runs 4 --no-explain --checks 1 -f",
    "bisect {} --limit-runs 4", "analyze {}", "export {} --checks 1 -f", "doctor {}",
    "replay {} --sequence --trust --timeout 60", "record -o {} -- {python} {program}",
    "share {} -o bundle.db -f", "recheck {} --python {python}",
    "releases {} --python {python} --runs 1",
)  # fmt: skip
"""Commands that start torch: on a sample."""


def main(arguments: list[str]) -> int:
    """Damage, run, and print the table; the exit status."""
    options = _options().parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="torchreel-damaged-"))
    known = {path.stem: path for path in options.of} or recordings(folder / "recordings")
    results = folder / "results.jsonl"
    numbers = range(options.start, options.start + options.count)
    if not options.heavy:
        _warm_up(next(iter(known.values())), folder)
        _go(known, numbers, _of(LIGHT, options.verbs), results, folder, options.light_every)
    if not options.light:
        forked.warm_up()
        forked.fork_children()
        _go(known, numbers, _of(HEAVY, options.verbs), results, folder, options.every)
    return report(results)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--from", dest="start", type=int, default=0)
    parser.add_argument(
        "--every", type=int, default=8, help="of those, a heavy command runs on one"
    )
    parser.add_argument("--light-every", type=int, default=1, help="the same for light commands")
    parser.add_argument("--of", type=Path, nargs="*", default=[], help="damage these stores")
    parser.add_argument("--light", action="store_true", help="only what never starts torch")
    parser.add_argument("--heavy", action="store_true", help="only what starts torch")
    parser.add_argument("--verbs", nargs="*", default=[], help="only commands of these")
    return parser


def _of(commands: tuple[str, ...], verbs: list[str]) -> tuple[str, ...]:
    """Return the commands of some verbs; all where none is named."""
    return tuple(each for each in commands if not verbs or each.split()[0] in verbs)


def _warm_up(store: Path, folder: Path) -> None:
    """Run each light command once, for what it imports and prepares: the forks have all of that."""
    place = folder / "warm"
    place.mkdir(exist_ok=True)
    path = place / "run.db"
    _prepare_once()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), chdir(place):
        for command in LIGHT:
            path.write_bytes(store.read_bytes())
            with suppress(SystemExit, TorchreelError):
                app(words(command, path, store), standalone_mode=False)
    gc.collect()
    gc.freeze()


def _prepare_once() -> None:
    """Keep for all forks what each command prepares before it reads anything: half of its time.

    Typer makes the commands of the application anew each time, and SQLAlchemy the SQL of a query
    for each engine.  All engines here are of SQLite, and no query of ours has a join.
    """
    made: LRUCache[Any, Any] = LRUCache(5000)
    begin = Engine.__init__

    def shared(self: Engine, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self._compiled_cache = made

    for owner, name, instead in (
        (typer.main, "get_command", functools.cache(typer.main.get_command)),
        (Engine, "__init__", shared),
        (Select, "get_final_froms", lambda self: self.columns_clause_froms),
        (SQLiteDialect, "__hash__", lambda self: 1),
        (SQLiteDialect, "__eq__", lambda self, other: isinstance(other, SQLiteDialect)),
    ):
        setattr(owner, name, instead)


def words(command: str, path: Path, base: Path) -> list[str]:
    """A command of the tables, as arguments, for the store at `path` that was made of `base`."""
    program = base.parent / "tiny.py"
    return [
        word.format(path, base=base, python=sys.executable, program=program)
        for word in command.split()
    ]


def _go(
    known: Mapping[str, Path],
    numbers: range,
    commands: tuple[str, ...],
    results: Path,
    folder: Path,
    every: int,
) -> None:
    """Run the commands on every mutant, each on one of `every`; what is known is not run again."""
    done = {(row["number"], row["command"]) for row in _rows(results)}
    place = folder / "here"
    place.mkdir(exist_ok=True)
    (place / "traces").mkdir(exist_ok=True)
    (place / "traces" / "dedicated_log_torch_trace_x.log").write_text("")
    began, bad = time.monotonic(), 0
    with results.open("a") as log:
        for number in numbers:
            wanted = [
                command
                for place_of, command in enumerate(commands)
                if (number, command) not in done
                and ((number + place_of) % every == 0 or command == LIGHT[0])
            ]
            for mutant, command, outcome in _outcomes(number, known, wanted, place):
                row = {**asdict(mutant), "command": command, **asdict(outcome)}
                log.write(json.dumps(row) + "\n")
                if outcome.is_bad:
                    bad += 1
                    print(f"{outcome.kind}: {mutant}: {command}: {_last(outcome)}", flush=True)
            log.flush()
            if wanted and number % 50 == 49:
                print(f"{number + 1}: {bad} bad, {time.monotonic() - began:.0f} s", flush=True)


def _outcomes(
    number: int, known: Mapping[str, Path], commands: list[str], place: Path
) -> Iterator[tuple[Mutant, str, Outcome]]:
    original, path = place / "original.db", place / "run.db"
    if not commands:
        return
    if number >= ABSURD:
        mutant, put = absurd.make(number - ABSURD, known)
        mutant = replace(mutant, number=number)
        if mutant.family in absurd.IN_ONE_FILE:
            _renew(original, put)
            put = partial(_copy, original)
    else:
        mutant, put = make(number, known, original), partial(_copy, original)
    jobs = [
        Job(words(command, path, known[mutant.base]), partial(_renew, path, put))
        for command in commands
    ]
    found: list[Outcome | None] = [None] * len(jobs)
    if commands[0] in LIGHT:
        found = run_together(jobs, place, seconds=60, room=1 << 30)
    for command, job, outcome in zip(commands, jobs, found, strict=True):
        if outcome is None:
            seconds, room = (240, 4 << 30) if command in HEAVY else (60, 1 << 30)
            job.prepare()
            outcome = run(job.arguments, place, seconds=seconds, room=room)
        yield mutant, command, outcome


def _copy(original: Path, path: Path) -> None:
    path.write_bytes(original.read_bytes())


def _renew(path: Path, put: absurd.Place) -> None:
    """Put the mutant anew where the command expects it."""
    for old in path.parent.glob(f"{path.name}*"):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    put(path)


def _last(outcome: Outcome) -> str:
    return " | ".join(outcome.said.splitlines()[-3:])


def _rows(results: Path) -> list[dict[str, object]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def report(results: Path) -> int:
    """Print how the commands ended, by family; 1 if any ended as none may."""
    rows = _rows(results)
    kinds = ("0", "1", "2", "3", "4", "TRACEBACK", "HANG", "MEMORY")
    print(f"{'family':<12}{'mutants':>9}" + "".join(f"{kind:>11}" for kind in kinds))
    for family in sorted({str(row["family"]) for row in rows}):
        here = [row for row in rows if row["family"] == family]
        counts = Counter(str(row["kind"]) for row in here)
        mutants = len({row["number"] for row in here})
        print(f"{family:<12}{mutants:>9}" + "".join(f"{counts[kind]:>11}" for kind in kinds))
    for title, key in (("slowest", "seconds"), ("most memory", "peak")):
        row = max(rows, key=lambda row: float(str(row[key])))
        print(f"{title}: {row[key]} {row['command']} of {row['number']} ({row['what']})")
    return int(any(not str(row["kind"]).isdigit() for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
