"""`torchreel record`: what is said when the program has ended."""

from __future__ import annotations

from collections import Counter

from torchreel.console import streams
from torchreel.console.text import count
from torchreel.errors import StoreError
from torchreel.store import Store, locks, queries
from torchreel.store.records import Recording


def report(target: str, known: int) -> None:
    """Say what the recordings after number `known` hold, what they lost and what to run next."""
    with Store.open(target) as store:
        new = [row for row in queries.recordings(store) if row.id > known]
        compiles = sum(len(queries.compiles(store, row.id)) for row in new)
        streams.say(
            f"torchreel: recorded {count(compiles, 'compile')} into {target}{_failed(store, new)}."
        )
        _print_lost(store, new)
        _print_next(store, new)
    if not new:
        report_files(target)


def report_files(target: str) -> None:
    """Say where the processes of a program wrote, when they did not share a store."""
    found = locks.own_files(target)
    for file in found:
        streams.say(f"torchreel: a process wrote {file}.")
    if found:
        streams.next_command("torchreel", "ls", str(found[-1]))


def last_recording(target: str) -> int:
    """The number of the newest recording before the program starts; 0 when there is none."""
    try:
        with Store.open(target) as store:
            return max((row.id for row in queries.recordings(store)), default=0)
    except StoreError:
        return 0  # there is no store yet, or one that `run_recorded` refuses with a reason


def _failed(store: Store, new: list[Recording]) -> str:
    stages = Counter(failure.stage for row in new for failure in queries.failures(store, row.id))
    where = ", ".join(f"{number} in {stage}" for stage, number in sorted(stages.items()))
    return f"; {count(stages.total(), 'failure')}: {where}" if where else ", none failed"


def _print_lost(store: Store, new: list[Recording]) -> None:
    for row in new:
        for item in queries.lost(store, row.id):
            streams.say(
                f"torchreel: lost {item.count} x {item.place} ({item.reason}): {item.message}",
                style="yellow",
            )


def _print_next(store: Store, new: list[Recording]) -> None:
    for row in reversed(new):
        failing = queries.latest_failing(store, row.id)
        if failing is not None:
            streams.next_command("torchreel", "show", f"{store.target}#{failing.place}")
            return
    streams.next_command("torchreel", "ls", store.target)
