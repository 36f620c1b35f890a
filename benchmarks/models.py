"""Three transformers models, recorded and replayed from both entries: is every stage identical?

    python -m benchmarks.models [gpt2 bert llama] [static dynamic] [inference training]

Each is recorded by `torchreel record` with all caches off, and replayed in fresh processes, where
`transformers` cannot be imported.  Prints one row a compile and entry; exits with 1 when one of
them is not identical.
"""

import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchreel.recorder.launch import run_recorded
from torchreel.replay import Verdict, replay
from torchreel.store import queries
from torchreel.store.database import Store

PROGRAM = Path(__file__).with_name("model_program.py")
AXES = (("gpt2", "bert", "llama"), ("static", "dynamic"), ("inference", "training"))


def main(wanted: list[str]) -> int:
    """Run the chosen combinations (all by default); the exit status."""
    table = Table("model", "entry", "verdict", "compared", "seconds (record, replay)")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="torchreel-models-") as folder:
        _forbid_transformers(Path(folder))
        for combination in product(*([w for w in axis if w in wanted] or axis for axis in AXES)):
            bad += _one(Path(folder), combination, table)
    Console(width=160).print(table)
    return min(bad, 1)


def _forbid_transformers(folder: Path) -> None:
    """The children of the replay find this instead of the package."""
    blocked = folder / "blocked" / "transformers"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('transformers is not importable here')")


def _one(folder: Path, combination: tuple[str, ...], table: Table) -> int:
    path = folder / f"{'-'.join(combination)}.db"
    started = time.monotonic()
    # A compile that comes from a cache has no graphs to be compared.
    os.environ.update(TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    status = run_recorded([sys.executable, str(PROGRAM), *combination], path)
    recorded = time.monotonic() - started
    assert status == 0, f"{combination}: the program itself failed"
    os.environ["PYTHONPATH"] = str(folder / "blocked")
    gone = subprocess.run([sys.executable, "-c", "import transformers"], stderr=subprocess.DEVNULL)
    assert gone.returncode == 1, "transformers could be imported in a replay"
    try:
        return _replays(path, combination, recorded, table)
    finally:
        del os.environ["PYTHONPATH"]


def _replays(path: Path, combination: tuple[str, ...], recorded: float, table: Table) -> int:
    bad = 0
    with Store.open(path, write=True) as store:
        compiles = queries.compiles(store, queries.recordings(store)[0].id)
        for compile in (c for c in compiles if c.status != "restarted"):
            for entry in ("graph", "aot"):
                started = time.monotonic()
                verdict = replay(store, compile, entry)
                seconds = f"{recorded:.0f}, {time.monotonic() - started:.0f}"
                row = f"{' '.join(combination)} {compile.compile_id}"
                table.add_row(row, entry, verdict.verdict, _summary(verdict), seconds)
                print(row, entry, verdict.verdict, verdict.detail, flush=True)
                bad += verdict.verdict != "identical"
    return bad


def _summary(verdict: Verdict) -> str:
    graphs = [f"{r.stage} {r.partition}".strip() for r in verdict.compared if r.kind == "graph"]
    codes = [r.partition for r in verdict.compared if r.kind == "output code"]
    return f"graphs: {', '.join(graphs)}; output code: {', '.join(codes)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
