"""Lists the files that a confined process may read: all but those in which users keep secrets.

What it reads can leave it in one way: in what it reports, which the user may pass on. So homes are
closed but for the Python environments in them, and so are devices, where a terminal's input is.
Called by `filesystem`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_PRIVATE = ("/home", "/root", "/dev", "/run/secrets", "/run/user", "/run/credentials")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@cache
def readable() -> tuple[Path, ...]:
    """Return files and folders that may be read; so may everything inside of the folders."""
    private = {Path(name).resolve() for name in _PRIVATE} | {_home()}
    inside = [path for path in _environment() if not _holds_any(path, private)]
    devices = filter(Path.exists, map(Path, _DEVICES))
    return tuple(dict.fromkeys([*_but(Path("/"), private), *inside, *devices]))


def _home() -> Path:
    try:
        return Path.home().resolve()
    except RuntimeError:  # no variable, and no entry for the user
        return Path("/root")


def _environment() -> Iterator[Path]:
    """Yield the folders of Python and its packages, this one included."""
    names = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    names.append(str(Path(__file__).parents[2]))
    for path in dict.fromkeys(Path(name).resolve() for name in names if name):
        if path.exists():
            yield path


def _but(folder: Path, private: Iterable[Path]) -> Iterator[Path]:
    """Yield the content of a folder without private paths, as few paths as cover it.

    A link needs no permission of its own: its target is in the list as well, or private.
    """
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:  # a folder of homes that nobody may list
        return
    for entry in entries:
        if entry in private or entry.is_symlink():
            continue
        if entry.is_dir() and _holds_any(entry, private):
            yield from _but(entry, private)
        else:
            yield entry


def _holds_any(path: Path, private: Iterable[Path]) -> bool:
    """Return True if a private folder is that path, or lies in it."""
    return any(path == one or path in one.parents for one in private)
