"""Programs for the tests of the recorder, run in a process of their own under `run_recorded`."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from torchreel.recorder.launch import run_recorded

# Small kernels, and no header precompilation: that alone takes tens of seconds in a new cache.
os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

PRELUDE = "import os, sys, torch\nfrom torchreel.recorder import guard\n"


def command(program: str) -> list[str]:
    """How to run the text of a program."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]


def run(program: str, store: Path, **options: float | None) -> int:
    """Run it under the recorder, into `store`; its exit status."""
    return run_recorded(command(program), store, **options)  # type: ignore[arg-type]


def output(program: str, **variables: str) -> tuple[int, str, str]:
    """Run it with these variables: exit status, stdout, stderr."""
    done = subprocess.run(
        command(program), env={**os.environ, **variables}, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr
