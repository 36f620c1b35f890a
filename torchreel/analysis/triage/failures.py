"""The failures of stores, with what tells them apart: read once, as plain values.

Lives here: which rows count as a failure, when and where it was seen, and the smallest case that
was found of it.  Not here: which of them are one bug (`grouping`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import BigInteger, cast, func, select

from torchreel.analysis.triage.canonical_form import Form, form_of_case, operation
from torchreel.analysis.triage.definitions import definitions_of
from torchreel.analysis.triage.program_part import NO_PART, ProgramPart, program_part
from torchreel.store import Store, queries, schema
from torchreel.store.documents.jsontypes import canonical_json
from torchreel.store.documents.kinds import list_only
from torchreel.store.failures.signature import ASKED, Signature, crash_signature
from torchreel.store.records import Compile, Failure, Graph, Recording

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
        """The key that two copies of it have in common, in any two stores.

        A copy of a recording may have another number there.  One in the baseline is no copy of one
        outside of it: that one is to be counted.
        """
        place = self.address.rpartition("#")[2].partition("/")[2]
        return self.process, place, self.signature.digest, self.is_baseline


def failures_of(store: Store, *, is_baseline: bool = False) -> Iterator[SeenFailure]:
    """Yield the failures of a store, the oldest first in each recording.

    Of a compile, the first one: later ones are consequences.  Failures of a replay, and those that
    a user searched for in a reduction, are no failures of a program.
    """
    for _, found in failures_with_rows(store, queries.recordings(store)):
        yield replace(found, is_baseline=is_baseline)


def failures_with_rows(
    store: Store, recordings: Sequence[Recording]
) -> Iterator[tuple[int | None, SeenFailure]]:
    """Yield the failures of some recordings, each after its row id; None where it has no row."""
    wanted = [row for row in recordings if row.kind != "replay"]
    for start in range(0, len(wanted), _CHUNK):
        yield from _of_recordings(store, wanted[start : start + _CHUNK])


_CHUNK = 200
"""Recordings whose rows are read with one statement of each table, and kept at a time."""


def _of_recordings(
    store: Store, recordings: Sequence[Recording]
) -> Iterator[tuple[int | None, SeenFailure]]:
    rows = _Rows.read(store, recordings)
    for recording in recordings:
        found = rows.failures[recording.id]
        compiles = {row.id: row for row in rows.compiles[recording.id]}
        for failure in found:
            row = compiles.get(failure.compile_id) if failure.compile_id is not None else None
            seen = _seen(store, recording, row, rows, failure.signature, failure.time_ns)
            smallest, part = rows.smallest.get(failure.id), rows.parts[failure.id]
            yield failure.id, replace(seen, smallest=smallest, part=part)
        failed = {failure.compile_id for failure in found}
        for row in compiles.values():
            if row.status in queries.FAILING and row.id not in failed:
                time_ns = row.ended_ns or row.started_ns
                yield (
                    None,
                    _seen(store, recording, row, rows, _died(store, recording, row), time_ns),
                )


def _seen(
    store: Store,
    recording: Recording,
    row: Compile | None,
    rows: _Rows,
    signature: Signature,
    time_ns: int,
) -> SeenFailure:
    graph = rows.graphs.get(row.id) if row is not None else None
    return SeenFailure(
        f"{store.target}#{row.place if row is not None else recording.id}",
        signature,
        time_ns,
        (recording.run, recording.pid, recording.started_ns),
        recording.rank,
        rows.versions.get(recording.id, ""),
        rows.calls.get(row.id, {}) if row is not None else {},
        graph.call_nodes if graph is not None else None,
        None,
        needs_trust=row is not None and row.id in rows.frames_alone,
    )


@dataclass(frozen=True)
class _Rows:
    """The rows about some recordings and their failures."""

    failures: Mapping[int, Sequence[Failure]]
    """By recording; of each compile, the first."""
    compiles: Mapping[int, Sequence[Compile]]
    """By recording: those that may have failed."""
    versions: Mapping[int, str]
    """Of torch, by recording."""
    graphs: Mapping[int, Graph]
    """The first one, by compile."""
    calls: Mapping[int, Mapping[str, int]]
    """By compile."""
    frames_alone: frozenset[int]
    """The compiles whose only kept part is the frame."""
    parts: Mapping[int, ProgramPart]
    """By failure."""
    smallest: Mapping[int, SmallestCase]
    """By failure."""

    @classmethod
    def read(cls, store: Store, recordings: Sequence[Recording]) -> _Rows:
        """Read the rows of some recordings."""
        numbers = [row.id for row in recordings]
        every = queries.failures_by_recording(store, numbers)
        failures = {number: list(_first_of_each(found)) for number, found in every.items()}
        compiles = queries.compiles_by_recording(store, recordings, failing=True)
        rows = [row for found in compiles.values() for row in found]
        flat = [failure for found in failures.values() for failure in found]
        return cls(
            failures,
            compiles,
            queries.environment_values(store, "torch", numbers),
            queries.first_graphs_of(store, rows),
            _calls(store, rows),
            queries.with_frame_alone(store, rows),
            _parts(store, flat),
            smallest_cases(store, [failure.id for failure in flat]),
        )


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
    place = queries.last_place(store, row)
    return crash_signature(place.stage, place.partition, recording.exit_signal)


def _parts(store: Store, failures: Sequence[Failure]) -> dict[int, ProgramPart]:
    """Return the program's part in each failure, by the failure's row id.

    It is computed from the recorded exception, once for equal ones.
    """
    texts = store.readable_blobs(row.traceback for row in failures if row.traceback)
    known: dict[tuple[object, ...], ProgramPart] = {}
    found: dict[int, ProgramPart] = {}
    for row in failures:
        key = row.signature, row.message, row.traceback, canonical_json(row.chain)
        if key not in known:
            known[key] = _part(row, texts.get(row.traceback or "", b""))
        found[row.id] = known[key]
    return found


def _part(failure: Failure, traceback: bytes) -> ProgramPart:
    chain = list_only(failure.chain)
    types = [str(each["type"]) for each in chain if isinstance(each, dict) and "type" in each]
    text = traceback.decode("utf-8", "replace")
    return program_part(
        failure.signature, types, failure.message, text, definitions_of(failure.chain)
    )


def _calls(store: Store, compiles: Sequence[Compile]) -> dict[int, Mapping[str, int]]:
    """Return the number of calls of each operation in the graphs of a compile, by its row id.

    For each operation, it is the largest number in one graph.
    """
    targets, graphs = schema.graph_targets, schema.graphs
    query = (
        select(
            graphs.c.compile_id,
            targets.c.graph_id,
            targets.c.target,
            cast(func.sum(targets.c.count), BigInteger),
        )
        .join(graphs, targets.c.graph_id == graphs.c.id)
        .group_by(graphs.c.compile_id, targets.c.graph_id, targets.c.target)
    )
    each: dict[tuple[int, int], Counter[str]] = {}
    ids = [row.id for row in compiles]
    for row in queries.in_chunks(store, query, graphs.c.compile_id, ids):
        compile_id, graph_id, target, times = tuple(row)
        op = "call_function" if ":" in target else "call_method"
        each.setdefault((compile_id, graph_id), Counter())[operation(op, target)] += times
    calls: dict[int, Counter[str]] = {}
    for (compile_id, _), counted in each.items():
        calls[compile_id] = calls.get(compile_id, Counter()) | counted
    return dict(calls)


def smallest_cases(store: Store, failure_ids: Sequence[int]) -> dict[int, SmallestCase]:
    """Return the smallest case of each failure that has one, by the failure's row id."""
    reductions = queries.reductions_by_failure(store, failure_ids)
    table = schema.cases
    query = select(table.c.digest, table.c.call_nodes, table.c.document)
    wanted = {row.best_case for rows in reductions.values() for row in rows}
    cases = {
        row.digest: row for row in queries.in_chunks(store, query, table.c.digest, sorted(wanted))
    }
    documents = store.readable_blobs(row.document for row in cases.values())
    forms = {
        digest: form
        for digest, row in cases.items()
        if row.document in documents and (form := _form(store, documents[row.document])) is not None
    }
    found: dict[int, SmallestCase] = {}
    for failure_id, rows in reductions.items():
        each = [
            SmallestCase(cases[row.best_case].call_nodes, form.unit, row.status == "fixpoint", form)
            for row in rows
            if (form := forms.get(row.best_case)) is not None
        ]
        if each:
            found[failure_id] = min(each, key=lambda case: (case.size, not case.is_minimal))
    return found


def _form(store: Store, document: bytes) -> Form | None:
    return queries.readable(store, lambda: form_of_case(document), None)
