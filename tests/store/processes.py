"""Other processes for the tests: a program in a child that says 'ready' and then waits or dies."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A line on stdin lets the child go on.
PRELUDE = """
import os, signal, sqlite3, sys
from torchreel.store import Store
from tests.store.rows import *

def ready():
    print("ready", flush=True)
    sys.stdin.readline()

path = sys.argv[1]
"""


@contextmanager
def child(program: str, *arguments: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """Run `program` until it calls `ready()`; it is killed at the end, if it still runs."""
    command = [sys.executable, "-c", PRELUDE + program, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def run_child(program: str, *arguments: str | Path) -> int:
    """Run `program` to its end and return its exit status (negative: the signal)."""
    command = [sys.executable, "-c", PRELUDE + program, *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


# Root may read and write anything: the child becomes nobody once it has imported what it needs.
DROP_RIGHTS = """
import os, sys
from torchreel.store import Store, queries
from torchreel.store import post_mortem
from torchreel.errors import StoreError
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
"""


def run_without_rights(program: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run `program` as a user who owns nothing."""
    command = [sys.executable, "-c", DROP_RIGHTS + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
