"""`torchreel export --format perfetto`: the file, and what is in it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchreel.analysis.timeline import timeline
from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.commands.rendering.unreadable import as_far_as_readable
from torchreel.errors import RefusedError, UsageError
from torchreel.store import Store
from torchreel.store.addressing import Address

NAME = "timeline.json"


def write_timeline(store: Store, address: Address, directory: Path, *, force: bool) -> None:
    """Write the timeline into a directory.

    Raises UsageError where there is one already (unless `force`), RefusedError where it can't be.
    """
    file = directory / NAME
    with as_far_as_readable(store):
        found = timeline(store, address)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with file.open("wb" if force else "xb") as stream:
                stream.write(msgspec.json.encode(found.to_json()))
        except FileExistsError as error:
            raise UsageError(
                f"{file} exists already: use --force to overwrite it, or -o to write elsewhere."
            ) from error
        except OSError as error:
            raise RefusedError(f"{file} can't be written: {error.strerror or error}.") from error
        streams.result(f"wrote {file}: {count(found.slices, 'slice')}")
    streams.say("open it in ui.perfetto.dev, which sends it nowhere, or in chrome://tracing")
    page = ("-o", directory / "report.html", *(["--force"] if force else []))
    streams.next_command("torchreel", "report", address, *page)
