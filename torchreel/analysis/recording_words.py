"""A recording in words: how it ended, when it began, what ran in it.

Called by the views of the verbs, and by the report.
"""

from __future__ import annotations

from datetime import datetime

from torchreel.escaping.shell import command
from torchreel.store.records import Recording


def ended(recording: Recording) -> str:
    """Return the end of a recording: 'done, status 1', 'died by SIGSEGV'."""
    if recording.exit_signal:
        return f"{recording.status} by {recording.exit_signal}"
    if recording.exit_status is not None:
        return f"{recording.status}, status {recording.exit_status}"
    return recording.status


def when(time_ns: int) -> str:
    """Return a point in time, in local time; the number itself where it is none."""
    try:
        return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(time_ns)


def program(recording: Recording) -> str:
    """Return the recorded command line; for a replay, the replayed compile."""
    if isinstance(recording.argv, list):
        return command(*recording.argv)
    return str(recording.argv)
