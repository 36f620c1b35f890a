"""Rows that may come to a recording after it was pushed: failures that were found, reductions.

Each such row has an identity of its own, and is sent once: with its recording, or alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, Table, or_, select

from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.failures.failure_kinds import FailureKind
from torchreel.store.failures.signature import Signature
from torchreel.store.sending.origins import identity
from torchreel.store.sending.rows import Values, check_references, read_rows, texts

_WITHOUT_EXCEPTION = ("crash", "hang")
"""Classes of failures without an exception that a recorder writes, or `settle` for it."""
Identified = tuple[tuple[str, Values], ...]
"""Rows, each after its identity."""


@dataclass(frozen=True)
class LaterRows:
    """The failures of a recording and the rows computed from them; the ids are the source's."""

    failures: Identified = ()
    reductions: Identified = ()
    by_catch: tuple[Values, ...] = ()
    cases: tuple[Values, ...] = ()
    findings: Identified = ()
    kinds: Mapping[int, FailureKind] = field(default_factory=dict)
    """The kinds of the failures, by their ids, as far as they are known."""
    owners: Mapping[int, str] = field(default_factory=dict)
    """The identity of each failure, by its id, sent or not."""

    @property
    def identities(self) -> list[str]:
        """The identities of all rows that have one."""
        return [digest for digest, _ in (*self.failures, *self.reductions, *self.findings)]

    def without(self, known: set[str]) -> LaterRows:
        """Return the rows whose identities are not `known`, with the rows that belong to them."""
        reductions = _new(self.reductions, known)
        numbers = {row["id"] for _, row in reductions}
        by_catch = tuple(row for row in self.by_catch if row["reduction_id"] in numbers)
        findings = _new(self.findings, known)
        wanted = {row[name] for _, row in reductions for name in ("start_case", "best_case")}
        wanted |= {row["case_digest"] for row in by_catch}
        wanted |= {row["case_digest"] for _, row in findings}
        cases = tuple(row for row in self.cases if row["digest"] in wanted)
        return replace(
            self, failures=_new(self.failures, known), reductions=reductions, by_catch=by_catch,
            cases=cases, findings=findings,
        )  # fmt: skip

    def check(self, target: str, ids: Mapping[str, Collection[int]]) -> None:
        """Raise DamagedStore where a failure refers to rows that its recording does not have, by
        their ids.
        """
        rows = [row for _, row in self.failures]
        check_references(target, schema.failures, rows, ids)

    def texts(self) -> Iterator[str]:
        """Yield the texts of all rows, in which digests may stand."""
        for table, rows in (
            (schema.failures, [row for _, row in self.failures]),
            (schema.by_catch, self.by_catch),
            (schema.cases, self.cases),
            (schema.findings, [row for _, row in self.findings]),
        ):
            for row in rows:
                yield from texts(table, row)


def _new(rows: Identified, known: set[str]) -> Identified:
    return tuple((digest, row) for digest, row in rows if digest not in known)


def read_later(source: Store, recording_id: int, recording: str) -> LaterRows:
    """Read the later rows of a recording, whose identity is `recording`.

    Raises StoreError where a part can't be read.
    """
    failures = _of(source, schema.failures, schema.failures.c.recording_id == recording_id)
    if not failures:
        return LaterRows()
    places = {
        row["id"]: place for row, place in zip(failures, _places(source, failures), strict=True)
    }
    for row in failures:
        Signature.from_json(parse_json(row["signature"]))  # which raises, where it is none
    table = schema.reductions
    reductions = [
        row
        for row in _of(source, table, table.c.failure_id.in_(places))
        if row["status"] != "running"
    ]
    numbers = [row["id"] for row in reductions]
    by_catch = _of(source, schema.by_catch, schema.by_catch.c.reduction_id.in_(numbers))
    cases = _cases(source, places, reductions, by_catch)
    digests = [row["digest"] for row in cases]
    findings = _of(source, schema.findings, schema.findings.c.case_digest.in_(digests))
    owners = {id_: identity("failure", recording, *place) for id_, place in places.items()}
    return LaterRows(
        tuple((owners[row["id"]], row) for row in failures),
        tuple(
            (
                identity(
                    "reduction", owners[row["failure_id"]], row["started_ns"], row["start_case"]
                ),
                row,
            )
            for row in reductions
        ),
        tuple(by_catch),
        tuple(cases),
        tuple((_of_finding(row), row) for row in findings),
        owners=owners,
    )


def was_recorded(failure: Values) -> bool:
    """Return True for a failure of the process itself, False for one that was found later."""
    return bool(failure["exception_type"]) or failure["failure_class"] in _WITHOUT_EXCEPTION


def _places(source: Store, failures: list[Values]) -> Iterator[tuple[Json, ...]]:
    """Yield a key for each failure, which is the same in every copy of its recording.

    A failure that the recorded process wrote has its number there. A failure that was found later
    has another number in each copy: its key is its compile and its signature.
    """
    at = schema.compiles.c
    wanted = {row["compile_id"] for row in failures}
    compiles = {
        row["id"]: (row["compile_id"], row["attempt"], row["generation"])
        for row in _of(source, schema.compiles, at.id.in_(wanted))
    }
    written = itertools.count()
    for row in failures:
        if was_recorded(row):
            yield (next(written),)
        else:
            yield (*compiles.get(row["compile_id"], ()), row["signature_digest"])


def _cases(
    source: Store, failures: Collection[int], reductions: list[Values], by_catch: list[Values]
) -> list[Values]:
    """Read the cases of these failures, and the cases of their reductions.

    A store keeps each case once, with the failure that had it first. This may be another failure,
    or one that was deleted; the case is then read as one of these failures.
    """
    owner = {row["id"]: row["failure_id"] for row in reductions}
    wanted = {row["case_digest"]: owner[row["reduction_id"]] for row in by_catch}
    for row in reductions:
        wanted |= dict.fromkeys((row["start_case"], row["best_case"]), row["failure_id"])
    at = schema.cases.c
    found = _of(source, schema.cases, or_(at.failure_id.in_(failures), at.digest.in_(wanted)))
    return [
        row if row["failure_id"] in failures else {**row, "failure_id": wanted[row["digest"]]}
        for row in found
    ]


def _of(source: Store, table: Table, condition: ColumnElement[bool]) -> list[Values]:
    return read_rows(source, select(table).where(condition))


def _of_finding(row: Values) -> str:
    columns: list[Any] = [row[name] for name in sorted(row) if name != "id"]
    return identity("finding", *columns)
