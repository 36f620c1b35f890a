"""Room on the interpreter's stack: a compile runs in one chunk of it.

CPython keeps the frames of a thread in chunks of 16 KiB, and gives a chunk back to the system as
soon as the call that needed it returns (`_PyThreadState_PopFrame`, Python/pystate.c).  A loop that
calls across the border of two chunks pays for mmap, page faults and munmap at each turn: 5 to 15 %
of a compile by Dynamo, by where its borders happen to lie.  The recorder's frames move them all:
GPT-2 of twelve layers took 12 % longer for that alone.  (Measured with 3.11.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchreel.recorder.guard import fail_open

_SLOTS = 17_000
"""Slots of 8 bytes that the frame claims (and never touches): just above 128 KiB, so that CPython,
which doubles, makes a chunk of 256 KiB, and half of it is left for the calls: GPT-2 needs less than
a quarter.  An exception that the program keeps keeps the frame too, as address space."""


def give_room(function: Callable[..., Any]) -> None:
    """Have whatever `function` calls find its frames in one chunk of the interpreter's stack."""
    with fail_open("room", quiet=True):
        function.__code__ = function.__code__.replace(co_stacksize=_SLOTS)
