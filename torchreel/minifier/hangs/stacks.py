"""The functions on the Python stack of a process, read from what `faulthandler` writes.

Lives here: the signal that has a child write its stack, and reading it. Not here: when that is done
(`oracle.worker.watch`), what follows from it (`oracle`). `faulthandler` writes from C, so a process
that hangs in a kernel answers as well as one that loops in Python.
"""

from __future__ import annotations

import faulthandler
import re
import signal
from collections.abc import Iterable
from typing import IO

WRITE_STACK = signal.SIGUSR1
"""The signal that a child answers with its stack."""

_FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.MULTILINE)
_FIRST = re.compile(r"^(?:Current thread|Thread|Stack)\b", re.MULTILINE)


def answer_with_stack(file: IO[bytes]) -> None:
    """Write the stack of this process to the file whenever `WRITE_STACK` comes."""
    faulthandler.register(WRITE_STACK, file=file, all_threads=False)


def functions_of(text: str) -> frozenset[str]:
    """Return the functions on the last stack of a text, each as `file:function`."""
    starts = [found.start() for found in _FIRST.finditer(text)]
    last = text[starts[-1] :] if starts else ""
    return frozenset(f"{file}:{name}" for file, name in _FRAME.findall(last))


def shared(stacks: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the functions that are on every one of the stacks: what does not end is in them."""
    found = [stack for stack in stacks if stack]
    return frozenset.intersection(*found) if found else frozenset()
