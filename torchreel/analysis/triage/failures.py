"""The failures of stores, with what tells them apart: read once, as plain values.

Lives here: which rows count as a failure, when and where it was seen, and the smallest case that
was found of it.  Not here: which of them are one bug (`grouping`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, cast, func, select

from torchreel.analysis.triage.canonical_form import Form, form_of_case, operation
from torchreel.analysis.triage.definitions import definitions_of
from torchreel.analysis.triage.program_part import NO_PART, ProgramPart, program_part
from torchreel.store import Store, queries, schema
from torchreel.store.failures.signature import ASKED, Signature, crash_signature
from torchreel.store.records import Compile, Failure, Recording, Reduction

Process = tuple[str, int, int]
"""The marks of a recording that are the same in another store: its run, its pid, when it began."""


@dataclass(frozen=True)
class SmallestCase:
    """The smallest case of a failure that a reduction found."""

    size: int
    unit: str
    """The unit of the size: 'call node', or 'statement' of a program."""
    is_minimal: bool
    """True if no pass could take another step."""
    form: Form


@dataclass(frozen=True)
class SeenFailure:
    """One failure of one process."""

    address: str
    """Of its compile; of its recording, where it belongs to no compile."""
    signature: Signature
    message: str
    time_ns: int
    process: Process
    rank: int | None
    torch: str
    """The version, '' where it is not known."""
    calls: Mapping[str, int]
    """The operations that the graphs of its compile call, by plain name: the most of any stage."""
    graph_size: int | None
    """Call nodes of the first graph."""
    smallest: SmallestCase | None
    is_baseline: bool = False
    part: ProgramPart = NO_PART
    """The program's part, which has to be the same where the signature's place only reports."""
    needs_trust: bool = False
    """True if all that was kept of the compile is its frame, which is code."""

    @property
    def key(self) -> tuple[Process, str, str, bool]:
        """The key that two copies of it have in common, in whatever stores they are.

        A copy of a recording may have another number there.  One in the baseline is no copy of one
        outside of it: that one is to be counted.
        """
        place = self.address.rpartition("#")[2].partition("/")[2]
        return self.process, place, self.signature.digest, self.is_baseline


def failures_of(store: Store, *, is_baseline: bool = False) -> Iterator[SeenFailure]:
    """Yield the failures of a store, the oldest first in each recording.

    Of a compile, the first one: what comes after it is a consequence.  What a replay did, and what
    somebody asked a reduction to look for, is no failure of a program's.
    """
    for recording in queries.recordings(store):
        if recording.kind != "replay":
            yield from _of_recording(store, recording, is_baseline)


def _of_recording(store: Store, recording: Recording, is_baseline: bool) -> Iterator[SeenFailure]:
    compiles = {row.id: row for row in queries.compiles(store, recording.id)}
    graphs = queries.first_graphs(store, recording.id)
    version = queries.environment(store, recording.id).get("torch", "")
    process = recording.run, recording.pid, recording.started_ns
    found = list(_first_of_each(queries.failures(store, recording.id)))
    told = {failure.compile_id for failure in found}
    for failure in found:
        row = compiles.get(failure.compile_id) if failure.compile_id is not None else None
        graph = graphs.get(row.id) if row is not None else None
        yield SeenFailure(
            f"{store.target}#{row.place if row is not None else recording.id}",
            failure.signature, failure.message, failure.time_ns, process, recording.rank, version,
            _calls(store, row), graph.call_nodes if graph is not None else None,
            _smallest(store, failure), is_baseline, _part(store, failure),
            _has_frame_alone(store, row),
        )  # fmt: skip
    for row in compiles.values():
        if row.status in queries.FAILING and row.id not in told:
            graph = graphs.get(row.id)
            yield SeenFailure(
                f"{store.target}#{row.place}", _died(store, recording, row), "",
                row.ended_ns or row.started_ns, process, recording.rank, version,
                _calls(store, row), graph.call_nodes if graph is not None else None,
                None, is_baseline, needs_trust=_has_frame_alone(store, row),
            )  # fmt: skip


def _has_frame_alone(store: Store, row: Compile | None) -> bool:
    return row is not None and not queries.checkpoints(store, row) and queries.has_frame(store, row)


def _first_of_each(found: Iterable[Failure]) -> Iterator[Failure]:
    seen: set[int] = set()
    for failure in found:
        if failure.signature.failure_class in ASKED or failure.compile_id in seen:
            continue
        if failure.compile_id is not None:
            seen.add(failure.compile_id)
        yield failure


def _died(store: Store, recording: Recording, row: Compile) -> Signature:
    """Return the signature of a crash that nobody wrote down: the store can't be written to."""
    still = queries.open_stage(store, row)
    stage, partition = (still.stage, still.partition) if still is not None else ("dynamo", "")
    return crash_signature(stage, partition, recording.exit_signal)


def _part(store: Store, failure: Failure) -> ProgramPart:
    """Return the program's part in a failure, from what was kept of its exception."""
    chain = failure.chain if isinstance(failure.chain, list) else []
    types = [str(each["type"]) for each in chain if isinstance(each, dict) and "type" in each]
    digest = failure.traceback
    data = queries.readable(store, lambda: store.read_blob(digest), b"") if digest else b""
    text = data.decode("utf-8", "replace")
    return program_part(
        failure.signature, types, failure.message, text, definitions_of(failure.chain)
    )


def _calls(store: Store, row: Compile | None) -> Mapping[str, int]:
    """Return what the graphs of a compile call; of the graphs of each stage, the most counts."""
    if row is None:
        return {}
    targets, graphs = schema.graph_targets, schema.graphs
    query = (
        select(targets.c.graph_id, targets.c.target, cast(func.sum(targets.c.count), BigInteger))
        .join(graphs, targets.c.graph_id == graphs.c.id)
        .where(graphs.c.compile_id == row.id)
        .group_by(targets.c.graph_id, targets.c.target)
    )
    each: dict[int, Counter[str]] = {}
    for graph_id, target, times in map(tuple, store.rows(query)):
        op = "call_function" if ":" in target else "call_method"
        each.setdefault(graph_id, Counter())[operation(op, target)] += times
    calls: Counter[str] = Counter()
    for counted in each.values():
        calls |= counted
    return calls


def _smallest(store: Store, failure: Failure) -> SmallestCase | None:
    cases = (_case(store, row) for row in queries.reductions(store, failure))
    return min((case for case in cases if case), key=lambda case: case.size, default=None)


def _case(store: Store, reduction: Reduction) -> SmallestCase | None:
    table = schema.cases
    query = select(table.c.call_nodes, table.c.document)
    rows = store.rows(query.where(table.c.digest == reduction.best_case))
    if not rows:
        return None
    form = queries.readable(store, lambda: form_of_case(store.read_blob(rows[0].document)), None)
    if form is None:
        return None
    return SmallestCase(rows[0].call_nodes, form.unit, reduction.status == "fixpoint", form)
