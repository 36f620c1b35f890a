"""Replays of many compiles, and many replays of one.

Lives here: `replay_all`, which stops at nothing, and `replay_repeatedly`.  Not here: one replay
(`replay`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torchreel.errors import TorchreelError, UsageError
from torchreel.replay.compare.verdict import DIVERGED, IDENTICAL, REFUSED, Verdict
from torchreel.replay.processes.fork_server import warm
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.records import Compile

Replay = Callable[[Compile, str], Verdict]
"""Replays one compile from one entry; may raise."""

_WORST = (IDENTICAL, DIVERGED, REFUSED)


@dataclass(frozen=True)
class Row:
    """The verdict on one compile from one entry."""

    compile: Compile
    verdict: Verdict

    @property
    def events(self) -> tuple[int, int]:
        """Return the number of things that were compared, and the number of identical ones."""
        rows = self.verdict.compared
        return sum(max(r.recorded, r.replayed) for r in rows), sum(r.identical for r in rows)

    def to_json(self) -> dict[str, Json]:
        """Return it as data."""
        compared, identical = self.events
        verdict = self.verdict
        return {
            "compile": self.compile.place, "frame": self.compile.frame_name,
            "status": self.compile.status, "entry": verdict.entry, "verdict": verdict.verdict,
            "compared": compared, "identical": identical, "detail": verdict.detail,
            "cause": verdict.cause, "recording": verdict.recording_id,
        }  # fmt: skip


def replay_all(
    store: Store, recording_id: int | None, entries: tuple[str, ...], replay: Replay
) -> Iterator[Row]:
    """Replay every compile of a recording, or of all that are no replays, from each entry.

    What can't be replayed is refused, with the reason; nothing but a wrong use ends it early.  An
    attempt that Dynamo gave up for another one never got beyond the frame, and is tried from there;
    a frame that it made no graph of is not tried from a graph.
    """
    with warm():
        for compile in _compiles(store, recording_id):
            for entry in entries if compile.status != "restarted" else {"frame"} & {*entries}:
                if entry in ("frame", "shapes") or not queries.is_without_graph(store, compile):
                    yield Row(compile, verdict_of(replay, compile, entry))


def verdict_of(replay: Replay, compile: Compile, entry: str) -> Verdict:
    """Return the verdict of one replay; a TorchreelError other than UsageError is a refusal."""
    try:
        return replay(compile, entry)
    except UsageError:
        raise
    except TorchreelError as error:
        return Verdict(REFUSED, entry, detail=str(error))


def _compiles(store: Store, recording_id: int | None) -> list[Compile]:
    """Return compiles in the order of the event log.

    Those of replays are left out, unless their recording is named.
    """
    if recording_id is not None:
        return queries.compiles(store, recording_id)
    return [
        compile for row in queries.programs(store) for compile in queries.compiles(store, row.id)
    ]


def worst(verdicts: list[Verdict]) -> int:
    """Return the exit status of the worst verdict; 2 when there is none."""
    found = [_WORST.index(verdict.verdict) for verdict in verdicts]
    if not found:
        return 2
    return next(v for v in verdicts if _WORST.index(v.verdict) == max(found)).exit_status


def replay_repeatedly(replay: Replay, compile: Compile, entry: str, times: int) -> Verdict:
    """Replay a compile `times` times: all must agree with the recording and with each other.

    The verdict is the first that is not identical, or the last; it says how often each came.
    """
    if times < 1:
        raise UsageError(f"A replay is made once at least, not {times} times.")
    verdicts = [verdict_of(replay, compile, entry) for _ in range(times)]
    results = Counter(_result(verdict) for verdict in verdicts)
    found = next((v for v in verdicts if v.verdict != IDENTICAL), verdicts[-1])
    if len(results) == 1:
        return replace(found, notes=(*found.notes, f"{times} replays, all with this result"))
    tally = ", ".join(f"{n} {name}" for name, n in Counter(v.verdict for v in verdicts).items())
    note = f"{times} replays with {len(results)} different results: {tally}"
    cause = "; ".join(filter(None, [found.cause, "nondeterminism: replays differ from each other"]))
    return replace(found, notes=(*found.notes, note), cause=cause)


def _result(verdict: Verdict) -> bytes:
    """Return the fields of a verdict that must be equal in each replay, as canonical JSON."""
    divergence = verdict.divergence
    parted = None if divergence is None else [divergence.seq, divergence.number]
    rows = [row.to_json() for row in verdict.compared]
    return canonical_json([verdict.verdict, verdict.detail, verdict.difference, parted, rows])
