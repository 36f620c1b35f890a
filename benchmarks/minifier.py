"""torchreel's minifier and torch's own, side by side, on faults planted in real models.

    python -m benchmarks.minifier [CASE ...] [--side ours|torch] [--limit SECONDS] [--json FILE]
    python -m benchmarks.minifier --report FILE ...

The second form prints the table of what runs wrote with `--json`, one after the other.

For each side: whether its repro shows the *same* error in a fresh process, the call nodes that are
left, oracle runs (all, and ours until the last call node went), CPU seconds (user and system, of
all its processes), and bytes written.  From the CPU seconds one start of the interpreter with its
imports is taken off for each side's own long-lived process (torch: the launcher, ours: the worker);
`bare` takes off those of torch's children as well.
Recording, or torch's dump of the failing graph, is not counted on either side.  Exits with 1 when a
case does not succeed, or ends larger than torch's or than the known minimum.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PLANTED = HERE / "planted"


@dataclass(frozen=True)
class Planted:
    """A model, what is wrong with it, and the call nodes that suffice to show it.

    Of what gives a tuple, a `getitem` takes the result.
    """

    model: str
    fault: str = ""
    """As `planted/planted_faults.py` says; empty for a bug of Inductor's own."""
    bug: str = ""
    """`cpp.inject_relu_bug_TESTING_ONLY`."""
    least: int | None = None
    after: str = "aot"
    """Torch's mode: TORCHDYNAMO_REPRO_AFTER."""

    @property
    def error(self) -> str:
        """What a repro has to say."""
        if self.fault:
            path = self.fault.partition(":")[2].removesuffix("!")
            return re.escape("planted fault: " + " > ".join(path.split(">")))
        return {
            "compile_error": "CppCompileError",
            "runtime_error": "terminate|unhandled|RuntimeError",
            "accuracy": "AccuracyError|Bad accuracy|Tensor-likes are not close|not close",
        }[self.bug]

    @property
    def crashes(self) -> bool:
        """Whether the process dies."""
        return self.fault.endswith("!")

    @property
    def accuracy(self) -> bool:
        """Whether the result is wrong."""
        return self.bug == "accuracy"


CASES: dict[str, Planted] = {
    "gpt2-2 one": Planted("gpt2-2", "lowering:tanh", least=1),
    "gpt2-2 two": Planted("gpt2-2", "lowering:tanh>rsqrt", least=2),
    "gpt2-2 three": Planted("gpt2-2", "lowering:addmm>tanh>rsqrt", least=3),
    "gpt2-2 dynamo": Planted("gpt2-2", "pre_grad:tanh>layer_norm", least=2, after="dynamo"),
    "gpt2-2 crash": Planted("gpt2-2", "lowering:tanh!", least=1),
    "gpt2-12 one": Planted("gpt2-12", "lowering:tanh", least=1),
    "gpt2-12 two": Planted("gpt2-12", "lowering:tanh>rsqrt", least=2),
    "gpt2-12 dynamo": Planted(
        "gpt2-12", "pre_grad:layer_norm>tanh>layer_norm", least=3, after="dynamo"
    ),
    "bert one": Planted("bert", "lowering:erf", least=1),
    "bert two": Planted("bert", "lowering:erf>addmm", least=2),
    "bert dynamo": Planted("bert", "pre_grad:gelu>layer_norm", least=2, after="dynamo"),
    "t5 one": Planted("t5", "lowering:relu", least=1),
    "t5 three": Planted("t5", "lowering:rsqrt>relu>mm", least=3),
    "cnn one": Planted("cnn", "lowering:convolution", least=1),
    "cnn compile error": Planted("cnn", bug="compile_error", least=1),
    "cnn wrong": Planted("cnn", bug="accuracy", least=1),
    "mlp three": Planted("mlp", "lowering:sigmoid>tanh>rsqrt", least=3),
    "mlp compile error": Planted("mlp", bug="compile_error", least=1),
    "mlp run time": Planted("mlp", bug="runtime_error", least=1),
    "mlp wrong": Planted("mlp", bug="accuracy", least=1),
    "experts one": Planted("experts", "lowering:topk", least=2),
    "experts two": Planted("experts", "lowering:topk>exp", least=3),
    "branches one": Planted("branches", "lowering:cond", least=2),
    "branches two": Planted("branches", "lowering:cond>sigmoid", least=3),
    "gpt2-train": Planted("gpt2-train", "lowering:_unsafe_masked_index_put_accumulate", least=1),
    "cnn-train": Planted("cnn-train", "lowering:convolution_backward", least=1),
}


@dataclass
class Side:
    """What one side came to."""

    status: str = "no repro"
    nodes: int | None = None
    runs: int | None = None
    runs_to_nodes: int | None = None
    """Until no call node went any more."""
    cpu: float = 0.0
    """Without the start of its own long-lived process."""
    bare: float = 0.0
    """Without the starts of any process."""
    written: int = 0
    """Bytes handed to the file system (as /proc counts them)."""

    @property
    def good(self) -> bool:
        """Whether there is a repro that shows the error."""
        return self.status == "same"


@dataclass(frozen=True)
class Spent:
    """What a process and all that it waited for took."""

    exit_status: int | None
    cpu: float
    written: int
    output: str


def spend(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float
) -> Spent:
    """Run a command to its end, or to the limit (exit status None)."""
    cpu, written = _children_cpu(), _written()
    output = folder / "output.txt"
    with output.open("wb") as file:
        child = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        status: int | None
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(child.pid, 15)
            child.wait()
    text = output.read_text("utf-8", "replace")
    return Spent(status, _children_cpu() - cpu, _written() - written, text)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _written() -> int:
    """Of this process and those that it waited for."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["write_bytes"])


def environment(case: Planted, folder: Path) -> dict[str, str]:
    """For every process of a case, whichever side starts it."""
    path = [str(PLANTED), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        "PLANTED": case.fault,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHDYNAMO_VERBOSE": "0",
    }


def program(case: Planted) -> list[str]:
    """The failing program."""
    return [str(HERE / "minifier_programs.py"), case.model, case.bug]


def ours(case: Planted, folder: Path, start: float, limit: float) -> Side:
    """Record, reduce, and run the repro."""
    side, given = Side(), environment(case, folder)
    store = folder / "run.db"
    record = [sys.executable, "-c", "from torchreel.cli import main; main()", "record"]
    spend([*record, "-o", str(store), "--", sys.executable, *program(case)], folder, given, limit)
    imports = "planted_faults" if case.fault else ""
    command = [sys.executable, str(HERE / "minifier_side.py"), str(store), str(folder / "out")]
    arguments = [imports, *(["accuracy"] if case.accuracy else [])]
    spent = spend([*command, *arguments], folder, given, limit)
    measured = folder / "out" / "measured.json"
    side.written = spent.written
    if not measured.exists():
        side.status = "time limit" if spent.exit_status is None else spent.output[-200:]
        side.cpu = side.bare = spent.cpu
        return side
    found = json.loads(measured.read_text())
    side.runs, side.nodes = found["runs"], found["nodes"]
    side.runs_to_nodes = found["runs_to_nodes"]
    side.cpu = side.bare = found["cpu"] - start
    side.status = shown(folder / "out" / "repro.py", case, folder, limit)
    return side


def theirs(case: Planted, folder: Path, start: float, limit: float) -> Side:
    """Let torch dump the failing graph, minify it, and run the repro."""
    side, given = Side(), environment(case, folder)
    level = "4" if case.accuracy else "3" if case.crashes else "2"
    asked = {"TORCHDYNAMO_REPRO_AFTER": case.after, "TORCHDYNAMO_REPRO_LEVEL": level}
    dumped = spend([sys.executable, *program(case)], folder, {**given, **asked}, limit)
    launchers = sorted(folder.rglob("minifier_launcher.py"), key=lambda path: path.stat().st_mtime)
    if not launchers:
        side.status = f"nothing dumped: {dumped.output[-100:]}"
        return side
    spent = spend([sys.executable, str(launchers[-1])], folder, given, limit)
    made = re.findall(r"Made (\d+) queries", spent.output)
    isolated = len(list((folder / "isolate").glob("*.py"))) if case.after == "aot" else 0
    # A run that was cut short has no total, but each of its queries in a process left a file.
    side.runs = side.runs_to_nodes = sum(map(int, made)) if made else isolated or None
    side.cpu = spent.cpu - start
    side.bare = spent.cpu - start * (1 + max(isolated, side.runs or 0) * (case.after == "aot"))
    side.written = spent.written
    repro = folder / "repro.py"
    if spent.exit_status is None:
        side.status = "time limit"
    if repro.exists():
        side.nodes = calls_in(repro.read_text())
        if spent.exit_status is not None:
            side.status = shown(repro, case, folder, limit)
    elif spent.exit_status is not None:
        side.status = f"no repro: {spent.output.strip()[-100:]}"
    return side


def shown(repro: Path, case: Planted, folder: Path, limit: float) -> str:
    """What a repro does in a fresh process: "same", or what else."""
    fresh = Path(tempfile.mkdtemp(dir=folder))
    given = environment(case, fresh)
    spent = spend([sys.executable, str(repro)], fresh, given, limit)
    if case.crashes:
        return "same" if spent.exit_status == -11 else f"exit status {spent.exit_status}"
    if spent.exit_status == 0:
        return "passes"
    return "same" if re.search(case.error, spent.output) else spent.output.strip()[-100:]


def calls_in(source: str) -> int:
    """Call nodes of the graph that torch's repro holds."""
    module = next(
        node for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and node.name == "Repro"
    )  # fmt: skip
    forward = next(
        node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )
    plain = (ast.Name, ast.Attribute, ast.Constant)
    return sum(
        isinstance(node, ast.Assign) and not isinstance(node.value, plain)
        for node in ast.walk(forward)
    )


def start_cost(folder: Path) -> float:
    """CPU seconds to start Python and import what both sides import."""
    imports = "import torch, torch._dynamo, torch._inductor.compile_fx, torch._inductor.graph"
    spend([sys.executable, "-c", imports], folder, {}, 600)
    return min(spend([sys.executable, "-c", imports], folder, {}, 600).cpu for _ in range(2))


def main(arguments: Sequence[str]) -> int:
    """Run the cases that were chosen; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minifier")
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)} (left out: all)")
    parser.add_argument("--side", choices=("ours", "torch"), help="only one of the two")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each step")
    parser.add_argument("--json", type=Path, help="also write the figures here, a line a case")
    parser.add_argument("--report", type=Path, nargs="+", help="only print what was written there")
    options = parser.parse_args(arguments)
    if options.report:
        return judged(written(options.report))
    chosen = {n: c for n, c in CASES.items() if not options.cases or n in options.cases}
    results: dict[str, dict[str, Side]] = {}
    with tempfile.TemporaryDirectory(prefix="torchreel-minifier-") as name:
        start = start_cost(Path(name))
        print(f"one start with imports: {start:.1f} CPU seconds", flush=True)
        for number, (title, case) in enumerate(chosen.items()):
            results[title] = {}
            for side, run in (("ours", ours), ("torch", theirs)):
                if options.side in (None, side):
                    folder = Path(name) / f"{number}-{side}"
                    folder.mkdir()
                    results[title][side] = run(case, folder, start, options.limit)
                    print(title, side, asdict(results[title][side]), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    sides = {side: asdict(found) for side, found in results[title].items()}
                    file.write(json.dumps({"case": title, "start": start, **sides}) + "\n")
    return judged(results)


def written(files: Sequence[Path]) -> dict[str, dict[str, Side]]:
    """The figures in files of `--json`; of a case that occurs again, the last ones."""
    found: dict[str, dict[str, Side]] = {title: {} for title in CASES}
    for line in (line for file in files for line in file.read_text().splitlines()):
        row = json.loads(line)
        sides = {side: Side(**row[side]) for side in ("ours", "torch") if side in row}
        found[row["case"]].update(sides)
    return {title: sides for title, sides in found.items() if sides}


def judged(results: Mapping[str, Mapping[str, Side]]) -> int:
    """Print the report; the exit status."""
    report(results)
    return int(any(not fine(CASES[title], sides) for title, sides in results.items()))


def fine(case: Planted, sides: Mapping[str, Side]) -> bool:
    """Whether ours succeeded, and is as small as can be."""
    mine, other = sides.get("ours"), sides.get("torch")
    if mine is None:
        return True
    if not mine.good or mine.nodes is None:
        return False
    smallest = [n for n in (case.least, other.nodes if other and other.good else None) if n]
    return all(mine.nodes <= n for n in smallest)


def report(results: Mapping[str, Mapping[str, Side]]) -> None:
    """The table, and the medians of the ratios where both sides have figures."""
    table = Table(
        "case", "repro (ours, torch)", "call nodes", "least", "runs", "CPU s", "bare", "KiB"
    )
    for title, sides in results.items():
        both = [sides.get("ours"), sides.get("torch")]
        table.add_row(
            title,
            ", ".join(side.status[:24] if side else "-" for side in both),
            ", ".join(str(side.nodes) if side else "-" for side in both),
            str(CASES[title].least or ""),
            ", ".join(str(side.runs) if side else "-" for side in both),
            ", ".join(f"{side.cpu:.1f}" if side else "-" for side in both),
            ", ".join(f"{side.bare:.1f}" if side else "-" for side in both),
            ", ".join(f"{side.written >> 10}" if side else "-" for side in both),
        )
    console = Console(width=150)
    console.print(table)
    pairs = [(s["ours"], s["torch"]) for s in results.values() if len(s) == 2]
    for name, ratios in (
        ("CPU seconds", [b.cpu / a.cpu for a, b in pairs if a.cpu > 0 and b.cpu > 0]),
        ("bare CPU seconds", [b.bare / a.bare for a, b in pairs if a.bare > 0 and b.bare > 0]),
        ("oracle runs", [b.runs / a.runs for a, b in pairs if a.runs and b.runs]),
        (
            "oracle runs to the last call node",
            [b.runs / a.runs_to_nodes for a, b in pairs if a.runs_to_nodes and b.runs],
        ),
    ):
        if ratios:
            median = statistics.median(ratios)
            console.print(f"torch / ours, {name}: median {median:.1f} of {len(ratios)} cases")
    if short := sum(torch.status == "time limit" for _, torch in pairs):
        console.print(f"torch did not end within the limit in {short}: there the ratio is larger")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
