"""Failing programs from a directory: recorded, minified, replayed, exported, and a table of it.

    python -m benchmarks.cases DIRECTORY [word in the file name ...]

Each file is a program that fails when run.  Every step is the command that a user would type, in a
process of its own; the repro runs in an empty directory.  Sizes are call nodes outside and inside
the bodies of higher-order operators; of a failure while Dynamo traces, which is reduced as the
source of a program, statements.  CPU seconds are those of `minify` and all of its processes.
"""

import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sqlalchemy import select

from torchreel.minifier.cases.protocol import AnyCase, case_from_bytes
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.schema import cases

TOOL = [str(Path(sys.executable).with_name("torchreel"))]
HEADER = (
    "case", "recorded failure", "replay", "before", "outside", "inside", "oracle runs",
    "CPU seconds", "minify", "lines", "repro.py",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One command: how it ended, and what it said."""

    status: int
    output: str
    cpu_seconds: float


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
        minified = _run(folder, *TOOL, "minify", "--trust", "run.db", "-o", "out", *accuracy)
        print(minified.output, file=sys.stderr)
        replayed = _run(folder, *TOOL, "replay", "run.db")
        repro = folder / "out" / "repro.py"
        shown = _run(folder / "out", sys.executable, repro.name) if repro.exists() else None
        return [
            file.stem, _failure(folder), _verdict(replayed), *_reduction(folder),
            f"{minified.cpu_seconds:.0f}", str(minified.status), _lines(repro), _last_line(shown),
        ]  # fmt: skip


def _run(folder: Path, *command: str) -> Step:
    before = _children()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    output = done.stdout + done.stderr
    print(f"$ {' '.join(command[1:])}  [{done.returncode}]", file=sys.stderr)
    return Step(done.returncode, output, _children() - before)


def _children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        start, best = (_case(store, digest) for digest in (row.start_case, row.best_case))
    inside = best.total_call_nodes - best.call_nodes
    return [*map(str, (start.call_nodes, best.call_nodes, inside, row.oracle_runs))]


def _case(store: Store, digest: str) -> AnyCase:
    with store.connect() as connection:
        query = select(cases.c.document).where(cases.c.digest == digest)
        return case_from_bytes(store.read_blob(connection.execute(query).scalar_one()))


def _lines(repro: Path) -> str:
    """How many lines of Python there are: no empty ones, no comments."""
    if not repro.exists():
        return "-"
    lines = [line.strip() for line in repro.read_text().splitlines()]
    return str(sum(bool(line) and not line.startswith("#") for line in lines))


def _last_line(step: Step | None) -> str:
    if step is None:
        return "-"
    lines = [line for line in step.output.strip().splitlines() if line.strip()]
    return f"[{step.status}] {lines[-1][:90]}" if lines else f"[{step.status}]"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
