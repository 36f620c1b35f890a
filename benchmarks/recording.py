"""What recording costs: the recorder, and torch's own means, against none, in alternated pairs.

    python -m benchmarks.recording [MODEL ...] [static dynamic] [aot_eager inductor]
                                   [full flight torch_trace shape_events] [--pairs N]

Each round is one fresh process with none and one with each recorder, one right after the other (the
order rotates from round to round), each with an Inductor cache of its own; a pair is a recorder's
and the one with none of its round, and the figure is the median of the pairs' ratios of CPU seconds
of the first call. Each round makes that call in another state of the interpreter (stack and
collector), the same for all its processes: any one state is luck (Mytkowicz, Diwan, Hauswirth,
Sweeney: Producing wrong data without doing anything obviously wrong!, ASPLOS 2009). Let N be a
multiple of seven.
torchreel's modules are compiled to byte code first, as pip does at an install. Peak memory is the
median difference; bytes are what is left on disk, and beside those of torchreel stands their share
of what `torch_trace` left, where that was measured as well. Exits with 1 when a target of the table
`TARGETS`, or one of memory or bytes, is missed.
"""

import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import torchreel
from torchreel.store.database import Store

SHAPE_EVENTS, SETUP = "RECORD_SHAPE_EVENTS", "RECORD_SETUP"
"""What recording_program.py looks for in its environment."""
PROGRAM = Path(__file__).with_name("recording_program.py")
AXES = (
    ("gpt2-2", "gpt2-12", "bert", "cnn-train"),
    ("static", "dynamic"),
    ("aot_eager", "inductor"),
    ("full", "flight", "torch_trace", "shape_events"),
)
TARGETS = {
    ("full", "aot_eager"): 1.15, ("full", "inductor"): 1.05,
    ("flight", "aot_eager"): 1.03, ("flight", "inductor"): 1.01,
}  # fmt: skip
MOST_MEMORY = 64 * 1024
"""KiB of extra peak memory that a recorder may use."""
MOST_BYTES = 0.2
"""Share of the bytes of TORCH_TRACE that a store may take."""


@dataclass(frozen=True)
class Run:
    """One process: CPU seconds, KiB at the peak, microseconds per later call, bytes on disk."""

    cpu: float
    peak: int
    call: float
    size: int


def main(arguments: list[str]) -> int:
    """Run the chosen combinations (all by default); the exit status."""
    pairs = 7
    if "--pairs" in arguments:
        place = arguments.index("--pairs")
        pairs = int(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    table = Table(
        "program", "recorder", "CPU ratio", "pairs", "target", "memory", "call", "bytes", "share"
    )  # fmt: skip
    *programs, recorders = chosen(arguments)
    missed = sum(_measure(program, recorders, pairs, table) for program in product(*programs))
    Console(width=150).print(table)
    return min(missed, 1)


def chosen(arguments: Sequence[str]) -> list[Sequence[str]]:
    """What is named of each axis; all of one where nothing is."""
    return [[word for word in axis if word in arguments] or axis for axis in AXES]


def _measure(program: tuple[str, ...], recorders: Sequence[str], pairs: int, table: Table) -> int:
    rounds = [_round(program, ["", *recorders], number) for number in range(pairs)]
    traces = [runs["torch_trace"].size for runs in rounds if "torch_trace" in runs]
    trace = median(traces) if traces else None
    return sum(
        _judge(program, name, [(runs[""], runs[name]) for runs in rounds], trace, table)
        for name in recorders
    )


def _round(program: tuple[str, ...], names: list[str], number: int) -> dict[str, Run]:
    first = number % len(names)
    return {name: _run(program, name, number) for name in [*names[first:], *names[:first]]}


def _judge(
    program: tuple[str, ...],
    recorder: str,
    runs: list[tuple[Run, Run]],
    trace: float | None,
    table: Table,
) -> int:
    ratios = sorted(with_.cpu / without.cpu for without, with_ in runs)
    memory = median(with_.peak - without.peak for without, with_ in runs)
    call = median(with_.call / without.call for without, with_ in runs)
    target = TARGETS.get((recorder, program[2]))
    size = median(with_.size for _, with_ in runs)
    share = None if trace is None or target is None else size / trace
    row = (
        " ".join(program), recorder, f"{median(ratios):.3f}",
        f"{ratios[0]:.2f}..{ratios[-1]:.2f}", "" if target is None else f"{target:.2f}",
        f"{memory / 1024:+.0f} MiB", f"{call:.3f}", str(int(size)),
        "" if share is None else f"{share:.2f}",
    )  # fmt: skip
    table.add_row(*row)
    print(*row, sep=" | ", flush=True)
    large = memory > MOST_MEMORY or (share is not None and share > MOST_BYTES)
    return int(target is not None and (median(ratios) > target or large))


def _run(program: tuple[str, ...], recorder: str, setup: int) -> Run:
    with prepared(recorder) as (out, variables):
        variables[SETUP] = str(setup)
        command = [sys.executable, str(PROGRAM), *program]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{program} with {recorder or 'none'} failed:\n{done.stderr}"
        found = json.loads(done.stdout.splitlines()[-1])
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        return Run(found["cpu"], found["peak"], found["call"], size)


@contextmanager
def prepared(recorder: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Where a recorder writes, and the environment of one process with cold caches.

    Our modules are compiled to bytecode before, as those of an installation are: to compile them
    costs more than to record a small model.
    """
    compileall.compile_dir(Path(torchreel.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory(prefix="torchreel-recording-") as folder:
        out = Path(folder, "out")
        out.mkdir()
        variables = {
            **os.environ, **_variables(recorder, out),
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache", "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error",
        }  # fmt: skip
        yield out, variables


def _variables(recorder: str, out: Path) -> dict[str, str]:
    """What switches a recorder on, as `torchreel record` and torch's documentation do."""
    if recorder in ("full", "flight"):
        Store.open(out / "run.db", create=True).close()
        return {"TORCHREEL": f"{recorder}:{out / 'run.db'}"}
    if recorder == "torch_trace":
        return {"TORCH_TRACE": str(out)}
    if recorder == "shape_events":
        return {SHAPE_EVENTS: "1"}
    return {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
