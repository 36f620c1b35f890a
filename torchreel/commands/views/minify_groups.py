"""`torchreel minify --group`: how far it is, and a table of the groups when it has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from torchreel.analysis.triage.summaries import GroupSummary
from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count, seconds, shortened
from torchreel.minifier.groups.jobs import GroupResult, State

_EVERY = 30.0
"""Seconds between two lines that say how far it is, while nothing ends."""
_WORDS: dict[State, str] = {
    "reduced": "reduced",
    "known": "reduced before",
    "budget": "not at its end",
    "interrupted": "interrupted",
    "refused": "not reduced",
}
_STATUSES: dict[State, int] = {
    "reduced": 0,
    "known": 0,
    "budget": 4,
    "interrupted": 130,
    "refused": 1,
}

Ended = tuple[GroupSummary, GroupResult, Path]


class GroupProgress:
    """Says which groups have ended, and how long the others may take."""

    def __init__(self, groups: int, known: int) -> None:
        self._groups, self._known = groups, known
        self._ended = self._reduced = 0
        self._began = self._last = time.monotonic()
        if known:
            streams.say(f"{known} of {count(groups, 'group')} reduced and exported before")

    def begin(self, group: GroupSummary) -> None:
        """Print the number, id and failure of the next group."""
        number = self._known + self._ended + 1
        what = f"{group.what} in {group.stage}, {group.smallest}"
        streams.say(f"group {number} of {self._groups}, {group.id}: {what}", style="bold")

    def ended(self, group: GroupSummary, result: GroupResult, directory: Path) -> None:
        """Print the result of a group."""
        self._ended += 1
        self._reduced += result.state in ("reduced", "budget")
        self._last = time.monotonic()
        where = f", {directory}" if result.texts else ""
        streams.say(f"{group.id}: {_outcome_text(result)}{where}")
        self._say_left()

    def tick(self, left: int, runs: int) -> None:
        """Say now and then that the tasks go on."""
        if left and time.monotonic() - self._last > _EVERY:
            self._last = time.monotonic()
            at_work = f", {count(runs, 'run')} by those at work" if runs else ""
            streams.say(f"{count(left, 'group')} to go{at_work}")

    def _say_left(self) -> None:
        left = self._groups - self._known - self._ended
        if left and self._reduced:  # one that was refused took no time
            each = (time.monotonic() - self._began) / self._reduced
            streams.say(
                f"{count(left, 'group')} to go: {seconds(each * left)} more if they take as long "
                "as those that were reduced"
            )


def _outcome_text(result: GroupResult) -> str:
    if result.state in ("refused", "interrupted"):
        return f"{_WORDS[result.state]}{': ' if result.detail else ''}{result.detail}"
    shown = "" if result.is_verified else ", NOT verified"
    return f"{_WORDS[result.state]}, {_size(result)}{shown}"


def _size(result: GroupResult) -> str:
    if result.before == result.after:
        return count(result.after, result.unit)
    return f"{result.before} -> {count(result.after, result.unit)}"


def report(
    store: str, ended: Sequence[Ended], left: Sequence[GroupSummary], *, is_interrupted: bool
) -> int:
    """Print the table of all groups, and return the exit status."""
    whole = [result for _, result, _ in ended if result.state in ("reduced", "known")]
    all_ = len(ended) + len(left)
    streams.result(f"{len(whole)} of {count(all_, 'group')} reduced to the end", style="bold")
    table = streams.table("group", "state", "failure", "case", ">runs", ">time", "repro")
    for group, result, directory in ended:
        _add(table, group, result, directory)
    for group in left:
        _add(table, group, GroupResult("interrupted", ""), None)
    if all_:
        streams.show(table)
    statuses = [_STATUSES[result.state] for _, result, _ in ended]
    statuses += [1 for _, result, _ in ended if result.texts and not result.is_verified]
    if is_interrupted or left:
        streams.say("interrupted: what was found is in the store, and the same command goes on.")
        return 130
    if 4 in statuses:
        streams.say("The budget is spent: the same command goes on from here.", style="yellow")
    if whole:
        streams.next_command("torchreel", "recheck", store, "--python", "PATH")
    return max(statuses, default=0)


def _add(table: object, group: GroupSummary, result: GroupResult, directory: Path | None) -> None:
    is_sized = result.state in ("reduced", "known", "budget")
    known = directory if is_sized else ""
    state = _WORDS[result.state]
    if is_sized and not result.is_verified:
        state += ", NOT verified"
    cells = (
        group.id,
        state,
        f"{group.what} in {group.stage}",
        _size(result) if is_sized else shortened(result.detail, 100),
        result.runs or "",
        seconds(result.seconds) if result.seconds else "",
        known,
    )
    streams.add_row(table, *cells)  # type: ignore[arg-type]
