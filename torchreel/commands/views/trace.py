"""`torchreel import` and `torchreel export --format torch-trace`: what was read or written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.escaping.characters import visible
from torchreel.recorder.trace_import import Imported
from torchreel.store.trace.export import ExportedTrace


def report_import(found: Sequence[Imported], target: str) -> None:
    """Print the recording made from each log file, and its losses."""
    for item in found:
        streams.result(
            f"{target}#{item.recording}: {count(item.events, 'event')} and "
            f"{count(item.compiles, 'compile')} from {item.file}"
        )
        if item.lost:
            streams.say(f"lost {item.lost} x records of {item.file}", style="yellow")
    streams.next_command("torchreel", "ls", target)


def report_export(found: Sequence[ExportedTrace], directory: Path) -> None:
    """Print the files that were written, and their missing payloads."""
    for item in found:
        streams.result(f"wrote {item.file} ({count(item.records, 'record')})")
        if item.missing:
            streams.say(f"lost {item.missing} x payloads of {item.file.name}", style="yellow")
    streams.next_command("tlparse", *_wanted_by_tlparse(found, directory))


def _wanted_by_tlparse(found: Sequence[ExportedTrace], directory: Path) -> list[str]:
    """Return the arguments for tlparse: one file, or the directory and an option for its files."""
    if len(found) == 1:
        return [visible(found[0].file)]
    ranked = all("_rank_" in item.file.name for item in found)
    return ["--all-ranks-html" if ranked else "--latest", visible(directory)]
