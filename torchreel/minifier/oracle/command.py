"""Running a command of the user's on a script.

The command gets one more argument, the path of the script. Exit status 0 means interesting, 125
that it cannot judge, any other that the script is not interesting, as in C-Reduce and Shrink Ray.
Called by `command_oracle` and by the check of an export.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchreel.errors import UsageError
from torchreel.sandbox.processes import kill_group

INTERESTING, CANNOT_JUDGE = 0, 125
# What shells say of a command that can't be executed or found.
_BROKEN = (126, 127)
_TAIL = 2000


@dataclass(frozen=True)
class CommandResult:
    """The result of a command: its exit status (None: it took too long) and its last output."""

    status: int | None
    said: str
    seconds: float


def run_command(command: Sequence[str], script: Path, seconds: float) -> CommandResult:
    """Run a command on a script, in the working directory, for so many seconds at most.

    Raises UsageError for a command that can't be run at all.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                [*command, str(script)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{command[0]!r} can't be run: {error.strerror}.") from error
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(seconds)
        kill_group(child.pid)
        child.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
        said = output.read().decode("utf-8", "replace").strip()
    if status in _BROKEN:
        raise UsageError(f"{command[0]!r} can't be run (exit status {status}): {said}")
    return CommandResult(status, said, time.monotonic() - began)
