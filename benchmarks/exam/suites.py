"""Test files of PyTorch, run with and without the recorder: outcomes, counters, what the store has.

    python -m benchmarks.exam.suites FILE [FILE ...] [-k EXPRESSION] [--limit SECONDS]
                                     [--replay] [--trust] [--keep FOLDER]

The files are named by the user and not part of this repository (the repository intel/torch-xpu-ops
has ports of whole files on its branches release/2.13 and later).  Each file runs twice in fresh
processes with pytest, once under `torchreel record`.  Printed for each: tests whose outcome
differs, compiles that torch's own metrics have and the store lacks, addresses that name more than
one compile, events lost; with `--replay` the verdict on each compile as `benchmarks.exam` has it.
With `--trust` all frames are kept, and replayed where there is nothing else to replay.
Exits with 1 when an outcome differs, a compile is missing, or an address is ambiguous.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.exam.__main__ import TOOL, canonical_reason
from torchreel.replay.many import replay_all
from torchreel.store import Store, queries

_PYTEST = ("-m", "pytest", "-q", "-p", "no:logging", "-p", "no:cacheprovider", "-p", "no:randomly")
_METRICS = '"compilation_metrics"'


@dataclass(frozen=True)
class Ran:
    """One run of a test file."""

    outcomes: Mapping[str, str]
    """By test: 'passed', 'skipped', 'failed' or 'error'."""
    metrics: int
    """Compiles for which torch wrote its own metrics."""


def main(arguments: Sequence[str]) -> int:
    """Run each file; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-k", dest="expression", default="")
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args(arguments)
    return max([_examine(file.resolve(), chosen) for file in chosen.files])


def _examine(file: Path, chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="torchreel-exam-") as name:
        folder = Path(name)
        store = (chosen.keep.resolve() if chosen.keep else folder) / f"{file.stem}.db"
        store.parent.mkdir(parents=True, exist_ok=True)
        plain = run(file, folder / "plain", chosen.expression, chosen.limit)
        recorded = run(file, folder / "recorded", chosen.expression, chosen.limit, store,
                       "all" if chosen.trust else "failing")  # fmt: skip
        return _report(file, plain, recorded, store, replay=chosen.replay, trust=chosen.trust)


def run(
    file: Path,
    folder: Path,
    expression: str,
    limit: float,
    store: Path | None = None,
    frames: str = "failing",
) -> Ran:
    """Run the tests of a file in a process of its own, recorded into `store` if there is one."""
    results, trace = folder / "results.xml", folder / "trace"
    trace.mkdir(parents=True)
    command = [sys.executable, *_PYTEST, str(file), f"--junitxml={results}", "-k", expression]
    if store is not None:
        command = [*TOOL, "record", "-o", str(store), "--frames", frames, "--", *command]
    environment = {
        **os.environ,
        "TORCH_TRACE": str(trace),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    subprocess.run(
        command, cwd=file.parent, env=environment, timeout=limit, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return Ran(_outcomes(results), sum(_count(log) for log in trace.glob("*.log")))


def _outcomes(results: Path) -> dict[str, str]:
    if not results.exists():
        return {}
    found = {}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"skipped", "failure", "error"}
        name = f"{case.get('classname')}::{case.get('name')}"
        found[name] = {"failure": "failed"}.get(*kinds, *kinds) if kinds else "passed"
    return found


def _count(log: Path) -> int:
    with log.open(errors="replace") as lines:
        return sum(_METRICS in line for line in lines)


def _report(
    file: Path, plain: Ran, recorded: Ran, store: Path, *, replay: bool, trust: bool = False
) -> int:
    tally = ", ".join(f"{n} {kind}" for kind, n in Counter(plain.outcomes.values()).most_common())
    print(f"{file.name}: {tally or 'no test ran'}", flush=True)
    changed = differences(plain.outcomes, recorded.outcomes)
    for line in changed:
        print(f"    {line}")
    if not store.exists():
        print("    there is no store")
        return 1
    with Store.open(store, write=True) as opened:
        compiles = [c for r in queries.recordings(opened) for c in queries.compiles(opened, r.id)]
        ambiguous = [p for p, n in Counter(c.place for c in compiles).items() if n > 1]
        lost = Counter(
            f"{item.place}: {canonical_reason(item.message)}"
            for row in queries.recordings(opened)
            for item in queries.lost(opened, row.id)
        )
        ended = sum(compile.status != "restarted" for compile in compiles)
        print(
            f"    {len(changed)} outcomes differ; {recorded.metrics} compiles by torch's metrics "
            f"({plain.metrics} unrecorded), {ended} in the store; {len(ambiguous)} ambiguous "
            f"addresses; {lost.total()} lost"
        )
        for reason, count in lost.most_common(20):
            print(f"    lost {count} x {reason}")
        if replay:
            _replay(opened, trust=trust)
    missing = recorded.metrics > ended or recorded.metrics != plain.metrics
    return int(bool(changed) or missing or bool(ambiguous) or not plain.outcomes)


def differences(plain: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    """Tests that ended in another way under the recorder."""
    return [
        f"{name}: {plain.get(name, 'not run')}, recorded {recorded.get(name, 'not run')}"
        for name in sorted({*plain, *recorded})
        if plain.get(name) != recorded.get(name)
    ]


def _replay(store: Store, *, trust: bool) -> None:
    from functools import partial

    from torchreel.replay import replay

    reasons: Counter[str] = Counter()
    for row in replay_all(store, None, ("graph",), partial(replay, store, trust=trust)):
        detail = "" if row.verdict.verdict == "identical" else canonical_reason(row.verdict.detail)
        reasons[f"{row.verdict.verdict} {detail}".strip()] += 1
    for reason, count in reasons.most_common(60):
        print(f"    {count:5} {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
