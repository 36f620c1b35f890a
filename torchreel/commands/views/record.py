"""`torchreel record`: what is said when the program has ended."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from shlex import quote

from torchreel.analysis.why import grouped_causes
from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.launch import ProgramEnd, is_shared
from torchreel.store import Store, queries
from torchreel.store.files import locks
from torchreel.store.records import Compile, Recording

_MOST_NOTES = 2
"""Sentences about what was not recorded, at most: the program has the screen."""


def end(target: str, known: int, ended: ProgramEnd) -> None:
    """Print the recorded compiles and the losses; never fails, for the status is the program's."""
    # Ctrl-C, which comes twice; Rich exits when nobody reads what it says.
    with suppress(KeyboardInterrupt, SystemExit), fail_open("report", quiet=True):
        notes = list(ended.notes)
        if ended.is_recorded:
            with fail_open("report", quiet=True) as attempt:
                notes = _report(target, known, notes, ended.status)
            if attempt.message:
                notes.insert(0, f"what was recorded can't be read: {attempt.message}")
        if not ended.is_recorded or is_empty(target, known):
            notes[:0] = unattached()
        for note in notes[:_MOST_NOTES]:
            streams.say(f"torchreel: {note.removeprefix('torchreel').lstrip(': ')}", style="yellow")
        if (more := len(notes) - _MOST_NOTES) > 0:
            streams.say(f"torchreel: and {count(more, 'more loss', 'more losses')}.")


def is_empty(target: str, known: int) -> bool:
    """Return True if the recordings after number `known` have no compile."""
    if not is_shared(target):
        return False
    with Store.open(target) as store:
        new = [row for row in queries.recordings(store) if row.id > known]
        return not any(queries.compiles(store, row.id) for row in new)


def unattached() -> list[str]:
    """Return why no program is recorded here, if torch does not call the recorder at all."""
    from torchreel.doctor import entry_point

    found = entry_point()
    return (
        []
        if found.state == "ok"
        else [f"torch does not call torchreel ({found.found}). {found.advice}"]
    )


def _report(target: str, known: int, notes: list[str], status: int) -> list[str]:
    """Report on a store, or on the files that processes wrote; return the notes not in a store."""
    if not is_shared(target):
        report_files(target)
        return notes
    return report(target, known, notes, status)


def report(target: str, known: int, notes: list[str], status: int = 0) -> list[str]:
    """Print the content of the recordings after number `known`, their losses and the next command.

    Returns the notes that no recording has itself.  A program may end badly because of the results
    of compiled code: `status` is its exit status.
    """
    with Store.open(target) as store:
        new = [row for row in queries.recordings(store) if row.id > known]
        found = [compile for row in new for compile in queries.compiles(store, row.id)]
        streams.say(
            f"torchreel: recorded {count(len(found), 'compile')} into {target}"
            f"{_failed(store, new)}{_unknown(found)}{_again(store, new)}."
        )
        if status and found and not any(queries.failures(store, row.id) for row in new):
            streams.say(
                f"torchreel: the program ended with exit status {status}. To run it again and see "
                f"whether eager mode differs: torchreel minify {quote(target)} --accuracy --trust"
            )
        lost = _print_lost(store, new)
        _print_next(store, new)
    if not new:
        report_files(target)
    return [note for note in notes if not note.startswith(lost)]


def _again(store: Store, new: list[Recording]) -> str:
    """Return a few words on recompiles and graph breaks."""
    counts = sum((grouped_causes.counts(store, row) for row in new), grouped_causes.Counts())
    return f"; {counts}" if str(counts) else ""


def _unknown(found: list[Compile]) -> str:
    number = sum(compile.status == "unknown" for compile in found)
    return f"; {count(number, 'compile')} may have returned or not" if number else ""


def report_files(target: str) -> None:
    """Print the files that the processes of a program wrote, if they did not share a store."""
    found = locks.own_files(target)
    for file in found:
        streams.say(f"torchreel: a process wrote {file}.")
    if found:
        streams.next_command("torchreel", "ls", str(found[-1]))


def last_recording(target: str) -> int:
    """Return the number of the newest recording before the program starts; 0 when none can be
    read.
    """
    found = 0
    with fail_open("report", quiet=True), Store.open(target) as store:
        found = max((row.id for row in queries.recordings(store)), default=0)
    return found


def _failed(store: Store, new: list[Recording]) -> str:
    stages = Counter(failure.stage for row in new for failure in queries.failures(store, row.id))
    where = ", ".join(f"{number} in {stage}" for stage, number in sorted(stages.items()))
    return f"; {count(stages.total(), 'failure')}: {where}" if where else ", none failed"


def _print_lost(store: Store, new: list[Recording]) -> tuple[str, ...]:
    """Print the losses in a store; return the beginnings of the processes' own notes on them."""
    said = []
    for row in new:
        for item in queries.lost(store, row.id):
            said.append(f"torchreel lost something at {item.place} ({item.reason}:")
            streams.say(
                f"torchreel: lost {item.count} x {item.place} ({item.reason}): {item.message}",
                style="yellow",
            )
    return tuple(said)


def _print_next(store: Store, new: list[Recording]) -> None:
    for row in reversed(new):
        failing = queries.latest_failing(store, row.id)
        if failing is not None:
            streams.next_command("torchreel", "show", f"{store.target}#{failing.place}")
            return
    for row in reversed(new):
        verbs = grouped_causes.counts(store, row).verbs
        if verbs:
            streams.next_command("torchreel", verbs[0], f"{store.target}#{row.id}")
            return
    streams.next_command("torchreel", "ls", store.target)
