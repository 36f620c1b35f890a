"""`torchreel prune`: what was deleted, and what had to stay."""

from __future__ import annotations

from torchreel.analysis.triage.keeping import PruneReport
from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count


def report(store: str, found: PruneReport, *, dry_run: bool, sized: bool) -> None:
    """Print the numbers of deleted and kept recordings, and the size that is left.

    `sized` says that a dry run knows it.
    """
    if dry_run:
        streams.result(f"{count(found.recordings, 'recording')} would be deleted")
    else:
        what = f"{count(found.recordings, 'recording')} and {count(found.blobs, 'blob')}"
        streams.result(f"{what} deleted")
    streams.say(
        f"{count(found.kept, 'recording')} of {count(found.groups, 'group')} stay: the first "
        "failure, the last and the smallest case of each."
    )
    size = f"{found.size / 2**20:.1f} MiB of rows"
    if not dry_run:
        streams.say(f"{size} are left.")
    else:
        streams.say(f"{size} would be left." if sized else f"{size} are there now.")
    if found.is_too_large:
        streams.say("That is more than --max-bytes, and no more may be deleted.", style="yellow")
    streams.next_command("torchreel", "triage", store)
