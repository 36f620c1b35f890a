"""Failing programs from a directory: recorded, minified, replayed, exported, and a table of it.

    python -m benchmarks.cases DIRECTORY [word in the file name ...]

Each file is a program that fails when run.  Every step is the command that a user would type, in a
process of its own; the repro runs in an empty directory.  A failure while Dynamo traces has no
graph yet: there, `replay` and `minify` must refuse (exit status 3).
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchreel.store import queries
from torchreel.store.database import Store

TOOL = [str(Path(sys.executable).with_name("torchreel"))]
HEADER = (
    "case", "recorded failure", "replay", "nodes before", "after", "oracle runs", "seconds",
    "minify", "repro.py",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One command: how it ended, and what it said."""

    status: int
    output: str
    seconds: float


def main(directory: str, *words: str) -> int:
    """Run every program of a directory through all steps; the exit status."""
    table = Table(*HEADER)
    for file in sorted(Path(directory).glob("*.py")):
        if not words or any(word in file.name for word in words):
            row = _one(file.resolve())
            print(" | ".join(row), flush=True)
            table.add_row(*row)
    Console(width=180).print(table)
    return 0


def _one(file: Path) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="torchreel-cases-") as name:
        folder = Path(name)
        _run(folder, *TOOL, "record", "-o", "run.db", "--", sys.executable, str(file))
        accuracy = ["--accuracy"] if _failure(folder) == "none" else []
        minified = _run(folder, *TOOL, "minify", "run.db", "-o", "out", *accuracy)
        replayed = _run(folder, *TOOL, "replay", "run.db")
        repro = folder / "out" / "repro.py"
        shown = _run(folder / "out", sys.executable, repro.name) if repro.exists() else None
        return [
            file.stem, _failure(folder), _verdict(replayed), *_reduction(folder),
            str(minified.status), _last_line(shown),
        ]  # fmt: skip


def _run(folder: Path, *command: str) -> Step:
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    output = done.stdout + done.stderr
    print(f"$ {' '.join(command[1:])}  [{done.returncode}]", file=sys.stderr)
    return Step(done.returncode, output, time.monotonic() - started)


def _failure(folder: Path) -> str:
    with Store.open(folder / "run.db") as store:
        found = [f for f in queries.failures(store) if f.recording_id == 1]
    if not found:
        return "none"
    failure = found[-1]
    return f"{failure.stage}: {failure.exception_type or failure.signature.signal or failure.failure_class}"  # noqa: E501


def _verdict(step: Step) -> str:
    return {0: "identical", 1: "diverged", 3: "refused"}.get(step.status, str(step.status))


def _reduction(folder: Path) -> list[str]:
    with Store.open(folder / "run.db") as store:
        rows = queries.reductions(store)
        if not rows:
            return ["-"] * 4
        row = rows[-1]
        sizes = [_call_nodes(store, digest) for digest in (row.start_case, row.best_case)]
    return [*map(str, sizes), str(row.oracle_runs), f"{row.seconds:.0f}"]


def _call_nodes(store: Store, digest: str) -> int:
    from torchreel.store.schema import cases

    with store.connect() as connection:
        query = cases.select().where(cases.c.digest == digest)
        return int(connection.execute(query).one().call_nodes)


def _last_line(step: Step | None) -> str:
    if step is None:
        return "-"
    lines = [line for line in step.output.strip().splitlines() if line.strip()]
    return f"[{step.status}] {lines[-1][:90]}" if lines else f"[{step.status}]"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
