"""What `torchreel releases` says of public bugs, against the bugs themselves.

    python -m benchmarks.releases [NAME ...] [--runs N] [--only RELEASE,...]

Each program, written for this benchmark after a public issue, is run as it is under each release:
that is the truth, whatever anybody wrote. Then it is recorded once, and `releases` judges the
recorded failure under the same releases, from the store alone. A release is judged wrongly if it
says 'the same failure' where the program runs, or 'passes' where the program fails. Environments
are made where they are missing. A table, and the wrong ones; resumable: results lie in a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.compat.environments import python_of
from torchreel.releases import environments
from torchreel.releases.environments import VERSIONS, wanted_versions

PROGRAMS = Path(__file__).parent / "programs"
EAGER = "eager: no error"
_SECONDS = 600.0


@dataclass(frozen=True)
class Bug:
    """A program, the issue that it was written after, and what is said there of releases."""

    issue: str
    said: str = ""
    recorded: str = "2.13"
    """The release that records it."""


BUGS = {
    "scatter_on_empty": Bug("pytorch#188213", "fixed in 2.14"),
    "cummin_of_empty": Bug("pytorch#188224", "in 2.13, closed"),
    "pool_of_size_zero": Bug("pytorch#188218", "in 2.13, open"),
    "exponential_of_convolution": Bug("pytorch#188222", "in 2.13, open"),
    "half_sum_as_truth": Bug("pytorch#197106", "in 2.13"),
    "loop_over_captured_input": Bug("pytorch#191582", "in 2.13"),
    "zero_tensor": Bug("pytorch#197067", "in 2.13"),
    "flex_attention_with_lse": Bug("transformers#40345", "in 2.9 and before, not implemented"),
    "lift": Bug("pytorch#171375", "in 2.8", recorded="2.12"),
    "checkpointed_blocks": Bug("pytorch#193194", "in 2.13, fixed by #193254"),
}


def main(words: Sequence[str]) -> int:
    """Run the bugs that are named, or all; returns 1 if a release was judged wrongly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.releases")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--without-truth", action="store_true", help="judge, and compare later")
    parser.add_argument("--results", type=Path, default=Path("releases-results"))
    chosen = parser.parse_args(words)
    only = wanted_versions(chosen.only.split(","), None) if chosen.only else (*VERSIONS.values(),)
    chosen.results.mkdir(exist_ok=True)
    wrong = 0
    for name in chosen.names or BUGS:
        path = chosen.results / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(_judged(name, BUGS[name], only, chosen.runs), indent=1))
        result = json.loads(path.read_text())
        if "truth" not in result and not chosen.without_truth:
            result["truth"] = {torch: _truth(torch, PROGRAMS / f"{name}.py") for torch in only}
            path.write_text(json.dumps(result, indent=1))
        wrong += _print(name, result)
    print(f"{wrong} judged wrongly")
    return 1 if wrong else 0


def _judged(name: str, bug: Bug, only: Sequence[str], runs: int) -> dict[str, object]:
    program = PROGRAMS / f"{name}.py"
    with tempfile.TemporaryDirectory(prefix="torchreel-releases-") as folder:
        store = Path(folder) / "run.db"
        recorder = _recorder(bug.recorded)
        _run([recorder, "-m", "torchreel.cli", "record", "-o", store, "--", recorder, program])
        options = [word for torch in only for word in ("--release", torch)]
        judged = _run(
            [sys.executable, "-m", "torchreel.cli", "releases", store, *options, "--runs", runs,
             "--yes", "--trust", "--json"]
        )  # fmt: skip
        print(judged.stderr, file=sys.stderr)
        told = json.loads(judged.stdout) if judged.stdout else {"error": judged.stderr[-500:]}
    return {"issue": bug.issue, "said": bug.said, "told": told, "runs": runs}


def _recorder(release: str) -> str:
    """A Python with that torch and with torchreel: this one, if it has the release."""
    if version("torch").startswith(f"{release}."):
        return sys.executable
    return str(python_of(release))


def _truth(torch: str, program: Path) -> str:
    """What the program itself does under a release, without torchreel."""
    here = version("torch").partition("+")[0] == torch
    python = sys.executable if here else str(environments.make(torch, print))
    done = _run([python, program], TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    if EAGER not in done.stdout:
        return "eager fails"
    return "passes" if done.returncode == 0 else "fails"


def _run(words: Sequence[object], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={**os.environ, **variables}, timeout=3 * _SECONDS,
    )  # fmt: skip


def _print(name: str, result: dict[str, object]) -> int:
    """Print a bug's rows; returns how many releases were judged wrongly."""
    told, truth = result["told"], result.get("truth", {})
    assert isinstance(told, dict)
    assert isinstance(truth, dict)
    states = {row["torch"]: row["state"] for row in told.get("releases", [])}
    cells = []
    wrong = 0
    for torch, state in states.items():
        real = truth.get(torch, "unknown")
        bad = (state, real) in (("same", "passes"), ("passes", "fails"), ("same", "eager fails"))
        wrong += bad
        cells.append(f"{torch} {state}/{real}{' WRONG' if bad else ''}")
    print(f"{name} ({result['issue']}; {result['said']})\n  {'; '.join(cells)}")
    print(*(f"  {line}" for line in told.get("conclusions", [told.get("error")])), sep="\n")
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
