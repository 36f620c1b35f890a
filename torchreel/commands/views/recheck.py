"""Prints the answer of `torchreel recheck`: the groups, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis.triage.summaries import GroupSummary, Triage
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count, shortened
from torchreel.releases.results import Fate

_WORDS: Mapping[Fate, str] = {
    "fixed": "fixed", "there": "still there", "other": "another failure",
    "unjudged": "can't be judged",
}  # fmt: skip
_STYLES: Mapping[Fate, str] = {"fixed": "green", "there": "red", "other": "yellow", "unjudged": ""}


@dataclass(frozen=True)
class Recheck:
    """A group, and its fate under the new torch."""

    group: GroupSummary
    state: Fate
    detail: str


def begin(group: GroupSummary) -> None:
    """Print the id and failure of the group that is run."""
    streams.say(f"{group.id}: {group.what} in {group.stage}, {group.smallest}")


def report(torch: str, found: Triage, rows: Sequence[Recheck], *, json: bool) -> None:
    """Print the fate of each group."""
    if json:
        groups = [{**row.group.to_json(), "state": row.state, "detail": row.detail} for row in rows]
        unreadable = list(found.unreadable)
        listing.write_json({"torch": torch, "groups": groups, "unreadable": unreadable})
        return
    fixed = sum(row.state == "fixed" for row in rows)
    streams.result(f"torch {torch}: {fixed} of {count(len(rows), 'group')} fixed", style="bold")
    if rows:
        table = streams.table("group", "state", "failure", "smallest case", "what happened")
        for row in rows:
            group = row.group
            what = f"{group.what} in {group.stage}"
            detail = shortened(row.detail, 100)
            cells = (group.id, _WORDS[row.state], what, group.smallest, detail)
            streams.add_row(table, *cells, style=_STYLES[row.state])
        streams.show(table)
    for text in found.unreadable:
        streams.say(f"left out: {text}")
    left = [row.group for row in rows if row.state != "fixed"]
    if left:
        streams.next_command(*left[0].next)
