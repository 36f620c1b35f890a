"""From a store to the document of a report.

Lives here: which recordings and compiles it covers, and whose details have room in it.  Not here:
the parts (`compiles`, `groups`, `details`), nor the page (`page`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version

import msgspec

from torchreel.errors import UsageError
from torchreel.escaping.shell import command
from torchreel.report.compiles import RecordingFacts, StackTable, facts_of, row_of
from torchreel.report.details import CompileReader
from torchreel.report.document import (
    FORMAT,
    CompileDetails,
    CompileRow,
    LossRow,
    RecordingRow,
    ReportDocument,
)
from torchreel.report.groups import NextOf, cause_groups, failure_groups
from torchreel.report.packing import Packer, encoded, json_block
from torchreel.report.page import PAGE_BYTES
from torchreel.report.ranks import ranks_of
from torchreel.report.reductions import reduced_case
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.records import Compile, Recording, StackFrame

MAX_BYTES = 5_000_000
"""The default of the largest size of a page: a browser opens that at once."""


@dataclass(frozen=True)
class ReportOptions:
    """The largest size of the page, and the next command of a compile."""

    next_of: NextOf
    max_bytes: int = MAX_BYTES


def build(store: Store, address: Address, options: ReportOptions) -> ReportDocument:
    """The document about all that an address covers: a store, a recording, a compile.

    Raises UsageError for what the store does not have.
    """
    found = [facts_of(store, row) for row in _recordings(store, address)]
    for facts in found:
        facts.keep([row for row in facts.compiles if _is_meant(row, address)])
    compiles = [row for facts in found for row in facts.compiles]
    if not compiles and address.compile is not None:
        raise UsageError(f"{address} is not in the store: see 'torchreel ls {store.target}'.")
    places = {row.id: place for place, row in enumerate(compiles)}
    stacks = StackTable()
    rows = [row for facts in found for row in _rows(store, facts, stacks)]
    groups = failure_groups(store, found, places, options.next_of, partial(reduced_case, store))
    document = ReportDocument(
        FORMAT, store.target, version("torchreel"), [_recording(store, f) for f in found], rows,
        stacks.rows, groups, cause_groups(found, places),
        ranks_of(store, address) if address.recording is None else None,
    )  # fmt: skip
    stacks_of = {facts.recording.id: facts.stacks for facts in found}
    return _with_details(store, document, compiles, stacks_of, options)


def _recordings(store: Store, address: Address) -> list[Recording]:
    if address.recording is None:
        return queries.recordings(store)
    return [queries.recording(store, address.recording)]


def _is_meant(row: Compile, address: Address) -> bool:
    name = (address.generation, address.compile)
    named = address.compile is None or (row.generation, row.compile_id) == name
    return named and (address.attempt is None or row.attempt == address.attempt)


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
        row.id, row.kind, _ended(row), _program(row), _when(row.started_ns), row.rank,
        {key: value for key, value in environment.items() if key != PROCESS},
        [LossRow(item.reason, item.place, item.count, item.message) for item in lost],
    )  # fmt: skip


def _ended(row: Recording) -> str:
    if row.exit_signal:
        return f"{row.status} by {row.exit_signal}"
    return row.status if row.exit_status is None else f"{row.status}, status {row.exit_status}"


def _program(row: Recording) -> str:
    return command(*row.argv) if isinstance(row.argv, list) else str(row.argv)


def _when(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(time_ns)


# -- details, as far as there is room -------------------------------------------------------------


def _with_details(
    store: Store,
    document: ReportDocument,
    compiles: Sequence[Compile],
    stacks: Mapping[int, Mapping[int, StackFrame]],
    options: ReportOptions,
) -> ReportDocument:
    room = options.max_bytes - PAGE_BYTES - len(json_block(encoded(document)))
    packer, rows = Packer(max(room, 0)), list(document.compiles)
    without = 0
    for place in _most_wanted_first(rows):
        compile = compiles[place]
        reader = CompileReader(store, compile, packer, stacks[compile.recording_id])
        details = packer.add_if_room(partial(_details, reader, options.next_of))
        without += details is None
        rows[place] = msgspec.structs.replace(rows[place], details=details)
    notes = [_left_out(store, without, rows)] if without else []
    return msgspec.structs.replace(document, compiles=rows, packed=packer.parts, notes=notes)


def _details(reader: CompileReader, next_of: NextOf) -> CompileDetails:
    return reader.details(next_of(reader.compile))


def _most_wanted_first(rows: Sequence[CompileRow]) -> list[int]:
    """Compiles that failed first, attempts given up last; else as they were recorded.

    That is how they lie in the file: to read them in another order takes many times as long.
    """
    return sorted(range(len(rows)), key=lambda place: _rank(rows[place]))


def _rank(row: CompileRow) -> int:
    if row.status in queries.FAILING:
        return 0
    return 2 if row.status == "restarted" else 1


def _left_out(store: Store, without: int, rows: Sequence[CompileRow]) -> str:
    example = next(row.address for row in rows if row.details is None)
    one = command("torchreel", "report", f"{store.target}#{example}")
    return (
        f"The details of {without} of {len(rows)} compiles have no room in this page. Show those "
        f"of one with '{one}', or of more with --max-size."
    )
