"""The files of an export: all of them are written, or none.

Lives here: their names, and how they get to where they belong. Not here: what is in them, which is
checked by `validation` first. Called by `export_case`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torchreel.errors import RefusedError

FORMATS = {"repro": "repro.py", "issue": "issue.md", "test": "test_repro.py"}


def write_files(directory: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write texts by their format, in the order given; returns the paths.

    They are complete on the disk before the first of them gets its name. Raises RefusedError where
    that can't be done.
    """
    paths = {directory / FORMATS[name]: text for name, text in texts.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".torchreel-", dir=directory) as folder:
            made = [_written(Path(folder) / path.name, text) for path, text in paths.items()]
            _refuse_folders(list(paths))
            for source, path in zip(made, paths, strict=True):
                source.replace(path)
    except OSError as error:
        place = error.filename or directory
        raise RefusedError(f"{place} can't be written: {error.strerror or error}.") from error
    return tuple(paths)


def refuse_unwritable(directory: Path) -> None:
    """Raise RefusedError where files can't be written, before any work is done for them."""
    there = directory.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise RefusedError(f"{directory} can't be written: {there} is no folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RefusedError(f"{directory} can't be written: nothing may be written in {there}.")


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def _refuse_folders(paths: list[Path]) -> None:
    """Raise IsADirectoryError for a folder in the place of a file, before one is written."""
    for path in paths:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder", str(path))
