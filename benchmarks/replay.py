"""What a replay costs: CPU seconds against those of the compile that it replays.

    python -m benchmarks.replay [--pairs N] [--keep STORE]

Compiles an encoder layer with Inductor, without and with the recorder, and replays it from `graph`
and from `shapes`.  CPU seconds (user and system, children included, by getrusage) of a process less
those of one that only imports the same modules; a replay's are those of its child and of the
parent, which compares.

The replay is held to what it does again: from the graph on, and without the C++ compiler, which it
leaves out.  So Dynamo's part (a compile with the backend `eager`) and the compiler's (the program's
own children) are taken off the compile, both as they are without the recorder; a replay is itself
recorded, the compile that it is held to is not.  Alternated pairs, medians; exits with 1 above 1.1
times that, or below 20,000 changes of a ShapeEnv per second.  For a quiet machine.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torchreel.replay import replay
from torchreel.store import Store, queries
from torchreel.store.records import Compile

MOST, LEAST = 1.1, 20_000
IMPORTS = """
import torch, torch._dynamo, torch._inductor.compile_fx, torchreel.recorder.probes
"""
PROGRAM = """
import resource, sys
model = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
with torch.no_grad():
    torch.compile(model, dynamic=True, backend=sys.argv[1])(torch.randn(3, 10, 64))
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""


def main(arguments: list[str]) -> int:
    """Measure; the exit status."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    with tempfile.TemporaryDirectory(prefix="torchreel-benchmark-") as folder:
        path = Path(options.get("--keep", f"{folder}/run.db"))
        rows = [_pair(path) for _ in range(int(options.get("--pairs", 3)))]
        rate = _shapes(path)
    middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    print("medians:", _told(middle))
    share = statistics.median(row["replay"] / row["replayed part"] for row in rows)
    print(f"replay / the part that it replays: {share:.2f} (at most {MOST})")
    print(f"replay / whole recorded compile: {middle['replay'] / middle['recorded']:.2f}")
    print(f"shapes: {rate:,.0f} changes per CPU second (at least {LEAST:,})")
    return int(share > MOST or rate < LEAST)


def _pair(path: Path) -> dict[str, float]:
    idle, _ = _process(IMPORTS, path)
    dynamo, _ = _process(IMPORTS + PROGRAM, path, "eager")
    plain, compiler = _process(IMPORTS + PROGRAM, path, "inductor")
    recorded, _ = _process(IMPORTS + PROGRAM, path, "inductor", TORCHREEL=f"full:{path}")
    with Store.open(path, write=True) as store:
        compile = _latest(store)
        before = _used()
        verdict = replay(store, compile)
        again = _used() - before
    assert verdict.verdict == "identical", str(verdict)
    row = {
        "imports": idle, "Dynamo": dynamo - idle, "C++": compiler, "compile": plain - idle,
        "recorded": recorded - idle, "replayed part": plain - dynamo - compiler,
        "replay": again - idle,
    }  # fmt: skip
    print(_told(row), flush=True)
    return row


def _told(row: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in row.items()) + " CPU s"


def _latest(store: Store) -> Compile:
    programs = [row for row in queries.recordings(store) if row.kind == "program"]
    return queries.compiles(store, programs[-1].id)[-1]


def _process(source: str, path: Path, *arguments: str, **variables: str) -> tuple[float, float]:
    """CPU seconds of a process with what it starts, and what it says of the latter."""
    script = path.with_name("benchmark_program.py")
    script.write_text(source)
    settings = {
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp(dir=path.parent),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes, which import torch
    }  # fmt: skip
    before = _used()
    ended = subprocess.run(
        [sys.executable, str(script), *arguments], env={**os.environ, **settings, **variables},
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return _used() - before, float(ended.stdout or 0)


def _used() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _shapes(path: Path) -> float:
    """Events that change a ShapeEnv, by CPU second, the reading of the event log apart."""
    from torchreel.replay.shape_env.rebuild import is_change, rebuild_all

    with Store.open(path) as store:
        recording = queries.recording(store, _latest(store).recording_id)
        events = queries.events(store, recording)
    rebuild_all(events)
    changes, times = sum(is_change(event) for event in events), []
    for _ in range(5):
        began = time.process_time()
        rebuild_all(events)
        times.append(time.process_time() - began)
    return changes / statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
