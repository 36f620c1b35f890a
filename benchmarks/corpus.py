"""Does every recorded compile of many real programs replay to the same?  Entry by entry.

    python -m benchmarks.corpus [PROGRAM ...] [--backend NAME] [--entries frame,graph,aot,shapes]
                                [--every N] [--offset M] [--keep STORE]

Records the programs of `corpus_programs` in one process, with all frames kept, and replays each of
their compiles: all frames as one sequence in one process, the other entries each in a process of
its own, as `replay --all` does.  Prints each verdict that is not *identical*,
with its reason, and a table of verdicts by entry; exits with 1 below the targets, or when something
is called identical that compared nothing.  `--every N` takes each Nth program, from the Mth on
(`--offset`, 0 by default): N runs of a share each cover them all.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from torchreel.replay.many import Row
from torchreel.replay.processes.fork_server import warm
from torchreel.replay.sequence import replay_sequence
from torchreel.store import Store, queries
from torchreel.store.records import Compile

PROGRAM = Path(__file__).with_name("corpus_programs.py")
TARGETS = {"frame": 0.97, "graph": 1.0, "aot": 1.0, "shapes": 1.0}
"""The share of identical verdicts; of frames, the rest has to be refused."""
_TIMEOUT = 7200.0


@dataclass(frozen=True)
class Chosen:
    """What to run."""

    names: tuple[str, ...]
    backend: str = "aot_eager"
    entries: tuple[str, ...] = ("frame", "graph", "aot", "shapes")
    keep: str = ""


def main(arguments: list[str]) -> int:
    """Run the chosen programs (all by default); the exit status."""
    chosen = _chosen(arguments)
    with tempfile.TemporaryDirectory(prefix="torchreel-corpus-") as folder:
        path = Path(chosen.keep or f"{folder}/corpus.db")
        _record(path, chosen)
        with Store.open(path, write=True) as store:
            rows = list(_rows(store, chosen))
    return _report(rows)


def _chosen(arguments: list[str]) -> Chosen:
    names = [word for word in arguments if not word.startswith("--")]
    options = {}
    while any(word.startswith("--") for word in arguments):
        place = next(n for n, word in enumerate(arguments) if word.startswith("--"))
        options[arguments[place]] = arguments[place + 1]
        names.remove(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    every = names or import_module("benchmarks.corpus_programs").PROGRAMS
    return Chosen(
        tuple(every)[int(options.get("--offset", 0)) :: int(options.get("--every", 1))],
        options.get("--backend", Chosen.backend),
        tuple(options.get("--entries", ",".join(Chosen.entries)).split(",")),
        options.get("--keep", ""),
    )


def _record(path: Path, chosen: Chosen) -> None:
    environment = {
        **os.environ,
        "TORCHREEL": f"full:{path}",
        "TORCHREEL_FRAMES": "all",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "PYTHONPATH": os.pathsep.join([str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    started = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.corpus_programs", chosen.backend, *chosen.names]
    subprocess.run(command, env=environment, check=True)
    print(
        f"recorded {len(chosen.names)} programs in {time.monotonic() - started:.0f} s", flush=True
    )


def _rows(store: Store, chosen: Chosen) -> Iterator[Row]:
    program = queries.recordings(store)[0]
    if "frame" in chosen.entries:
        for row in replay_sequence(store, program, trust=True, timeout=_TIMEOUT):
            yield _told(row)
    others = [entry for entry in chosen.entries if entry != "frame"]
    with warm():
        for compile in queries.compiles(store, program.id):
            for entry in others:
                if applies(store, compile, entry):
                    yield _told(Row(compile, _verdict(store, compile, entry)))


def _verdict(store: Store, compile: Compile, entry: str) -> Any:
    from torchreel.replay import replay
    from torchreel.replay.many import verdict_of

    return verdict_of(lambda row, wanted: replay(store, row, wanted), compile, entry)


def applies(store: Store, compile: Compile, entry: str) -> bool:
    """Whether there is something of that entry: what a restart gave up never left Dynamo."""
    if compile.status == "restarted":
        return False
    kinds = {checkpoint.entry for checkpoint in queries.checkpoints(store, compile)}
    return entry in kinds or (entry == "shapes" and bool(kinds))


def _told(row: Row) -> Row:
    verdict = row.verdict
    if verdict.verdict != "identical":
        where = f"{row.compile.place} {row.compile.frame_name} from {verdict.entry}"
        print(f"{where}: {verdict.verdict}: {verdict.detail}", flush=True)
        for line in verdict.difference.splitlines()[:12]:
            print(f"    {line:.160}", flush=True)
    return row


def _report(rows: list[Row]) -> int:
    table = Table("entry", "compiles", "identical", "diverged", "refused", "share", "compared")
    missed = 0
    for entry in dict.fromkeys(row.verdict.entry for row in rows):
        mine = [row for row in rows if row.verdict.entry == entry]
        tally = Counter(row.verdict.verdict for row in mine)
        share = tally["identical"] / len(mine)
        missed += share < TARGETS[entry] or (entry == "frame" and tally["diverged"] > 0)
        compared = sum(row.events[1] for row in mine)
        counts = (tally[kind] for kind in ("identical", "diverged", "refused"))
        table.add_row(entry, str(len(mine)), *map(str, counts), f"{share:.1%}", str(compared))
    Console(width=120).print(table)
    _print_reasons(rows)
    empty = [r for r in rows if r.verdict.verdict == "identical" and not r.events[1]]
    return min(missed + len(empty), 1)


def _print_reasons(rows: list[Row]) -> None:
    reasons: Mapping[str, int] = Counter(
        f"{row.verdict.entry} {row.verdict.verdict}: {row.verdict.detail.split(':')[-1]:.120}"
        for row in rows
        if row.verdict.verdict != "identical"
    )
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{count:5} {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
