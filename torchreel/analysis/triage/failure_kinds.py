"""Kinds of failures: what the grouping looks at, kept in a store, to be read once for many.

A store of a hundred thousand failures has some hundred kinds.  A push sends the kind of each
failure along, with where and when it was seen; triage then reads the kinds, and a row of each
failure.  Failures without one, or with one of other rules, are read in full (`failures`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, Row, exists, func, select

from torchreel.analysis.triage.failures import (
    SeenFailure,
    SmallestCase,
    failures_with_rows,
    smallest_cases,
)
from torchreel.analysis.triage.program_part import ProgramPart
from torchreel.errors import DamagedStore
from torchreel.store import Store, Writer, queries, schema
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of
from torchreel.store.failures.failure_kinds import FailureKind, document_of
from torchreel.store.failures.signature import Signature
from torchreel.store.reading.typed import convert

RULES = 3
"""The number of the rules that make a kind: to be raised with every change of what is in one, or of
what `program_part`, `statements`, `definitions` and `operation` return."""


@dataclass(frozen=True)
class _Document:
    """A kind, as it is stored."""

    signature: Any
    calls: dict[str, int]
    graph_size: int | None
    needs_trust: bool
    run: str
    """The run, for a failure without a graph: failures of all ranks in one run are one kind."""
    told: tuple[str, ...]
    needs_graph: bool
    is_reported: bool
    tells_alone: bool
    operator: str


def _kind(failure: SeenFailure) -> FailureKind:
    part = failure.part
    document: Json = {
        "signature": failure.signature.to_json(),
        "calls": dict(failure.calls),
        "graph_size": failure.graph_size,
        "needs_trust": failure.needs_trust,
        "run": "" if failure.calls else failure.process[0],
        "told": list(part.words),
        "needs_graph": part.needs_graph,
        "is_reported": part.is_reported,
        "tells_alone": part.tells_alone,
        "operator": part.operator,
    }
    place = failure.address.rpartition("#")[2].lstrip("0123456789")
    seen = failure.time_ns, *failure.process, failure.rank, failure.torch
    return FailureKind(RULES, document_of(document), place, *seen)


def kinds_of(store: Store, number: int) -> Mapping[int, FailureKind]:
    """Return the kinds of the failures of a recording, by their row ids.

    None at all where one can't be read, or was not written down: then each is read as it is asked
    for.
    """
    with store.as_far_as_readable() as left_out:
        recording = queries.recording(store, number)
        found = list(failures_with_rows(store, [recording]))
        rows = [row.id for row in queries.failures(store, number)]
    if left_out or any(row is None for row, _ in found) or recording.kind == "replay":
        return {}
    kinds = {row: FailureKind(RULES) for row in rows}
    return kinds | {row: _kind(failure) for row, failure in found if row is not None}


def write_missing(store: Store) -> int:
    """Write the kinds of the failures that have none, or one of other rules; return how many."""
    count = 0
    for number in _unsorted(store, _Used.read(store)):
        kinds = kinds_of(store, number)
        with store.writer() as writer:
            _write(writer, number, kinds)
        count += len(kinds)
    return count


def _write(writer: Writer, recording: int, kinds: Mapping[int, FailureKind]) -> None:
    table = schema.failure_kinds
    documents = {kind.digest: kind.document for kind in kinds.values()}
    for digest in sorted(filter(None, documents)):
        writer.put("kinds", digest=digest, document=documents[digest])
    rows = [kind.row(number, recording) for number, kind in kinds.items()]
    writer.connection.execute(table.delete().where(table.c.failure_id.in_(list(kinds))))
    writer.add_many("failure_kinds", rows)


# -- reading --------------------------------------------------------------------------------------

_AT = schema.failure_kinds.c
_IS_OURS = _AT.rules == RULES


@dataclass(frozen=True)
class StoredFailures:
    """The failures of a store: a stand-in for each kind, and in full what no kind covers."""

    store: Store
    kinds: Mapping[str, SeenFailure]
    """A stand-in for the failures of each kind, by its digest."""
    others: tuple[SeenFailure, ...]
    """The failures that a reduction made smaller, and those of which no kind is known."""
    reduced: Mapping[int, SmallestCase]
    """The smallest cases, by failure."""
    unsorted: frozenset[int]
    """The recordings that were read in full."""

    @classmethod
    def read(cls, store: Store, *, unwritten: bool = True) -> StoredFailures:
        """Read the failures of a store: a stand-in for each kind, and in full the others.

        With `unwritten`, crashes count too for which no process has written a failure.
        """
        used = _Used.read(store)
        kinds = used.kinds
        numbers = _unsorted(store, used, unwritten=unwritten)
        wanted = [row for row in queries.recordings_of(store, numbers) if row.kind != "replay"]
        in_full = [found for _, found in failures_with_rows(store, wanted)]
        at = schema.reductions.c
        ids = select(at.failure_id).where(at.failure_id.is_not(None)).distinct()
        reduced = smallest_cases(store, sorted(row.failure_id for row in store.rows(ids)))
        found = cls(store, kinds, (), reduced, frozenset(numbers))
        own = found._members(_AT.failure_id, sorted(reduced))
        return replace(found, others=(*in_full, *own))

    def each(self) -> Iterator[SeenFailure]:
        """Yield every failure of the store."""
        yield from self.others
        yield from self.of_kinds(sorted(self.kinds))

    def of_kinds(self, kinds: Sequence[str]) -> list[SeenFailure]:
        """Return the failures of some kinds, without those that have a reduced case."""
        return self._members(_AT.kind, kinds, without=self.reduced)

    def _members(
        self, column: Column[Any], values: Sequence[Any], without: Collection[int] = ()
    ) -> list[SeenFailure]:
        rows = [
            row
            for row in queries.in_chunks(self.store, _SEEN, column, values)
            if row.recording_id not in self.unsorted
            and row.failure_id not in without
            and row.kind in self.kinds
        ]
        return [self._member(row) for row in rows]

    def _member(self, row: Row[Any]) -> SeenFailure:
        return replace(
            self.kinds[row.kind],
            address=f"{self.store.target}#{row.recording_id}{row.place}",
            time_ns=row.time_ns,
            process=(row.run, row.pid, row.started_ns),
            rank=row.rank,
            torch=row.torch,
            smallest=self.reduced.get(row.failure_id),
        )


_SEEN = select(
    _AT.failure_id, _AT.kind, _AT.recording_id, _AT.place, _AT.time_ns, _AT.run, _AT.pid,
    _AT.started_ns, _AT.rank, _AT.torch,
).where(_IS_OURS)  # fmt: skip


@dataclass(frozen=True)
class _Used:
    """The kinds that any failure of a store has."""

    kinds: Mapping[str, SeenFailure]
    """A stand-in for the failures of each, by digest."""
    is_all: bool
    """True if every failure has one of these kinds, or does not count."""

    @classmethod
    def read(cls, store: Store) -> _Used:
        every: Any = select(func.count()).select_from(schema.failures).scalar_subquery()
        numbers: list[ColumnElement[Any]] = [_AT.kind, func.count(), every]
        rows = store.rows(select(*numbers).where(_IS_OURS).group_by(_AT.kind))
        counted = [tuple(row) for row in rows]
        used = sorted(kind for kind, _, _ in counted if kind is not None)
        table = schema.kinds
        found = {}
        for row in queries.in_chunks(store, select(table), table.c.digest, used):
            kind = queries.readable(store, partial(_stand_in, store, row), None)
            if kind is not None:
                found[row.digest] = kind
        known = sum(number for kind, number, _ in counted if kind is None or kind in found)
        return cls(found, any(known == total for _, _, total in counted))


def _stand_in(store: Store, row: Row[Any]) -> SeenFailure:
    if digest_of(canonical_json(row.document)) != row.digest:
        raise DamagedStore(f"{store.target} has a kind {row.digest:.12} with another digest.")
    try:
        kind: _Document = convert(row.document, _Document)
    except ValueError as error:
        raise DamagedStore(f"{store.target} has a kind that is none: {error}.") from error
    return SeenFailure(
        f"{store.target}#0/{row.digest}",
        Signature.from_json(kind.signature),
        0,
        (kind.run or row.digest, 0, 0),
        None,
        "",
        kind.calls,
        kind.graph_size,
        None,
        part=ProgramPart(
            kind.told, kind.needs_graph, kind.is_reported, kind.tells_alone, kind.operator
        ),
        needs_trust=kind.needs_trust,
    )


def _unsorted(store: Store, used: _Used, *, unwritten: bool = True) -> list[int]:
    """Return the recordings that have to be read in full.

    Each has a failure without a known kind or, with `unwritten`, a crash without a failure row.
    """
    failures, compiles = schema.failures, schema.compiles
    of = _AT.failure_id == failures.c.id
    wanted = []
    if not used.is_all:
        wanted.append(select(failures.c.recording_id).distinct())
        if store.rows(select(_AT.failure_id).limit(1)):  # else the table may not be there
            other = wanted[0].join(schema.failure_kinds, of)
            wanted = [
                wanted[0].where(~exists().where(of, _IS_OURS)),
                other.where(_AT.kind.not_in(sorted(used.kinds))),
            ]
    if unwritten:
        is_written = exists().where(failures.c.compile_id == compiles.c.id)
        may_have_failed = compiles.c.status.in_((*queries.FAILING, "running"))
        query = select(compiles.c.recording_id).where(may_have_failed, ~is_written)
        wanted.append(query.distinct())
    return sorted({row.recording_id for query in wanted for row in store.rows(query)})
