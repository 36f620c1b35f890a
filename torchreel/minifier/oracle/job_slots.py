"""A job slot: the parent's end of a connection to a warm process that runs one case at a time.

Lives here: lines out and lines in. Not here: which case goes to which slot (`worker_pool`), the
other end (`oracle.worker`).
"""

from __future__ import annotations

import contextlib
import select
import socket

from torchreel.minifier.oracle.protocol import CANCEL, Task, TaskResult


class JobSlot:
    """One connection; at most one task is under way on it."""

    def __init__(self) -> None:
        self._socket, self.other = socket.socketpair()
        self._lines = self._socket.makefile("rb")

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, task: Task) -> None:
        """Begin with a task.  Raises `OSError` when the other end is gone."""
        self._socket.sendall(task.to_line())

    def receive(self, seconds: float) -> TaskResult:
        """Return the answer to the task.

        Raises `OSError` when there is none in time, or nobody.
        """
        if not self._is_ready(seconds):
            raise OSError(f"no answer within {seconds:.0f} s")
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise OSError("it is gone")
        return TaskResult.from_line(line)

    @property
    def has_answer(self) -> bool:
        """Return True if an answer, or the end of the connection, can be read without waiting."""
        return self._is_ready(0.0)

    def _is_ready(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], seconds)[0])

    def cancel(self) -> None:
        """Cancel the task: its answer comes at once, and says nothing."""
        self._socket.sendall(CANCEL)

    def hand_over(self) -> None:
        """Close the other end here: it belongs to another process now."""
        self.other.close()

    def close(self) -> None:
        """End the connection, and with it the process at the other end."""
        with contextlib.suppress(OSError):
            self._lines.close()
            self._socket.close()
            self.other.close()
