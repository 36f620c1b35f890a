"""A page of a store's recordings, and what a listing says of each of them.

In a number of statements that does not depend on how many recordings there are: on a server, each
takes a way there and back.  Called by `torchreel ls`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis import skipped
from torchreel.analysis.why import grouped_causes
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.records import Compile, Failure, Graph, Recording, Stage


@dataclass(frozen=True)
class PageRange:
    """The part of a store that is listed."""

    limit: int = 50
    """The most recordings, the newest of them."""
    before: int | None = None
    """The number of a recording: those after it, and it, are left out."""
    replays: bool = False
    """True to list the replays among them."""


@dataclass(frozen=True)
class RecordingPage:
    """Recordings, oldest first, and what belongs to them, by row ids."""

    recordings: Sequence[Recording]
    older: int
    """The number of older recordings in the store."""
    replays: int
    """The number of replays in the store that are not listed."""
    compiles: Mapping[int, Sequence[Compile]]
    """By recording; all of them, also where an address names one."""
    failures: Mapping[int, Failure]
    """The first failure of a compile."""
    graphs: Mapping[int, Graph]
    """The first graph of a compile."""
    stages: Mapping[int, Stage]
    """The stage that was open when a compile ended."""
    skipped: Mapping[int, str]
    """The reason why a frame was left to Python."""
    lost: Mapping[int, int]
    """The number of things that were left out, by recording."""
    causes: Mapping[int, grouped_causes.Counts]
    """Recompiles and graph breaks, by recording."""

    @property
    def latest_failing(self) -> Compile | None:
        """The compile that failed last."""
        found = [
            row
            for rows in self.compiles.values()
            for row in rows
            if row.status in queries.FAILING or row.id in self.failures
        ]
        return max(found, key=lambda row: (row.started_ns, row.id), default=None)


def read(store: Store, address: Address, page: PageRange) -> RecordingPage:
    """Read what an address covers: a page of a store, or a recording, with all its compiles.

    Where there are replays alone, they are listed.
    """
    if address.recording is not None:
        return _listing(store, [queries.recording(store, address.recording)])
    found = queries.newest(store, page.limit, page.before, replays=page.replays)
    with_replays = page.replays or not found
    if not found:
        found = queries.newest(store, page.limit, page.before, replays=True)
    counts = queries.recording_counts(store, found[0].id if found else 0)
    if with_replays:
        return _listing(store, found, counts.older + counts.older_replays)
    return _listing(store, found, counts.older, counts.replays)


def _listing(
    store: Store, recordings: Sequence[Recording], older: int = 0, replays: int = 0
) -> RecordingPage:
    numbers = [row.id for row in recordings]
    by_recording = queries.compiles_by_recording(store, recordings)
    compiles = [row for rows in by_recording.values() for row in rows]
    failures = queries.failures_by_compile(store, compiles)
    unexplained = [
        row for row in compiles if row.status in queries.FAILING and row.id not in failures
    ]
    return RecordingPage(
        recordings, older, replays, by_recording, failures,
        graphs=queries.first_graphs_of(store, compiles),
        stages=queries.open_stages(store, unexplained),
        skipped=skipped.reasons(store, [row for row in compiles if row.status == "skipped"]),
        lost=queries.lost_counts(store, numbers),
        causes=grouped_causes.counts_by_recording(store, by_recording),
    )  # fmt: skip
