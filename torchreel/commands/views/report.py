"""`torchreel report`: what a store holds, as a page for a browser."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

from torchreel.commands.rendering import failure, streams
from torchreel.commands.rendering.text import count
from torchreel.commands.rendering.unreadable import all_statuses, as_far_as_readable
from torchreel.commands.rendering.waiting import while_slow
from torchreel.errors import UsageError
from torchreel.report import ReportOptions, build, build_comparison, render, site_files
from torchreel.report.site import INDEX
from torchreel.store import Store, queries
from torchreel.store.addressing import Address


def report(store: Store, address: Address, output: Path, max_bytes: int) -> None:
    """Write the page about what an address covers."""
    next_of = partial(failure.next_command, store)
    with as_far_as_readable(store) as unreadable:
        queries.require(store, address)
        with while_slow(f"reading {address}"):
            document = build(store, address, ReportOptions(next_of, max_bytes))
            text = render(document.with_notes(unreadable))
        _write(output, text)
        for note in document.notes:
            streams.say(note, style="yellow")
        failures = count(len(document.failures), "distinct failure")
        rows = count(len(document.compiles), "compile")
        streams.result(f"wrote {output}: {rows}, {failures}, {len(text.encode()):,} bytes")


def write_site(store: Store, address: Address, folder: Path, *, force: bool) -> None:
    """Write the folder about what an address covers.

    Raises UsageError for a folder that has something in it (unless `force`), or can't be written.
    """
    _refuse_folder(folder, force=force)
    with as_far_as_readable(store) as unreadable:
        queries.require(store, address)
        files = size = 0
        with while_slow(f"writing {folder}"):
            for name, text in site_files(
                store, address, partial(failure.next_command, store), unreadable
            ):
                _write_file(folder, name, text)
                files, size = files + 1, size + len(text.encode())
        streams.result(f"wrote {folder / INDEX}: {count(files, 'file')}, {size:,} bytes")


def _refuse_folder(folder: Path, *, force: bool) -> None:
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder} is no directory: name another one.")
    try:
        if not force and os.path.isdir(folder) and os.listdir(folder):
            raise UsageError(f"{folder} is not empty: overwrite its files with --force.")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{folder} can't be read: {reason}. Name another folder.") from error


def _write_file(folder: Path, name: Path, text: str) -> None:
    """Write a file of the folder, and nothing that a link in it leads to."""
    file, new = folder / name, folder / f"{name}.new"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent != folder and file.parent.is_symlink():
            raise OSError("its folder is a link")
        new.unlink(missing_ok=True)
        with open(new, "x", encoding="utf-8") as stream:
            stream.write(text)
        new.replace(file)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{file} can't be written: {reason}. Name another folder.") from error


def compare_in_folder(
    left: tuple[Store, Address],
    right: tuple[Store, Address],
    folder: Path,
    max_bytes: int,
    *,
    force: bool,
) -> int:
    """Write the page about two addresses, and a folder about each; returns the exit status.

    That is 1 where they differ, and that of a refusal where a part of them can't be read.  Raises
    UsageError as `write_site` does.
    """
    _refuse_folder(folder, force=force)
    for store, address in (left, right):
        queries.require(store, address)
    statuses: list[int] = []
    for name, (store, address) in zip(_SIDES, (left, right), strict=True):
        with all_statuses(statuses):
            write_site(store, address, folder / name, force=force)
    pages = " and ".join(f"{name}/{INDEX}" for name in _SIDES)
    with all_statuses(statuses):
        note = f"All details of each: {pages}."
        statuses.append(compare(left, right, folder / INDEX, max_bytes, note))
    return max(statuses)


_SIDES = ("left", "right")
"""Folders within that of a comparison."""


def compare(
    left: tuple[Store, Address],
    right: tuple[Store, Address],
    output: Path,
    max_bytes: int,
    *notes: str,
) -> int:
    """Write the page about two addresses; returns 1 where they differ."""
    with as_far_as_readable(left[0]) as ours, as_far_as_readable(right[0]) as theirs:
        with while_slow(f"comparing {left[1]} and {right[1]}"):
            document = build_comparison(left, right, max_bytes)
            text = render(document.with_notes([*notes, *ours, *theirs]))
        _write(output, text)
        for note in document.notes:
            streams.say(note, style="yellow")
        pairs = f"{document.differing} of {count(len(document.pairs), 'pair')} of compiles differ"
        streams.result(f"wrote {output}: {pairs}, {len(text.encode()):,} bytes")
        streams.next_command("torchreel", "diff", *document.sides)
    return 1 if document.is_different else 0


def _write(output: Path, text: str) -> None:
    """Write a page, whole or not at all, or into the device or pipe that is there.

    Raises UsageError where that can't be done.
    """
    try:
        if output.exists() and not output.is_file():
            output.write_text(text, encoding="utf-8")
            return
        file = output.resolve()  # a link stays, and leads to the page
        with tempfile.TemporaryDirectory(prefix=".torchreel-", dir=file.parent) as folder:
            page = Path(folder) / "page.html"
            page.write_text(text, encoding="utf-8")
            page.replace(file)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{output} can't be written: {reason}. Name another file.") from error


def refuse_overwriting(output: Path, store: Address, *, force: bool) -> None:
    """Raise UsageError for a file that is there, and for a directory that is not.

    The store itself is never overwritten.
    """
    there = os.path.lexists(output)  # unlike Path.exists, False for a name that can't be one
    if (
        there
        and os.path.exists(output)
        and os.path.exists(store.store)
        and (output.samefile(store.store))
    ):
        raise UsageError(f"{output} is the store itself: name another file.")
    if not os.path.isdir(output.parent):
        raise UsageError(f"{output.parent} is no directory: make it first.")
    if os.path.isdir(output):
        raise UsageError(f"{output} is a directory: name a file.")
    if there and not force:
        raise UsageError(f"{output} exists: overwrite it with --force, or name another file.")
