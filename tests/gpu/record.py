"""Record every program on a machine with a GPU, and replay and reduce there what was recorded.

`python -m tests.gpu.record DIRECTORY` writes a store for each program, and says in how many the
recorder changed what the program printed or its exit status.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu.programs import FAILURES, PROGRAMS

_TOOL = (sys.executable, "-m", "torchreel.cli")
_PROGRAM = (sys.executable, "-m", "tests.gpu.programs")
_SECONDS = 100
_ACCURACY = ("wrong_result",)
"""The failures that raise nothing."""


def run(directory: Path, name: str, step: str, *command: str) -> str:
    """Run a command with caches of its own; returns its exit status and its time.

    What it wrote is then in the files NAME.STEP.out, behind its exit status, and NAME.STEP.err.
    """
    out, err = (directory / f"{name}.{step}.{stream}" for stream in ("out", "err"))
    caches = directory / "cache" / name / step
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(caches), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    started = time.monotonic()
    with err.open("w") as errors:
        try:
            done = subprocess.run(
                command,
                env={**variables, **os.environ},
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=_SECONDS,
                check=False,
            )
            status, text = str(done.returncode), done.stdout
        except subprocess.TimeoutExpired as stopped:
            status, text = f"stopped after {_SECONDS} s", stopped.stdout or b""
    out.write_text(f"exit {status}\n{text.decode(errors='replace')}")
    return f"exit {status:3} {time.monotonic() - started:4.0f} s"


def plain(directory: Path, name: str) -> str:
    """Run a program without the recorder."""
    return run(directory, name, "plain", *_PROGRAM, name)


def record(directory: Path, name: str) -> str:
    """Run a program with the recorder, and compare what it printed with the run without."""
    store = str(directory / f"{name}.db")
    done = run(directory, name, "record", *_TOOL, "record", "-o", store, "--", *_PROGRAM, name)
    without, recorded = (directory / f"{name}.{step}.out" for step in ("plain", "record"))
    same = without.exists() and without.read_text() == recorded.read_text()
    said = (directory / f"{name}.record.err").read_text().splitlines()
    ours = [line for line in said if line.startswith("torchreel:")]
    return f"{done}  {'same' if same else 'CHANGED'}  {'; '.join(ours)}"


def replay(directory: Path, name: str) -> str:
    """Replay all compiles of a program's store here."""
    done = run(directory, name, "replay", *_TOOL, "replay", "--all", str(directory / f"{name}.db"))
    lines = (directory / f"{name}.replay.out").read_text().splitlines()
    return (
        f"{done}  {next((line for line in lines if line[:1].isdecimal() and '/' not in line), '')}"
    )


def minify(directory: Path, name: str) -> str:
    """Reduce the failure of a program here."""
    how = ("--accuracy",) if name in _ACCURACY else ()
    limits = ("--limit-time", str(_SECONDS // 2), "-o", str(directory / f"{name}-case"))
    store = str(directory / f"{name}.db")
    done = run(directory, name, "minify", *_TOOL, "minify", store, *how, *limits)
    lines = (directory / f"{name}.minify.out").read_text().splitlines()
    return f"{done}  {' | '.join(line for line in lines[-4:] if line.strip())}"


_STEPS = {"plain": plain, "record": record, "replay": replay, "minify": minify}


def main() -> None:
    """Take every step with every program, several programs at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--steps", nargs="+", choices=_STEPS, default=list(_STEPS))
    parser.add_argument("--names", nargs="+", default=[*FAILURES, *PROGRAMS])
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for step in options.steps:
            print(f"-- {step}", flush=True)
            names = [name for name in options.names if step != "minify" or name in FAILURES]
            done = [(name, pool.submit(_STEPS[step], options.directory, name)) for name in names]
            for name, result in done:
                print(f"{name:18} {result.result()}", flush=True)


if __name__ == "__main__":
    main()
