"""The listing of a report: the recordings that it covers, and all about them but details.

Lives here: the document without the details of its compiles, and what is needed to read those.  Not
here: details (`compiles`), nor which of them have room (`build`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version

from torchreel.analysis.recording_words import ended, program, when
from torchreel.errors import UsageError
from torchreel.escaping.shell import command
from torchreel.report.compiles.reductions import reduced_case
from torchreel.report.compiles.rows import RecordingFacts, StackTable, facts_of, row_of
from torchreel.report.document import FORMAT, CompileRow, LossRow, RecordingRow, ReportDocument
from torchreel.report.groups import NextOf, cause_groups, failure_groups
from torchreel.report.ranks import ranks_of
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.records import Compile, Recording, StackFrame

_EARLIER = 3
"""Compiles of the same function that a cache lookup is held against."""


@dataclass(frozen=True)
class Listing:
    """A document without details, its compiles, and the frames of each recording."""

    document: ReportDocument
    compiles: list[Compile]
    frames: Mapping[int, Mapping[int, StackFrame]]

    def earlier(self, place: int) -> list[Compile]:
        """Return the last few compiles of the same function before the one at a place, oldest
        first.
        """
        return self._earlier[place]

    @cached_property
    def _earlier(self) -> list[list[Compile]]:
        found: list[list[Compile]] = []
        same: dict[tuple[str, str, int], list[Compile]] = {}
        for row in self.compiles:
            before = same.setdefault((row.frame_name, row.frame_file, row.frame_line), [])
            found.append(before[-_EARLIER:])
            if row.status != "restarted":
                before.append(row)
        return found


def list_compiles(store: Store, address: Address, next_of: NextOf) -> Listing:
    """Read the listing of all that an address covers: a store, a recording, a compile.

    Raises UsageError for what the store does not have.
    """
    found = [facts_of(store, row) for row in _recordings(store, address)]
    for facts in found:
        facts.keep([row for row in facts.compiles if queries.is_covered(row, address)])
    compiles = [row for facts in found for row in facts.compiles]
    if not compiles and address.compile is not None:
        see = command("torchreel", "ls", store.target)
        raise UsageError(f"{address} is not in the store: see '{see}'.")
    places = {row.id: place for place, row in enumerate(compiles)}
    stacks = StackTable()
    rows = [row for facts in found for row in _rows(store, facts, stacks)]
    groups = failure_groups(store, found, places, next_of, partial(reduced_case, store))
    document = ReportDocument(
        FORMAT, store.target, version("torchreel"), [_recording(store, f) for f in found], rows,
        stacks.rows, groups, cause_groups(found, places),
        ranks_of(store, address) if address.recording is None else None,
    )  # fmt: skip
    frames = {facts.recording.id: facts.stacks for facts in found}
    return Listing(document, compiles, frames)


def _recordings(store: Store, address: Address) -> list[Recording]:
    if address.recording is None:
        return queries.recordings(store)
    return [queries.recording(store, address.recording)]


def _rows(store: Store, facts: RecordingFacts, stacks: StackTable) -> Iterator[CompileRow]:
    graphs = queries.first_graphs(store, facts.recording.id)
    for compile in facts.compiles:
        graph = graphs.get(compile.id)
        yield row_of(facts, compile, graph.call_nodes if graph else None, stacks)


def _recording(store: Store, facts: RecordingFacts) -> RecordingRow:
    row = facts.recording
    lost = queries.lost(store, row.id)
    environment = queries.environment(store, row.id)
    return RecordingRow(
        row.id, row.kind, ended(row), program(row), when(row.started_ns), row.rank,
        {key: value for key, value in environment.items() if key != PROCESS},
        [LossRow(item.reason, item.place, item.count, item.message) for item in lost],
    )  # fmt: skip
