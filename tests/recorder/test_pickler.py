"""What is pickled for a bundle must neither end the program nor wait in it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torchreel.recorder.frames.notes import Notes
from torchreel.recorder.frames.pickler import pickled
from torchreel.recorder.frames.secrets import texts

ROOT = Path(__file__).parents[2]
DEEP = """
import sys
from torchreel.recorder.frames import pickler
from torchreel.recorder.frames.notes import Notes
pickler.LONGEST = 1000.0
sys.setrecursionlimit(1_000_000)
class Node:
    def __init__(self, next): self.next = next
node = None
for _ in range(40_000):
    node = Node(node)
print(pickler.pickled([node], lambda value: None, Notes())[1], sys.getrecursionlimit())
while node is not None:  # taken apart here, as Python goes down as deep to free it
    node = node.next
"""


class Locked:
    """Copies its members under its lock, as many a model of a server does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 2

    def __getstate__(self) -> dict[str, object]:
        with self.lock:
            return {"size": self.size}


@pytest.mark.slow
def test_a_raised_recursion_limit_does_not_end_the_process() -> None:
    command = [sys.executable, "-c", DEEP]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "PicklingError 1000000\n"), done.stderr


def test_nothing_waits_for_a_lock_that_the_program_has() -> None:
    model = Locked()
    with model.lock:
        data, why = pickled([model], lambda value: None, Notes())
    assert (why, data is None) == ("", False)
    data, why = pickled([model], lambda value: None, Notes())
    assert (why, data is None) == ("", False)


def test_a_large_value_under_a_telling_name_is_not_copied() -> None:
    """Its first items alone are read, and no text of a data file is decoded."""

    assert list(texts(b"x" * 100_000_000)) == []
    assert list(texts(b"a-secret-of-someone")) == ["a-secret-of-someone"]
    assert len(list(texts(["a-secret-of-someone"] * 1_000))) < 1_000
