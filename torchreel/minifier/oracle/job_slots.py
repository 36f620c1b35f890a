"""A job slot: the parent's end of a connection to a warm process that runs one case at a time.

Lives here: making slots, lines out and lines in. Not here: which case goes to which slot
(`slot_pool`), the other end (`oracle.worker`).
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Self

from torchreel.minifier.oracle.protocol import CANCEL, Task, TaskResult


class SlotLost(OSError):
    """The process of a slot is gone, and with it the task that it was at."""


class JobSlot:
    """One connection; at most one task is under way on it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lines = end.makefile("rb")

    @classmethod
    def opened(cls, control: socket.socket) -> Self:
        """Return a slot with a new process at its other end, which a warm one forks.

        Raises `OSError` when the warm one is gone.
        """
        mine, other = socket.socketpair()
        with other:
            socket.send_fds(control, [b"s"], [other.fileno()])
        return cls(mine)

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, task: Task) -> None:
        """Begin with a task.  Raises `SlotLost`."""
        self._send(task.to_line())

    def receive(self, seconds: float) -> TaskResult:
        """Return the answer to the task.

        Raises `OSError` when there is none in time, `SlotLost` when nobody is there.
        """
        if not self._is_ready(seconds):
            raise OSError(f"no answer within {seconds:.0f} s")
        try:
            line = self._lines.readline()
        except OSError as error:
            raise SlotLost(str(error)) from error
        if not line.endswith(b"\n"):
            raise SlotLost("it is gone")
        return TaskResult.from_line(line)

    @property
    def has_answer(self) -> bool:
        """Return True if an answer, or the end of the connection, can be read without waiting."""
        return self._is_ready(0.0)

    def _is_ready(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], seconds)[0])

    def cancel(self) -> None:
        """Cancel the task: its answer comes at once, and says nothing.  Raises `SlotLost`."""
        self._send(CANCEL)

    def _send(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise SlotLost(str(error)) from error

    def close(self) -> None:
        """End the connection, and with it the process at the other end."""
        with contextlib.suppress(OSError):
            self._lines.close()
            self._socket.close()
