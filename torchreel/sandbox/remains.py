"""Reads what a confined process left in its folder, without trusting what kind of file it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST = 256 << 20


def read_file(path: str | Path, most: int = _MOST) -> bytes | None:
    """Return the content of a file, up to so many bytes; None where there is no regular file.

    A link is not followed, and nobody waits for the other end of a pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most)


def is_file(path: str | Path) -> bool:
    """Return True if there is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
