"""A child that follows its parent ends with it, however the parent ends."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from torchreel.sandbox.processes import available_memory, resident

ROOT = Path(__file__).parents[2]
CHILD = "from torchreel.sandbox.processes import follow_parent; follow_parent(); {}"
PARENT = """
import os, subprocess, sys
from torchreel.sandbox.processes import named_parent
child = subprocess.Popen([sys.executable, "-c", {child!r}], env=named_parent(os.environ))
print(child.pid, flush=True)
{then}
"""
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


def ended(pid: int, seconds: float = 30.0) -> bool:
    """Whether a process, which need not be a child, has ended within this time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    return bool(ready)


def parent(child: str, then: str) -> subprocess.Popen[str]:
    text = PARENT.format(child=CHILD.format(child), then=then)
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_parent_that_is_killed_takes_its_child_along() -> None:
    with parent(WAITS, "child.wait()") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
        assert ended(pid)


def test_a_parent_that_ended_before_the_kernel_was_told() -> None:
    """The child starts with an import that is slower than its parent's end."""
    with parent(WAITS, "os.kill(os.getpid(), 9)") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert ended(pid)
        assert process.stdout.read() == ""


def test_the_memory_of_a_process() -> None:
    assert 0 < resident(os.getpid()) < available_memory()
